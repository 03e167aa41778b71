"""Writes PNG: any depth and kind of colour, in bands that several cores deflate.

A band's rows are filtered together and deflated on their own, up to a sync flush, so that the
pieces join to one stream (RFC 1951, section 3.2.3; RFC 1950 for what surrounds it), whose checksum
follows from theirs. The picture alone decides where bands begin: any number of cores makes the same
file. Besides the pixels only a few bands exist.

Filter Up and ISA-L's first level are nine times as fast as zlib's with libpng's choice of filters,
at the same size for enlarged pictures.

Filters (PNG 3, section 9) work on lines of (rows + 1, bytes a row), the line above the first row in
front. Left of a line and above the picture, bytes are 0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator
from contextlib import closing
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.base import Writer
from waifu2x.formats.metadata import transfer
from waifu2x.formats.png.chunks import SIGNATURE, chunk, fast_zlib
from waifu2x.formats.png.colours import chunks_of
from waifu2x.formats.png.ordered_pool import in_order
from waifu2x.formats.table import Compression
from waifu2x.imaging.picture import Chunk, Picture, interleave
from waifu2x.imaging.streams import Header, Timed
from waifu2x.system.machine import core_count

_BAND = 1 << 19
"""Bytes that are filtered and deflated together: they stay in a core's cache."""
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""By planes, alpha among them: grey, grey and alpha, RGB, RGB and alpha."""
_HEAD = b"\x78\x01"
"""How a zlib stream begins: a window of 32 KiB, no dictionary."""
_END = b"\x03\x00"
"""A last block with nothing in it."""
_BASE = 65521
"""Modulus of Adler-32."""
_ALONE = 4
"""Bytes that are deflated before the rest of a band: enough for ISA-L to begin its history, and too
few for its fast way, which is at fault."""


class _Packed(NamedTuple):
    """A band, deflated."""

    pieces: list[bytes]
    adler: int
    """Adler-32 of the filtered bytes."""
    length: int


class PngWriter(Writer):
    """Writes a file as its pictures come; several are an animation (APNG), each frame whole."""

    def __init__(
        self,
        header: Header,
        file: IO[bytes],
        compression: Compression = "default",
        threads: int | None = None,
    ) -> None:
        """`threads` is how many cores work on it, all by default. `file` can be sought."""
        self._header = header
        self._file = file
        self._compression = compression
        self._threads = threads or core_count()
        self._frames = 0
        self._numbers = iter(range(2**31))
        self._control_at = 0
        """The offset of the chunk with the number of frames."""

    def add(self, timed: Timed) -> None:
        """Writes the next picture, of uint8 or uint16. Raises OSError."""
        picture = timed.picture
        height, width, planes = _shape(picture)
        if not self._frames:
            depth = 8 * picture.pixels.dtype.itemsize
            self._file.write(SIGNATURE)
            self._put(
                b"IHDR",
                struct.pack(">IIBBBBB", width, height, depth, _COLOUR_TYPES[planes], 0, 0, 0),
            )
            for name, body in _ancillary(picture):
                self._put(name, body)
            if self._header.animated:
                self._put_animation_control(self._header.count or 1)
        if self._header.animated:
            self._put(
                b"fcTL", _frame_control(next(self._numbers), width, height, timed.duration or 0)
            )
        with closing(_stream(picture, self._compression, self._threads)) as stream:
            for pieces in stream:
                if self._frames == 0:
                    self._put(b"IDAT", *pieces)
                else:
                    self._put(b"fdAT", struct.pack(">I", next(self._numbers)), *pieces)
        self._frames += 1

    def finish(self) -> None:
        """Writes IEND, and the true number of frames if it differs from the header's."""
        self._put(b"IEND")
        if self._header.animated and self._header.count != self._frames:
            end = self._file.tell()
            self._file.seek(self._control_at)
            self._put_animation_control(self._frames)
            self._file.seek(end)

    def _put_animation_control(self, frames: int) -> None:
        self._control_at = self._file.tell()
        self._put(b"acTL", struct.pack(">II", frames, self._header.loop))

    def _put(self, kind: bytes, *parts: bytes) -> None:
        for piece in chunk(kind, *parts):
            self._file.write(piece)


