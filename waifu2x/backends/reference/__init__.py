"""Runs networks in float64 by NumPy, slowly and obviously."""
