"""Reads what a file declares before a decoder, which may allocate memory for it at once.

WebP (RFC 9649), section 2; ICO as Windows has it; JPEG 2000 (ISO/IEC 15444-1), annex A.5.1;
JPEG XR (ISO/IEC 29199-2), annex A.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from waifu2x.formats import pnm
from waifu2x.formats.headers import gif, jpeg, jxl
from waifu2x.formats.limits import MAX_PICTURES, Budget, OverBudgetError
from waifu2x.formats.png import chunks

_ICON = b"\0\0\1\0"
_JPEG_XR = b"II\xbc"
_JPEG_2000 = b"\xff\x4f\xff\x51"
"""The start of a codestream, and its segment of sizes."""
_HEAD = 1 << 12
"""Bytes in which a codestream of JPEG 2000 begins behind its boxes."""


class Declared(NamedTuple):
    """The size and number of a file's pictures by its header."""

    width: int
    height: int
    """Pixels of each decoded picture, more than are shown where a part of it lies outside."""
    pictures: int = 1
    """The number of pictures."""


def declared(data: bytes) -> Declared | None:
    """Returns the declared sizes of a GIF, WebP, ICO or JPEG XL; None for other formats.

    Raises ValueError for a header that is damaged, and OverBudgetError, also for JPEG and PNM.
    """
    budget = Budget(len(data))
    if data.startswith(jpeg.START):
        for _ in jpeg.segments(data):
            pass  # within the budget
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


def of_stream(data: bytes) -> tuple[int, int] | None:
    """Returns width and height that a coded part of a TIFF page declares; None for other codings.

    Raises ValueError for a header that is damaged, and OverBudgetError.
    """
    try:
        if data.startswith(jpeg.START):
            frame = jpeg.frame(data)
            return frame and (frame.width, frame.height)
        if data.startswith(chunks.SIGNATURE):
            across, down = struct.unpack_from(">II", data, 16)
            return across, down
        if data.startswith(_JPEG_XR):
            return _jpeg_xr(data)
        at = data.find(_JPEG_2000, 0, _HEAD)
        if at >= 0:
            across, down, left, top = struct.unpack_from(">4I", data, at + 8)
            return across - left, down - top
    except struct.error as error:
        raise ValueError("its header is cut off") from error
    found = declared(data)
    return found and (found.width, found.height)


def _jpeg_xr(data: bytes) -> tuple[int, int]:
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    sides = {0xBC80: 0, 0xBC81: 0}
    Budget(len(data)).visit(count)
    for start in range(at + 2, at + 2 + 12 * count, 12):
        tag, _, _, value = struct.unpack_from("<HHII", data, start)
        if tag in sides:
            sides[tag] = value
    across, down = sides.values()
    return across, down


def _gif(data: bytes, budget: Budget) -> Declared:
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
    """Returns the canvas, or the size of the only picture where the file has no canvas."""
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
    """Yields kind, start and length of each chunk of a RIFF file."""
    at = 12
    while at + 8 <= len(data):
        budget.visit()
        kind, length = struct.unpack_from("<4sI", data, at)
        yield kind, at + 8, length
        at += 8 + length + length % 2


def _icon(data: bytes, budget: Budget) -> Declared:
    """Returns the size of the largest picture by its own header; the icon's may be wrong."""
    (count,) = struct.unpack_from("<H", data, 4)
    budget.visit(count)
    width = height = 0
    for index in range(count):
        (start,) = struct.unpack_from("<I", data, 6 + 16 * index + 12)
        if data[start : start + 8] == chunks.SIGNATURE:
            across, down = struct.unpack_from(">II", data, start + 16)
        elif start + 12 <= len(data):
            across, down = (abs(side) for side in struct.unpack_from("<ii", data, start + 4))
            down //= 2  # its mask stands below
        else:
            continue
        if across * down > width * height:
            width, height = across, down
    return Declared(width, height)
