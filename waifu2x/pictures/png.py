"""PNG: its chunks, and writing any depth and kind of colour, row by row.

Rows are filtered by Up, all of a band at once, and deflated by ISA-L: nine times as fast as zlib's
first level with libpng's choice of filters, at the same size for enlarged pictures (zlib does it
where pip has no wheel of ISA-L). No more than a band exists besides the pixels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.pictures.picture import Chunk, Frames, Picture

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BAND = 1 << 20
"""Bytes that are filtered and deflated at a time: they stay in a core's cache."""
_UP = 2
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""By planes, alpha among them: grey, grey and alpha, RGB, RGB and alpha."""
_MADE = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"iCCP"}
_COLOURS = {b"cICP", b"gAMA", b"cHRM", b"sRGB"}
_KEPT = {b"tIME", b"mDCV", b"cLLI"}
"""Kinds that speak of the whole picture, though they are not marked as safe to copy."""
_OF_SAMPLES = {b"sBIT", b"bKGD", b"hIST", b"sPLT"}


def chunks(data: bytes) -> Iterator[Chunk]:
    """The chunks of a file up to IEND, or to where it is cut off; checksums are not looked at."""
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        if at + 12 + length > len(data) or kind == b"IEND":
            return
        # Pixels are most of the file, and for a decoder.
        yield kind, b"" if kind in (b"IDAT", b"fdAT") else data[at + 8 : at + 8 + length]
        at += 12 + length


def depth(data: bytes) -> int:
    """Bits a sample of a file that begins with SIGNATURE."""
    return data[24] if len(data) > 24 else 8


def colour_chunks(found: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Those that say what the numbers mean."""
    return tuple(chunk for chunk in found if chunk[0] in _COLOURS)


def other_chunks(found: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Those that go along unchanged: text, time, and what is marked as safe to copy."""
    return tuple(
        (kind, body)
        for kind, body in found
        if kind in _KEPT
        or (kind[3:4].islower() and kind[:1].islower() and kind not in _MADE | _OF_SAMPLES)
    )


def encode(frames: Frames, ancillary: Sequence[Chunk]) -> Iterator[bytes]:
    """A file, piece by piece; several pictures are an animation (APNG), each frame whole.

    `ancillary` goes before the pixels. Pixels are uint8 or uint16.
    """
    first = frames.pictures[0]
    height, width, planes = _planes(first)
    bits = 8 * first.pixels.dtype.itemsize
    yield SIGNATURE
    yield _chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, bits, _COLOUR_TYPES[planes], 0, 0, 0)
    )
    for kind, body in ancillary:
        yield _chunk(kind, body)
    if frames.animated:
        yield _chunk(b"acTL", struct.pack(">II", len(frames.pictures), frames.loop))
    number = 0
    for index, picture in enumerate(frames.pictures):
        if frames.animated:
            yield _chunk(b"fcTL", _frame_control(number, width, height, frames.durations[index]))
            number += 1
        for piece in _deflated(picture):
            if index == 0:
                yield _chunk(b"IDAT", piece)
            else:
                yield _chunk(b"fdAT", struct.pack(">I", number) + piece)
                number += 1
    yield _chunk(b"IEND", b"")


def _frame_control(number: int, width: int, height: int, duration: float) -> bytes:
    """fcTL of a frame that replaces the whole picture."""
    unit = 1000 if duration < 65536 else 10
    ticks = min(round(duration * unit / 1000), 65535)
    return struct.pack(">IIIIIHHBB", number, width, height, 0, 0, ticks, unit, 0, 0)


def _planes(picture: Picture) -> tuple[int, int, int]:
    height, width, planes = picture.pixels.shape
    return height, width, planes + (picture.alpha is not None)


def _deflated(picture: Picture) -> Iterator[bytes]:
    """The filtered rows as a zlib stream."""
    height, width, planes = _planes(picture)
    stride = width * planes * picture.pixels.dtype.itemsize
    rows = max(1, _BAND // (stride + 1))
    deflate = _deflater()
    above: NDArray[np.uint8] = np.zeros((1, stride), np.uint8)
    for top in range(0, height, rows):
        band = _samples(picture, slice(top, top + rows))
        filtered = np.empty((len(band), stride + 1), np.uint8)
        filtered[:, 0] = _UP
        np.subtract(band[:1], above, out=filtered[:1, 1:])
        np.subtract(band[1:], band[:-1], out=filtered[1:, 1:])
        above = band[-1:]
        piece = deflate.compress(filtered)
        if piece:
            yield piece
    yield deflate.flush()


def _samples(picture: Picture, rows: slice) -> NDArray[np.uint8]:
    """Rows as bytes: (rows, bytes a row), the high byte of a sample first."""
    samples = picture.pixels[rows]
    if picture.alpha is not None:
        samples = np.concatenate([samples, picture.alpha[rows, :, np.newaxis]], axis=-1)
    if samples.dtype == np.uint16:
        samples = samples.astype(">u2")
    return np.ascontiguousarray(samples).reshape(len(samples), -1).view(np.uint8)


def _deflater() -> Any:
    """An object with `compress` and `flush`."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compressobj(1)
    return isal_zlib.compressobj(1)


def _crc32(kind: bytes, body: bytes) -> int:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.crc32(body, zlib.crc32(kind))
    return int(isal_zlib.crc32(body, isal_zlib.crc32(kind)))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return b"".join(
        (struct.pack(">I", len(body)), kind, body, struct.pack(">I", _crc32(kind, body)))
    )


def profile_chunk(profile: bytes) -> Chunk:
    """iCCP."""
    return b"iCCP", b"ICC profile\0\0" + zlib.compress(profile)
