"""CUDA: NVIDIA GPUs, by calls of their driver."""
