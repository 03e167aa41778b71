"""PyTorch's files of weights, read without PyTorch and without running anything."""
