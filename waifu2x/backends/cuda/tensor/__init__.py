"""Runs programs on matrix units."""
