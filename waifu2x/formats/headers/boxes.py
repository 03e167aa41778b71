"""Reads the boxes of AVIF, HEIF and JPEG 2000 that say what colours mean.

ISO/IEC 14496-12 (boxes, colr), 23008-12 (items and their properties), 15444-1, annex I.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from waifu2x.formats.limits import Budget

Box = tuple[bytes, int, int]
"""A box in a file: its kind, and the offsets at which its content starts and ends."""


class Property(NamedTuple):
    """A property of a picture: the kind and the content of its box."""

    kind: bytes
    content: bytes


def boxes(data: bytes, at: int, end: int, budget: Budget) -> Iterator[Box]:
    """Yields the boxes between two offsets, up to one that is damaged. Raises OverBudgetError."""
    while at + 8 <= end:
        budget.visit()
        length, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if length == 1 and start + 8 <= end:
            (length,) = struct.unpack_from(">Q", data, start)
            start += 8
        elif length == 0:
            length = end - at
        if length < start - at or at + length > end:
            return
        yield kind, start, at + length
        at += length


def primary_properties(data: bytes) -> list[Property]:
    """Returns the properties of the primary picture of an AVIF or HEIF; empty if it is damaged.

    Raises OverBudgetError.
    """
    budget = Budget(len(data))
    try:
        meta = _within(data, (b"meta",), 0, len(data), budget)
        if meta is None:
            return []
        start, end = meta[0] + 4, meta[1]  # behind version and flags
        primary = _within(data, (b"pitm",), start, end, budget)
        known = _within(data, (b"iprp", b"ipco"), start, end, budget)
        linked = _within(data, (b"iprp", b"ipma"), start, end, budget)
        if primary is None or known is None or linked is None:
            return []
        wide = data[primary[0]] > 0
        (item,) = struct.unpack_from(">I" if wide else ">H", data, primary[0] + 4)
        found = list(boxes(data, *known, budget))
        numbers = _linked(data, linked[0], item, budget)
        return [
            Property(kind, data[at:until])
            for kind, at, until in (found[number - 1] for number in numbers if number)
        ]
    except (struct.error, IndexError):
        return []


def jp2_colours(data: bytes) -> list[bytes]:
    """Returns the contents of the colr boxes of a JPEG 2000; empty for a bare codestream.

    Raises OverBudgetError.
    """
    budget = Budget(len(data))
    header = _within(data, (b"jp2h",), 0, len(data), budget)
    if header is None:
        return []
    return [data[at:end] for kind, at, end in boxes(data, *header, budget) if kind == b"colr"]


def uuids(data: bytes) -> dict[bytes, bytes]:
    """Returns the contents of a file's own uuid boxes by their identifiers; the first of each.

    Raises OverBudgetError.
    """
    found: dict[bytes, bytes] = {}
    for kind, at, end in boxes(data, 0, len(data), Budget(len(data))):
        if kind == b"uuid" and end - at > 16:
            found.setdefault(data[at : at + 16], data[at + 16 : end])
    return found


def _within(
    data: bytes, path: tuple[bytes, ...], at: int, end: int, budget: Budget
) -> tuple[int, int] | None:
    """Returns where the content of a box is, by the kinds of those around it; None without it."""
    for wanted in path:
        found = next((box for box in boxes(data, at, end, budget) if box[0] == wanted), None)
        if found is None:
            return None
        at, end = found[1:]
    return at, end


def _linked(data: bytes, at: int, item: int, budget: Budget) -> list[int]:
    """Returns the numbers, from 1 on, of an item's properties by an ipma box."""
    version, flags = data[at], data[at + 3]
    (count,) = struct.unpack_from(">I", data, at + 4)
    at += 8
    for _ in range(count):
        budget.visit()
        (one,) = struct.unpack_from(">I" if version else ">H", data, at)
        at += 4 if version else 2
        many = data[at]
        at += 1
        form = f">{many}{'H' if flags & 1 else 'B'}"
        if one == item:
            top = 0x7FFF if flags & 1 else 0x7F  # without the bit for essential ones
            return [number & top for number in struct.unpack_from(form, data, at)]
        at += struct.calcsize(form)
    return []