def _ancillary(picture: Picture) -> list[Chunk]:
    planes, depth = picture.pixels.shape[-1], 8 * picture.pixels.dtype.itemsize
    metadata = transfer.png_chunks(picture.metadata, planes, depth)
    return [*chunks_of(picture.colours), *metadata]


def _frame_control(number: int, width: int, height: int, duration: float) -> bytes:
    unit = 1000 if duration < 65536 else 10
    ticks = min(round(duration * unit / 1000), 65535)
    return struct.pack(">IIIIIHHBB", number, width, height, 0, 0, ticks, unit, 0, 0)


def _shape(picture: Picture) -> tuple[int, int, int]:
    height, width, planes = picture.pixels.shape
    return height, width, planes + (picture.alpha is not None)


def _stream(
    picture: Picture, compression: Compression, threads: int
) -> Generator[tuple[bytes, ...]]:
    """Yields the filtered rows as a zlib stream, in pieces for a chunk each."""
    height, width, planes = _shape(picture)
    stride = width * planes * picture.pixels.dtype.itemsize
    rows = max(1, _BAND // (stride + 1))
    bands = _Bands(picture, stride, min(rows, height), compression)
    head: tuple[bytes, ...] = (_HEAD,)
    adler = 1
    tops = range(0, height, rows)
    workers = min(threads, len(tops))
    packed = in_order(bands, tops, workers if workers > 1 else 0)
    for top, band in zip(tops, packed, strict=True):
        adler = adler_of_both(adler, band.adler, band.length)
        # With the last rows: readers of animations expect no chunk behind all rows.
        tail = (_END, struct.pack(">I", adler)) if top == tops[-1] else ()
        yield *head, *band.pieces, *tail
        head = ()


def adler_of_both(one: int, other: int, length: int) -> int:
    """Returns Adler-32 of two pieces in a row by their own; `length` is the second's.

    RFC 1950, section 8.2: its low half is 1 and the sum of the bytes, its high half the sum of the
    low half at each byte; both modulo 65521.
    """
    before = (one & 0xFFFF) - 1
    low = (before + (other & 0xFFFF)) % _BASE
    high = ((one >> 16) + (other >> 16) + length * before) % _BASE
    return high << 16 | low


class _Bands:
    """Packs the bands of a picture, in any number of threads."""

    def __init__(self, picture: Picture, stride: int, rows: int, compression: Compression) -> None:
        self._picture = picture
        self._stride = stride
        self._rows = rows
        self._compression = compression
        self._buffers: list[tuple[Bytes, Bytes]] = []
        """Used again: new memory costs as much as filtering."""

    def __call__(self, top: int) -> _Packed:
        try:
            buffers = self._buffers.pop()
        except IndexError:
            buffers = (
                np.empty((self._rows + 1, self._stride), np.uint8),
                np.empty((self._rows, self._stride + 1), np.uint8),
            )
        lines = self._lines(top, buffers[0])
        filtered = buffers[1][: len(lines) - 1]
        pixel = self._stride // self._picture.pixels.shape[1]
        if self._compression == "best":
            smallest(lines, pixel, filtered)
            deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_FILTERED)
            pieces = [deflate.compress(filtered.data), deflate.flush(zlib.Z_SYNC_FLUSH)]
        else:
            up(lines, pixel, filtered)
            pieces = quickly_deflated(filtered)
        packed = _Packed(pieces, fast_zlib().adler32(filtered), filtered.size)
        self._buffers.append(buffers)
        return packed

    def _lines(self, top: int, buffer: Bytes) -> Bytes:
        """Returns the bytes of the rows from `top` on and of the row above, high bytes first.

        (rows + 1, bytes a row): a view of the picture where its bytes stand so, else `buffer`.
        """
        pixels, alpha = self._picture.pixels, self._picture.alpha
        height, width, planes = pixels.shape
        rows = slice(max(0, top - 1), min(top + self._rows, height))
        pixels = pixels[rows]
        one_byte = pixels.dtype == np.uint8
        if top and one_byte and alpha is None and pixels.strides[1:] == (planes, 1):
            return pixels.reshape(len(pixels), -1)
        lines = buffer[: len(pixels) + (top == 0)]
        lines[0] = 0
        samples = lines[top == 0 :].view(np.uint8 if one_byte else ">u2")
        samples = samples.reshape(len(pixels), width, -1)
        if alpha is None:
            samples[...] = pixels
        else:
            interleave(pixels, alpha[rows], samples)
        return lines


