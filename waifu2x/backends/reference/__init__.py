"""The `numpy` backend: float64, slow and obvious."""
