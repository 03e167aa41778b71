"""Compiles the kernels to machine code, and keeps it between runs."""
