"""Finds the boxes of files of HEIF's, AVIF's and JPEG XL's structure. ISO/IEC 14496-12, 4.2."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from waifu2x.formats.limits import Budget


class IsoBox(NamedTuple):
    """A box, by its kind and the offsets at which its content starts and ends."""

    kind: bytes
    start: int
    end: int


def boxes(data: bytes, start: int, end: int, budget: Budget) -> Iterator[IsoBox]:
    """Yields the boxes between two offsets, up to one that is damaged. Raises OverBudgetError."""
    end = min(end, len(data))
    while start + 8 <= end:
        budget.visit()
        length, kind = struct.unpack_from(">I4s", data, start)
        head = 8
        if length == 1 and start + 16 <= end:
            (length,) = struct.unpack_from(">Q", data, start + 8)
            head = 16
        length = length or end - start  # 0: up to the end
        if length < head:
            return
        yield IsoBox(kind, start + head, min(start + length, end))
        start += length
