"""Reads a film in a separate process: that process, and its client."""
