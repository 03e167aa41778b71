"""Reads Apple's variant of PNG, which Xcode makes of icons: no other program reads it.

A chunk CgBI stands first, the deflated rows have no zlib header, colours are in the order blue,
green, red, and multiplied by alpha: https://theapplewiki.com/wiki/PNG_CgBI_Format
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from dataclasses import replace

from waifu2x.errors import ImageError
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.limits import check_pixels
from waifu2x.formats.png import chunks, read
from waifu2x.imaging.picture import Picture, contiguous, straight
from waifu2x.imaging.streams import Timed

_PLANES = {2: 3, 6: 4}
"""Samples of a pixel, by IHDR's colour type."""


def open_content(data: bytes, name: str, max_pixels: int) -> DecodedFile:
    """Opens the picture of a file whose first chunk is CgBI. Raises ImageError."""
    inner = read.open_content(_standard(data, name, max_pixels), name, max_pixels)
    assert inner is not None  # none of what it leaves to Pillow

    def decoded() -> Generator[Timed]:
        for timed in inner:
            yield replace(timed, picture=_in_order(timed.picture))

    return DecodedFile(name, inner.header, decoded(), inner.close)


def _standard(data: bytes, name: str, max_pixels: int) -> bytes:
    """Returns the file with rows and chunks as PNG has them, the samples still Apple's."""
    found = [(kind, data[start:end]) for kind, start, end in chunks.places(data)]
    header = dict(found).get(b"IHDR", b"")
    if len(header) != 13:
        raise ImageError(f"{name}: damaged: it has no header")
    width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or kind not in _PLANES or interlaced:
        raise ImageError(
            f"{name}: it is Apple's variant of PNG in a rare form, which is not read",
            "convert it on a Mac, as by sips -s format png",
        )
    check_pixels(name, (width, height), 1, width * height, max_pixels)
    deflated = b"".join(body for kind, body in found if kind == b"IDAT")
    size = height * (1 + width * _PLANES[kind])
    rows = zlib.decompressobj(-zlib.MAX_WBITS).decompress(deflated, size + 1)
    if len(rows) != size:
        raise ImageError(f"{name}: damaged or cut off: its rows have another length")
    kept = [(kind, body) for kind, body in found if kind not in (b"CgBI", b"IDAT", b"IEND")]
    written = [*kept, (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")]
    return b"".join((
        chunks.SIGNATURE,
        *(part for kind, body in written for part in chunks.chunk(kind, body)),
    ))  # fmt: skip


def _in_order(picture: Picture) -> Picture:
    pixels = contiguous(picture.pixels[..., ::-1])
    if picture.alpha is not None:
        pixels = straight(pixels, picture.alpha)
    return replace(picture, pixels=pixels)
