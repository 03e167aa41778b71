"""What a device's matrix units reach at best, by `kernels/tensor_peak.cu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waifu2x.backends.cuda.tensor.units import Units, is_sm75
from waifu2x.backends.gpu.device.runtime import Macros

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_THREADS = 256
_REPEATS = 4096
_RUNS = 5
_WIDTH, _GROUP = 128, 64


def matrix_peak(runtime: CudaRuntime, units: Units) -> float:
    """Multiply-adds a second of 16-bit values, measured."""
    by_group = units == "wgmma"
    macros: Macros = {
        "WGMMA": int(by_group),
        "SM75": int(is_sm75(runtime.capability)),
        "REPEATS": _REPEATS,
        "THREADS": _THREADS,
        "WIDTH": _WIDTH,
        "GROUP": _GROUP,
    }
    shared = (64 + _WIDTH) * _GROUP * 2 if by_group else 0
    kernel = runtime.build("tensor_peak", macros).kernel("tensor_peak", _THREADS, shared)
    blocks = runtime.limits.compute_units * (1 if by_group else 2)
    target = runtime.allocate(blocks * _THREADS * 4)
    try:
        with runtime.timed() as launches:
            for _ in range(_RUNS):
                runtime.launch(kernel, (blocks, 1, 1), target)
    finally:
        target.release()
    # 64 x 16 by 16 x WIDTH four times for each 128 threads, or 16 x 16 by 16 x 8 for each 32.
    work = _THREADS // 128 * 4 * 64 * 16 * _WIDTH if by_group else _THREADS // 32 * 16 * 16 * 16 * 8
    return blocks * work * _REPEATS / min(seconds for _, seconds in launches)
