"""Measures the most multiply-adds a second that the units of a device reach."""

from __future__ import annotations

from waifu2x.backends.gpu.device.launch import KernelOwner, KernelSpec
from waifu2x.backends.gpu.device.runtime import Argument, Macros, Runtime
from waifu2x.backends.gpu.device.source import vector_type

_CHAINS = 12
_REPEATS = 4096
_GROUPS_PER_UNIT = 32
_RUNS = 5


def multiply_add_peak(runtime: Runtime) -> float:
    """Returns the peak multiply-adds a second in fp32, measured by `kernels/peak.cl`."""
    limits = runtime.limits
    width = limits.vector if limits.is_cpu else 1
    group = limits.group_on_gpu(256)
    macros: Macros = {
        "VECTOR": vector_type(width),
        "WIDTH": width,
        "GROUP": group,
        "CHAINS": _CHAINS,
        "REPEATS": _REPEATS,
    }
    groups, lanes = limits.compute_units * _GROUPS_PER_UNIT, group * width
    spec = KernelSpec("peak", macros, group)
    return measured(runtime, spec, groups, lanes * _CHAINS * _REPEATS, lanes * 4, 0.5)


def measured(
    runtime: Runtime, spec: KernelSpec, groups: int, work: int, size: int, *arguments: Argument
) -> float:
    """Returns the multiply-adds a second of a kernel's fastest run. Each group does `work` of them
    and writes `size` bytes to the first argument."""
    kernel = KernelOwner(runtime).kernel(spec)
    target = runtime.allocate(groups * size)
    try:
        with runtime.timed() as launches:
            for _ in range(_RUNS):
                runtime.launch(kernel, (groups, 1, 1), target, *arguments)
    finally:
        target.release()
    return groups * work / min(seconds for _, seconds in launches)
