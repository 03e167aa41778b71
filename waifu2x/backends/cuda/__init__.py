"""CUDA: NVIDIA GPUs, through pycuda, which only some of these modules need."""
