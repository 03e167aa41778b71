"""What a device's fp32 units reach at best, by `kernels/peak.cl`."""

from __future__ import annotations

from waifu2x.backends.gpu.device.runtime import Macros, Runtime

_CHAINS = 12
_REPEATS = 4096
_GROUPS_PER_UNIT = 32
_RUNS = 5


def multiply_add_peak(runtime: Runtime) -> float:
    """Multiply-adds a second of fp32, measured."""
    limits = runtime.limits
    width = limits.vector if limits.is_cpu else 1
    group = 1 if limits.is_cpu else limits.group(256)
    macros: Macros = {
        "VECTOR": "float" if width == 1 else f"float{width}",
        "WIDTH": width,
        "GROUP": group,
        "CHAINS": _CHAINS,
        "REPEATS": _REPEATS,
    }
    kernel = runtime.build("peak", macros).kernel("peak", group)
    groups = limits.compute_units * _GROUPS_PER_UNIT
    target = runtime.allocate(groups * group * width * 4)
    try:
        with runtime.timed() as launches:
            for _ in range(_RUNS):
                runtime.launch(kernel, (groups, 1, 1), target, 0.5)
    finally:
        target.release()
    return groups * group * width * _CHAINS * _REPEATS / min(seconds for _, seconds in launches)
