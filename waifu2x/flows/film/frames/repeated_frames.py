"""Finds frames that repeat the one before: drawings that are shown for several frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Duplicates = Literal["off", "exact", "tolerant"]
"""Computes every frame, frames that differ from the last computed one, or those that differ by more
than a codec's noise."""
_BLOCK = 8
_MOST = 1.5
"""Mean difference of a block, of 255, that means motion. In drawings where a square of 4 pixels
moves by one, it is at least 1.9; see benchmarks/held_frames.py."""
_AREA = 32
_MOST_SHIFT = 0.5
"""Change of an area's mean, of 255, that means a fade: a codec changes each block, but not all
alike."""
_STRIP = 128
"""Rows that are compared together, so that they stay in a core's cache."""


def is_held(
    computed: Sequence[NDArray[Any]], planes: Sequence[NDArray[Any]], how: Duplicates, bits: int
) -> bool:
    """Returns whether a frame equals the last computed one. Planes are (rows, columns) of samples
    of `bits`. A slow fade differs from its neighbour by next to nothing, so that is not compared.
    """
    if how == "off":
        return False
    pairs = list(zip(computed, planes, strict=True))
    if how == "exact":
        return all(np.array_equal(one, other) for one, other in pairs)
    unit = 1 << (bits - 8)
    return all(_is_near(one, other, unit) for one, other in pairs)


def _is_near(one: NDArray[Any], other: NDArray[Any], unit: int) -> bool:
    """Returns whether planes differ only by a codec's noise. `unit` is a level of 8 bits."""
    for top in range(0, one.shape[0], _STRIP):
        # The last strip overlaps the one before, so that it is whole.
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
    """Returns the means of blocks; the last may be narrower, or overlap those above."""
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
