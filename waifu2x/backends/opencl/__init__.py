"""The `opencl` backend: any GPU with an OpenCL driver, through pyopencl."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from waifu2x.backends import Device
from waifu2x.backends.opencl import platforms

if TYPE_CHECKING:
    from waifu2x.backends.gpu.backend import GpuBackend


def create(device: int) -> GpuBackend:
    """Returns the backend on a device by its number among `devices()`."""
    # Where `auto` finds no GPU, they need not be loaded.
    from waifu2x.backends.gpu.backend import GpuBackend
    from waifu2x.backends.gpu.fp32.executor import Fp32Executor
    from waifu2x.backends.opencl.runtime import OpenClRuntime

    runtime = OpenClRuntime(platforms.pick(device))
    fp32 = partial(Fp32Executor, runtime)
    return GpuBackend("opencl", runtime, {"auto": [fp32], "fp32": [fp32]})


def devices(*, gpus_only: bool = False) -> list[Device]:
    """Returns all devices, or the GPUs, perhaps none; the default comes first."""
    return [platforms.describe(device) for device in platforms.usable(gpus_only=gpus_only)]
