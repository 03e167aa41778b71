"""Finds frames that repeat the one before: drawings that are shown for several frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Duplicates = Literal["off", "exact", "tolerant"]
"""Every frame is computed; those that differ from the last computed one; those that differ from it
by more than what a codec changes."""
_BLOCK = 8
_MOST = 1.5
"""The mean difference of a block, of 255, from which on something has moved. Of drawings of which a
square of 4 pixels walks by one, the least is 1.9; benchmarks/held_frames.py has more."""
_AREA = 32
_MOST_SHIFT = 0.5
"""The change of an area's mean, of 255, from which on it fades: a codec changes each block, but not
all of them alike."""
_STRIP = 128
"""Rows that are compared at a time: they stay in a core's cache."""


def is_held(
    computed: Sequence[NDArray[Any]], planes: Sequence[NDArray[Any]], how: Duplicates, bits: int
) -> bool:
    """Whether a frame shows what the frame shows that was computed last. Planes are (rows, columns)
    of samples of so many bits.

    Not its neighbour: a slow fade differs from that by next to nothing, all the way down.
    """
    if how == "off":
        return False
    pairs = list(zip(computed, planes, strict=True))
    if how == "exact":
        return all(np.array_equal(one, other) for one, other in pairs)
    unit = 1 << (bits - 8)
    return all(_is_near(one, other, unit) for one, other in pairs)


def _is_near(one: NDArray[Any], other: NDArray[Any], unit: int) -> bool:
    """Whether two planes differ by what a codec changes. A level of 8 bits is so many of theirs."""
    for top in range(0, one.shape[0], _STRIP):
        # The last strip begins where it is a whole one.
        begin = max(0, min(top, one.shape[0] - _STRIP))
        strips = one[begin : begin + _STRIP], other[begin : begin + _STRIP]
        if np.array_equal(*strips):
            continue
        difference = np.maximum(*strips) - np.minimum(*strips)
        if _block_averages(difference, _BLOCK).max() >= _MOST * unit:
            return False
        shift = _block_averages(strips[0], _AREA) - _block_averages(strips[1], _AREA)
        if abs(shift).max() >= _MOST_SHIFT * unit:
            return False
    return True


def _block_averages(plane: NDArray[Any], side: int) -> NDArray[np.float64]:
    """The means of blocks, or of what is left of one at the right. The last ones of columns overlap
    those above, where there are any."""
    height, width = plane.shape
    side = min(side, height)
    whole = height // side * side
    # Rows first, as long as they are: sums of short axes are slow.
    sums = np.add.reduce(plane[:whole].reshape(-1, side, width), axis=1, dtype=np.uint32)
    if whole < height:
        last = np.add.reduce(plane[-side:], axis=0, dtype=np.uint32)
        sums = np.concatenate([sums, last[None]])
    starts = np.arange(0, width, side)
    counts = np.diff(np.append(starts, width)) * side
    means: NDArray[np.float64] = np.add.reduceat(sums, starts, axis=1) / counts
    return means
