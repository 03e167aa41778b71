"""Engines: devices and the networks compiled on them, shared by requests."""
