"""The `cuda` backend: NVIDIA GPUs, through pycuda."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from waifu2x.backends import Device
from waifu2x.backends.cuda import machine, tensor
from waifu2x.backends.cuda.compiler import NO_NVCC, find_nvcc, usable
from waifu2x.backends.cuda.runtime import CudaRuntime
from waifu2x.backends.cuda.units import choose_units
from waifu2x.backends.gpu.backend import GpuBackend
from waifu2x.backends.gpu.fp32 import Fp32Executor
from waifu2x.errors import UnavailableError


def create(device: int) -> GpuBackend:
    """The backend on a device by its number among `devices()`."""
    if not usable():
        raise UnavailableError(f"backend cuda has no kernels yet: {NO_NVCC}")
    runtime = CudaRuntime(machine.pick(device))
    units = choose_units(runtime.capability)
    if units == "fma":
        plain = partial(Fp32Executor, runtime)
        return GpuBackend("cuda", runtime, {"auto": plain, "fp32": plain})
    fp16, fp32 = tensor.makers(runtime, units)
    return GpuBackend("cuda", runtime, {"auto": fp16, "fp32": fp32, "fp16": fp16})


def devices() -> list[Device]:
    """All devices, in the driver's order."""
    found = [machine.describe(device) for device in machine.usable()]
    if find_nvcc() is None:
        without = "nvcc is not here: only kernels that are kept"
        found = [replace(device, detail=f"{device.detail}; {without}") for device in found]
    return found
