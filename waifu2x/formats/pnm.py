"""Reads and writes PGM and PPM: a few words, then samples; of 16 bits, the high byte first."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import IO

import numpy as np

from waifu2x.errors import ImageError
from waifu2x.formats.base import DAMAGED, DecodedFile, Writer
from waifu2x.formats.limits import OverBudgetError, check_pixels
from waifu2x.imaging.picture import Metadata, Picture
from waifu2x.imaging.streams import Extent, Header, Timed

_LONGEST = 1 << 16
"""Bytes of the longest header with its comments, which decoders read one by one."""
_GAP = rb"(?:\s|#[^\n]*\n)++"  # possessive: no backtracking
_SIZES = rb"P[1-6fF]" + 2 * (_GAP + rb"\d{1,9}") + rb"(?=[\s#])"
_PEAK = rb"P[2356fF]" + 3 * (_GAP + rb"[^\s#]+") + rb"(?=[\s#])"
_HEADER = rb"P6" + 3 * (_GAP + rb"(\d{1,9})") + rb"(?:\s|#[^\n]*\n)"


def is_deep(data: bytes) -> bool:
    """Returns whether a file is a colour one of 16 bits, which Pillow reduces to 8."""
    header = re.match(_HEADER, data[:_LONGEST]) if data.startswith(b"P6") else None
    return header is not None and 255 < int(header[3]) < 65536


def comment(data: bytes) -> bytes | None:
    """Returns the lines of comment in a header, without their #; None without any."""
    whole = _SIZES if data[1:2] in (b"1", b"4") else _PEAK
    header = re.match(whole, data[:_LONGEST])
    lines = re.findall(rb"#[ \t]*([^\r\n]*)", header[0]) if header else []
    return b"\n".join(lines) or None


def check(data: bytes) -> None:
    """Raises OverBudgetError for a header longer than that of sound files."""
    if len(data) <= _LONGEST or not re.match(rb"P[1-6fF][\s#]", data):
        return
    head = data[:_LONGEST]
    whole = _SIZES if head[1:2] in (b"1", b"4") else _PEAK
    if not re.match(whole, head):
        raise OverBudgetError(f"its header has more than {_LONGEST} bytes")


def open_content(data: bytes, name: str, max_pixels: int) -> DecodedFile:
    """Opens the picture of a file for which `is_deep` holds. Raises ImageError."""
    header = re.match(_HEADER, data[:_LONGEST])
    assert header is not None
    width, height, most = (int(number) for number in header.groups())
    check_pixels(name, (width, height), 1, width * height, max_pixels)
    if len(data) - header.end() < 6 * width * height or not width * height:
        raise ImageError(f"{name}: {DAMAGED}: it ends before its last row")
    extent = Extent(height, width, 6 * height * width)
    pictures = _decoded(data, header.end(), extent, most)
    return DecodedFile(name, Header((extent,), format="PNM"), pictures)


def _decoded(data: bytes, start: int, extent: Extent, most: int) -> Generator[Timed]:
    height, width, _ = extent
    samples = np.frombuffer(data, ">u2", 3 * width * height, start)
    if most < 65535:
        samples = np.rint(samples.clip(0, most) * (65535 / most))
    pixels = samples.astype(np.uint16).reshape(height, width, 3)
    yield Timed(Picture(pixels, metadata=Metadata(comment=comment(data))))


class PnmWriter(Writer):
    """Writes the one picture of a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, timed: Timed) -> None:
        """Writes a picture of 8 or 16 bits without alpha."""
        pixels = timed.picture.pixels
        height, width, planes = pixels.shape
        peak = np.iinfo(pixels.dtype).max
        self._file.write(b"P%d\n%d %d\n%d\n" % (5 if planes == 1 else 6, width, height, peak))
        self._file.write(np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).data)
