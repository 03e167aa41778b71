"""Which units of a chip multiply: the executor to take."""

from __future__ import annotations

import os
from typing import Literal, get_args

from waifu2x.errors import BackendError

Units = Literal["wgmma", "mma", "fma"]
"""The usual one first: matrix units fed from shared memory (sm_90), from registers (from sm_75 on);
none."""

UNITS_VARIABLE = "WAIFU2X_CUDA_UNITS"


def available_units(capability: tuple[int, int]) -> tuple[Units, ...]:
    """What a chip has, the usual one first. wgmma is of sm_90 alone; later chips have mma."""
    units: list[Units] = ["fma"]
    if capability >= (7, 5):
        units.insert(0, "mma")
    if capability == (9, 0):
        units.insert(0, "wgmma")
    return tuple(units)


def is_sm75(capability: tuple[int, int]) -> bool:
    """Whether the chip has only the first form of matrix products, and no asynchronous copies."""
    return capability < (8, 0)


def choose_units(capability: tuple[int, int]) -> Units:
    """The usual one of the chip, or what WAIFU2X_CUDA_UNITS asks for. Raises BackendError."""
    found = available_units(capability)
    asked = os.environ.get(UNITS_VARIABLE)
    for units in get_args(Units):
        if asked == units and units in found:
            return units  # type: ignore[no-any-return]
    if asked:
        raise BackendError(f"{UNITS_VARIABLE}={asked}: this device has {', '.join(found)}")
    return found[0]
