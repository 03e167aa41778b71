"""Runs networks on any GPU with a Vulkan driver, through the loader's library alone."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.backends import Device, Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waifu2x.backends.gpu.backend import GpuBackend, Maker

_NODES = ("dri/renderD*", "nvidia[0-9]*", "dxg")
"""Files in /dev, one at least, by which Linux lets programs use a GPU with memory of its own: those
of its own drivers, of NVIDIA's, and of Windows below it."""


def create(device: int) -> GpuBackend:
    """Opens the backend on the device of that number among `devices()`."""
    # Imported here, since `auto` does not need them if it finds no GPU.
    from waifu2x.backends.gpu.backend import GpuBackend
    from waifu2x.backends.gpu.fp32 import halves
    from waifu2x.backends.gpu.fp32.executor import Fp32Executor
    from waifu2x.backends.vulkan import physical
    from waifu2x.backends.vulkan.runtime import VulkanRuntime

    runtime = VulkanRuntime(physical.pick(device))
    fp32 = partial(Fp32Executor, runtime)
    if runtime.matrices is None:
        return GpuBackend("vulkan", runtime, {"auto": [fp32], "fp32": [fp32]})
    fp16 = halves.maker(runtime, runtime.matrices)
    makers: dict[Precision, Sequence[Maker]] = {
        "auto": [fp16, fp32],
        "fp16": [fp16, fp32],
        "fp32": [fp32],
    }
    return GpuBackend("vulkan", runtime, makers, halves.decides(runtime, runtime.matrices))


def devices(*, gpus_only: bool = False) -> list[Device]:
    """Returns all devices, or only the GPUs with memory of their own, if any; the default comes
    first. The processor may be faster than a GPU that shares its memory."""
    if gpus_only and not _may_have_gpu():
        return []
    from waifu2x.backends.vulkan import physical

    found = physical.usable()
    return [physical.describe(one) for one in found if one.is_discrete or not gpus_only]


def _may_have_gpu() -> bool:
    """Returns whether looking for a GPU with memory of its own is worth the 30 ms in which drivers
    are loaded, as `auto` does in every run."""
    return sys.platform != "linux" or any(
        True for pattern in _NODES for _ in Path("/dev").glob(pattern)
    )
