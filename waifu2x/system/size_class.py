"""Sizes of memory that is used again."""

from __future__ import annotations

MOST_SPARE = 4
"""Spare memory serves requests down to one part in this many of its size."""
_SMALLEST = 4096
_LARGE = 64 << 20
"""Bytes from which spare memory would be missed: a third of the memory of a large picture."""


def size_class(size: int) -> int:
    """Rounds a size up to the next of 4096, 6144, 8192, 12288, ...: two for each doubling, and
    eight from 64 MiB on.

    Pictures of a folder rarely have one size: memory made to measure would serve none of the next.
    """
    power = 1 << max(12, (size - 1).bit_length())
    if power == _SMALLEST:
        return power
    unit = power // (16 if power > _LARGE else 4)
    return -(-size // unit) * unit
