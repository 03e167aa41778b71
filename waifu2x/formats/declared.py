"""What a file declares, read before a decoder is let at it: some take memory for it at once.

WebP (RFC 9649), section 2; ICO as Windows has it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from waifu2x.formats import gif, jpeg, jxl, png, pnm
from waifu2x.formats.limits import MAX_PICTURES, Budget, OverBudgetError

_ICON = b"\0\0\1\0"


class Declared(NamedTuple):
    """What a file says of its pictures."""

    width: int
    height: int
    """Pixels that each picture takes when it is decoded: more than is shown where a part of it
    lies outside."""
    pictures: int = 1
    """How many pictures there are."""


def declared(data: bytes) -> Declared | None:
    """What a GIF, WebP, ICO or JPEG XL declares; None for other formats.

    Raises ValueError for a header that is damaged, and OverBudgetError, also for JPEG and PNM.
    """
    budget = Budget(len(data))
    if data.startswith(jpeg.SIGNATURE):
        jpeg.check(data)
    if data[:1] == b"P":
        pnm.check(data)
    try:
        if data[:4] == b"GIF8":
            return _gif(data, budget)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data, budget)
        if data[:4] == _ICON:
            return _icon(data, budget)
        if jxl.is_jxl(data):
            return Declared(*jxl.size(data))
    except (struct.error, IndexError) as error:
        raise ValueError("its header is cut off") from error
    return None


def _gif(data: bytes, budget: Budget) -> Declared:
    """The canvas, grown by frames that reach beyond it."""
    width, height = struct.unpack_from("<HH", data, 6)
    count = 0
    for at in gif.images(data, budget):
        count += 1
        if count > MAX_PICTURES:
            raise OverBudgetError(f"it has more than the {MAX_PICTURES} pictures that are read")
        left, top, across, down = struct.unpack_from("<4H", data, at + 1)
        width, height = max(width, left + across), max(height, top + down)
    return Declared(width, height, max(1, count))


def _webp(data: bytes, budget: Budget) -> Declared:
    """The canvas, or the only picture's size where the file has none."""
    size, frames = None, 0
    for kind, at, _ in _riff(data, budget):
        if kind == b"VP8X":
            wide, high = data[at + 4 : at + 7], data[at + 7 : at + 10]
            size = 1 + int.from_bytes(wide, "little"), 1 + int.from_bytes(high, "little")
        elif kind == b"VP8L" and size is None:
            (bits,) = struct.unpack_from("<I", data, at + 1)
            size = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        elif kind == b"VP8 " and size is None:
            across, down = struct.unpack_from("<HH", data, at + 6)
            size = across & 0x3FFF, down & 0x3FFF
        elif kind == b"ANMF":
            frames += 1
    if size is None:
        raise ValueError("it has no picture in it")
    return Declared(*size, max(1, frames))


def _riff(data: bytes, budget: Budget) -> Iterator[tuple[bytes, int, int]]:
    """Kind, start and length of each chunk of a RIFF file."""
    at = 12
    while at + 8 <= len(data):
        budget.visit()
        kind, length = struct.unpack_from("<4sI", data, at)
        yield kind, at + 8, length
        at += 8 + length + length % 2


def _icon(data: bytes, budget: Budget) -> Declared:
    """The size of the largest picture, by its own header: the icon's may say something else."""
    (count,) = struct.unpack_from("<H", data, 4)
    budget.visit(count)
    width = height = 0
    for index in range(count):
        (start,) = struct.unpack_from("<I", data, 6 + 16 * index + 12)
        if data[start : start + 8] == png.SIGNATURE:
            across, down = struct.unpack_from(">II", data, start + 16)
        elif start + 12 <= len(data):
            across, down = (abs(side) for side in struct.unpack_from("<ii", data, start + 4))
            down //= 2  # its mask stands below
        else:
            continue
        if across * down > width * height:
            width, height = across, down
    return Declared(width, height)
