"""Runs networks on any GPU with an OpenCL driver, through pyopencl."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from waifu2x.backends import Device
from waifu2x.backends.opencl import platforms

if TYPE_CHECKING:
    from waifu2x.backends.gpu.backend import GpuBackend


def create(device: int) -> GpuBackend:
    """Opens the backend on the device of that number among `devices()`."""
    # Imported here, since `auto` does not need them if it finds no GPU.
    from waifu2x.backends.gpu.backend import GpuBackend
    from waifu2x.backends.gpu.fp32.executor import Fp32Executor
    from waifu2x.backends.opencl.runtime import OpenClRuntime

    runtime = OpenClRuntime(platforms.pick(device))
    fp32 = partial(Fp32Executor, runtime)
    return GpuBackend("opencl", runtime, {"auto": [fp32], "fp32": [fp32]})


def devices(*, gpus_only: bool = False) -> list[Device]:
    """Returns all devices, or only the GPUs, if any; the default comes first."""
    return [platforms.describe(device) for device in platforms.usable(gpus_only=gpus_only)]
