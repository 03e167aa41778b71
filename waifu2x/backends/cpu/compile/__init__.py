"""Compiles the kernels to machine code, and caches it between runs."""
