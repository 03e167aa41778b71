"""Holds what the GPU backends share. It knows neither CUDA nor OpenCL, only `runtime.Runtime`."""
