"""Runs networks on NVIDIA GPUs by CUDA, through calls of their driver."""
