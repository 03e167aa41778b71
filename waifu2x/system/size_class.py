"""How large memory is made that is used again."""

from __future__ import annotations

MOST_SPARE = 4
"""Memory serves whoever wants as much or less, down to one part of so many."""
_SMALLEST = 4096
_LARGE = 64 << 20
"""Bytes from which on what is spare would be missed: a third of the memory of a large picture."""


def size_class(size: int) -> int:
    """The next of sizes of which there are two in each doubling: 4096, 6144, 8192, 12288, ...,
    and eight from 64 MiB on.

    Pictures of a folder hardly ever have one size: memory made to measure would serve none of the
    next. Sizes up to 4096 are one class.
    """
    power = 1 << max(12, (size - 1).bit_length())
    if power == _SMALLEST:
        return power
    unit = power // (16 if power > _LARGE else 4)
    return -(-size // unit) * unit
