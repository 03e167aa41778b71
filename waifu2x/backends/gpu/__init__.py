"""The common part of the GPU backends. It knows neither CUDA nor OpenCL, only `runtime.Runtime`."""