def quickly_deflated(data: Bytes) -> list[bytes]:
    """Returns a raw deflate stream of data, in pieces, that ends on a byte and is not closed.

    The first bytes go alone: if all are given at once, ISA-L 2.32 files the third one under a hash
    of its own state's address instead of one of the data, and the result depends on that.
    """
    deflate, content = fast_zlib().compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS), data.reshape(-1)
    return [
        piece
        for part in (content[:_ALONE], content[_ALONE:])
        for piece in (deflate.compress(part.data), deflate.flush(zlib.Z_SYNC_FLUSH))
    ]


Bytes = NDArray[np.uint8]
Filter = Callable[[Bytes, int, Bytes], None]
"""A filter: takes lines, bytes of a pixel, and (rows, 1 + bytes a row) to fill."""


def up(lines: Bytes, pixel: int, out: Bytes) -> None:
    """Filters by Up, differences from the byte above: the fastest to make and to undo."""
    out[:, 0] = 2
    np.subtract(lines[1:], lines[:-1], out=out[:, 1:])


def smallest(lines: Bytes, pixel: int, out: Bytes) -> None:
    """Chooses the filter that a quick deflate packs best, which is the best or close to it.

    On enlarged pictures 1 to 3 % smaller than libpng's choice for each row.
    """
    sizes = {}
    for number, one in enumerate((sub, up, average, paeth)):
        one(lines, pixel, out)
        sizes[sum(map(len, quickly_deflated(out))), number] = one
    sizes[min(sizes)](lines, pixel, out)


def sub(lines: Bytes, pixel: int, out: Bytes) -> None:
    """Filters by Sub: differences from the pixel to the left."""
    out[:, 0] = 1
    np.subtract(lines[1:], _left(lines[1:], pixel), out=out[:, 1:])


def average(lines: Bytes, pixel: int, out: Bytes) -> None:
    """Filters by Average: differences from the mean of left and above, rounded down."""
    out[:, 0] = 3
    above, left = lines[:-1], _left(lines[1:], pixel)
    np.subtract(lines[1:], (above & left) + ((above ^ left) >> 1), out=out[:, 1:])


def paeth(lines: Bytes, pixel: int, out: Bytes) -> None:
    """Filters by Paeth: differences from left, above or above left, as PNG chooses."""
    out[:, 0] = 4
    above, left = lines[:-1], _left(lines[1:], pixel)
    corner = _left(above, pixel)
    across = np.abs(above.astype(np.int16) - corner)  # left + above - corner is so far from left
    down = np.abs(left.astype(np.int16) - corner)
    both = np.abs(above.astype(np.int16) + left - 2 * corner.astype(np.int16))
    predicted = np.where(
        (across <= down) & (across <= both), left, np.where(down <= both, above, corner)
    )
    np.subtract(lines[1:], predicted, out=out[:, 1:])


def _left(lines: Bytes, pixel: int) -> Bytes:
    shifted = np.zeros_like(lines)
    shifted[:, pixel:] = lines[:, :-pixel]
    return shifted
