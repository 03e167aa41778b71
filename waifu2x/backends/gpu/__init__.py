"""What the backends for GPUs share: it knows neither CUDA nor OpenCL, only `runtime.Runtime`."""
