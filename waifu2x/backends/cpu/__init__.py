"""Runs networks on every core of any processor, through Numba."""
