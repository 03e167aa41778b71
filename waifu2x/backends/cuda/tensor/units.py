"""Chooses the units of a chip that multiply, and measures the peak of matrix units."""

from __future__ import annotations

import os
from typing import Literal, get_args

from waifu2x.backends.cuda.runtime import CudaRuntime
from waifu2x.backends.gpu.device.launch import KernelSpec
from waifu2x.backends.gpu.device.peak import measured
from waifu2x.errors import BackendError

Units = Literal["wgmma", "mma", "fma"]
"""Matrix units fed from shared memory (sm_90) or from registers (sm_75 and later), or none."""

UNITS_VARIABLE = "WAIFU2X_CUDA_UNITS"

_THREADS = 256
_REPEATS = 4096
_WIDTH, _GROUP = 128, 64
"""The sizes of the matrix product of the kernel that measures the peak."""


def available_units(capability: tuple[int, int]) -> tuple[Units, ...]:
    """Returns the units of a chip, the default first. Chips after sm_90 have mma again."""
    units: list[Units] = ["fma"]
    if capability >= (7, 5):
        units.insert(0, "mma")
    if capability == (9, 0):
        units.insert(0, "wgmma")
    return tuple(units)


def is_sm75(capability: tuple[int, int]) -> bool:
    """Returns whether a chip has only the matrix products of sm_75, and no asynchronous copies."""
    return capability < (8, 0)


def choose_units(capability: tuple[int, int]) -> Units:
    """Returns the default units, or those that WAIFU2X_CUDA_UNITS names. Raises BackendError."""
    found = available_units(capability)
    asked = os.environ.get(UNITS_VARIABLE)
    for units in get_args(Units):
        if asked == units and units in found:
            return units  # type: ignore[no-any-return]
    if asked:
        raise BackendError(f"{UNITS_VARIABLE}={asked}: this device has {', '.join(found)}")
    return found[0]


def matrix_peak(runtime: CudaRuntime, units: Units) -> float:
    """Measures, by `kernels/tensor_peak.cu`, the most multiply-adds a second of 16-bit values that
    matrix units reach."""
    by_group = units == "wgmma"
    macros = {
        "WGMMA": int(by_group),
        "SM75": int(is_sm75(runtime.capability)),
        "REPEATS": _REPEATS,
        "THREADS": _THREADS,
        "WIDTH": _WIDTH,
        "GROUP": _GROUP,
    }
    shared = (64 + _WIDTH) * _GROUP * 2 if by_group else 0
    blocks = runtime.limits.compute_units * (1 if by_group else 2)
    # Four of 64 x 16 by 16 x WIDTH for each 128 threads, or 16 of 16 x 16 by 16 x 8 for each 32.
    work = _THREADS // 128 * 4 * 64 * 16 * _WIDTH if by_group else _THREADS // 32 * 16 * 16 * 16 * 8
    spec = KernelSpec("tensor_peak", macros, _THREADS, shared=shared)
    return measured(runtime, spec, blocks, work * _REPEATS, _THREADS * 4)
