"""The `cpu` backend: every core of any processor, through Numba."""
