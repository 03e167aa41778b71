"""Frames that repeat the one before: drawings that are held for two, three or many frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Duplicates = Literal["off", "exact", "tolerant"]
"""Every frame is computed; those that differ from the last computed one; those that differ from it
by more than what a codec changes."""
_BLOCK = 8
_MOST = 2.0
"""The mean difference of a block, of 255, from which on something has moved: a mouth may be as
small as a block."""


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
    most = _MOST * (1 << (bits - 8))
    return all(_worst_block(one, other) < most for one, other in pairs)


def _worst_block(one: NDArray[Any], other: NDArray[Any]) -> float:
    """The largest mean difference of a block of 8x8 samples, or of what is left at the edges."""
    difference = np.maximum(one, other) - np.minimum(one, other)
    rows, columns = (np.arange(0, size, _BLOCK) for size in difference.shape)
    sums = np.add.reduceat(difference, rows, axis=0, dtype=np.uint32)
    sums = np.add.reduceat(sums, columns, axis=1)
    heights = np.diff(np.append(rows, difference.shape[0]))
    widths = np.diff(np.append(columns, difference.shape[1]))
    return float((sums / np.outer(heights, widths)).max())
