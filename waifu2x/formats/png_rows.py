"""The rows of a PNG of 8 bits: inflated by ISA-L, their filters undone by libspng, band by band.

ISA-L inflates two to three times as fast as what libspng has. libspng is handed a band as a picture
of its own, in stored blocks, below the row that stands above it. No more than a few bands exist
besides the pixels, and they stay in a core's cache. Where there are two cores, one inflates while
the other undoes filters.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from waifu2x.formats import png
from waifu2x.formats.ahead import in_order
from waifu2x.system.machine import core_count

_BAND = 1 << 19
"""Bytes of rows that are inflated and unfiltered at a time."""
_FEW = 16
"""Bands that the caller inflates as well: a thread saves little of their 30 ms."""
_LARGEST_ROW = 1 << 28
"""Bytes of a row that still go by this way: a chunk of two has to have less than 2^31."""
_INPUT = 1 << 16
"""Deflated bytes that are handed over at a time: ISA-L's interface copies what it leaves."""
_BLOCK = 65535
"""Bytes of a stored block, at most. RFC 1951, section 3.2.4."""
_END = b"\x03\x00"
"""A last block with nothing in it."""


def decode(deflated: Iterable[memoryview], kind: int, out: NDArray[np.uint8]) -> bool:
    """Fills `out`, (H, W, planes), or (H, W) of one plane, with samples; whether it could.

    `deflated` are the contents of IDAT in their order, `kind` is IHDR's colour type. It cannot
    where there is no ISA-L, and where rows are damaged or not just as many as there should be: what
    becomes of those is for a decoder of files. Raises what imagecodecs.spng_decode raises for
    filters that there are not, and MemoryError.
    """
    height, width = out.shape[:2]
    stride = 1 + out.size // height
    if png.fast_zlib() is zlib or stride > _LARGEST_ROW:
        return False
    rows = max(1, _BAND // stride)
    tops = range(0, height, rows)
    stream = _Stream(deflated, height * stride)

    def inflated(top: int) -> list[bytes] | None:
        return stream.read(min(rows, height - top) * stride)

    workers = int(len(tops) > _FEW and core_count() > 1)
    with closing(in_order(inflated, tops, workers)) as bands:
        for top, band in zip(tops, bands, strict=True):
            if band is None:
                return False
            above: list[bytes | memoryview] = []
            if top:
                above = [b"\0", out[top - 1].data.cast("B")]
            # The row above is written once more, as it is.
            part = out[top - bool(top) : top + rows]
            header = struct.pack(">IIBBBBB", width, len(part), 8, kind, 0, 0, 0)
            imagecodecs.spng_decode(_file(header, [*above, *band]), out=part)
    return True


class _Stream:
    """A zlib stream of a known length that is inflated piece by piece."""

    def __init__(self, deflated: Iterable[memoryview], length: int) -> None:
        self._fast: Any = png.fast_zlib()
        self._inflater = self._fast.decompressobj()
        self._deflated = _pieces(deflated)
        self._rest: bytes | memoryview = b""
        """What is to be inflated next."""
        self._left = length

    def read(self, size: int) -> list[bytes] | None:
        """The next bytes, in pieces; None if the stream is damaged or of another length."""
        try:
            found = self._up_to(size)
            self._left -= size
            whole = sum(map(len, found)) == size
            if whole and not self._left:
                # Its checksum is behind the last byte.
                whole = not self._up_to(1) and self._inflater.eof
        except self._fast.error:
            return None
        return found if whole else None

    def _up_to(self, size: int) -> list[bytes]:
        found = []
        while size and not self._inflater.eof:
            piece = self._inflater.decompress(self._rest, size)
            if piece:
                found.append(piece)
                size -= len(piece)
            self._rest = self._inflater.unconsumed_tail or next(self._deflated, b"")
            if not (piece or self._rest):
                break
        return found


def _pieces(deflated: Iterable[memoryview]) -> Iterator[memoryview]:
    return (part[at : at + _INPUT] for part in deflated for at in range(0, len(part), _INPUT))


def _file(header: bytes, rows: list[bytes | memoryview]) -> bytes:
    """A PNG of filtered rows that are stored and not deflated."""
    blocks: list[bytes | memoryview] = [b"\x78\x01"]
    adler32, checksum = png.fast_zlib().adler32, 1
    for piece in rows:
        checksum = adler32(piece, checksum)
        for at in range(0, len(piece), _BLOCK):
            part = memoryview(piece)[at : at + _BLOCK]
            blocks += [struct.pack("<BHH", 0, len(part), len(part) ^ 0xFFFF), part]
    blocks += [_END, struct.pack(">I", checksum)]
    chunks = png.chunk(b"IHDR", header), png.chunk(b"IDAT", *blocks), png.chunk(b"IEND")
    return b"".join((png.SIGNATURE, *(piece for chunk in chunks for piece in chunk)))
