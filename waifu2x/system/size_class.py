"""How large memory is made that is used again."""

from __future__ import annotations

MOST_SPARE = 4
"""Memory serves whoever wants as much or less, down to one part of so many."""


def size_class(size: int) -> int:
    """The next of sizes of which there are two in each doubling: 4096, 6144, 8192, 12288, ...

    Pictures of a folder hardly ever have one size: memory made to measure would serve none of the
    next. Sizes up to 4096 are one class.
    """
    power = 1 << max(12, (size - 1).bit_length())
    return power * 3 // 4 if size <= power * 3 // 4 and power > 4096 else power
