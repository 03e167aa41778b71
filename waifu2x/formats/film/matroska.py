"""Writes into a Matroska file what shape its pixels have.

FFmpeg's muxer takes that from a field of the stream that PyAV cannot set: only codecs that carry it
themselves would keep it. So the track is written with a longer name, whose bytes are used for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from fractions import Fraction
from typing import IO, NamedTuple

from waifu2x.errors import OutputError

_SEGMENT, _TRACKS, _TRACK, _VIDEO, _NAME = 0x18538067, 0x1654AE6B, 0xAE, 0xE0, 0x536E
_CRC, _VOID = 0xBF, 0xEC
_WIDTH, _HEIGHT, _UNIT = 0x54B0, 0x54BA, 0x54B2
_RATIO = 3
"""The unit of a width and height of which only the ratio counts."""
_PLACE = "." * 48
"""More than the shape takes."""
_HEADER = 16 << 20
"""The most bytes up to the end of the tracks: fonts come after."""
_UNKNOWN_SIZE = -1


class _Element(NamedTuple):
    """Where an element of EBML lies in the bytes around it."""

    number: int
    header: int
    start: int
    end: int


def placeholder(title: str) -> str:
    """The name to give the track of pictures that are called `title`."""
    return title + _PLACE


def set_aspect(file: IO[bytes], aspect: Fraction, size: tuple[int, int], title: str) -> None:
    """Says how wide pixels are, in the track that was named by `placeholder(title)`.

    `size` is height and width. Raises OutputError where there is no such track.
    """
    file.seek(0)
    data = file.read(_HEADER)
    tracks = _find(data, 0, len(data), _SEGMENT)
    tracks = tracks and _find(data, tracks.start, tracks.end, _TRACKS)
    if tracks is None:
        raise OutputError("the film's header is not as it was written")
    made, is_found = b"", False
    for one in elements(data, tracks.start, tracks.end):
        content = data[one.start : one.end]
        if one.number == _TRACK and _named(content) == placeholder(title).encode():
            is_found = True
            made += data[one.header : one.start] + _with_shape(content, aspect, size, title)
        elif one.number != _CRC:
            made += data[one.header : one.end]
    if tracks.end - tracks.start - len(made) == 6:
        made = bytes([_CRC, 0x84]) + zlib.crc32(made).to_bytes(4, "little") + made
    if not is_found or len(made) != tracks.end - tracks.start:
        raise OutputError("the film's header is not as it was written")
    file.seek(tracks.start)
    file.write(made)


def elements(data: bytes, at: int, end: int) -> Iterator[_Element]:
    """The elements that lie one after the other in bytes."""
    while at < end:
        header = at
        number, at = _number(data, at, end, keeps_mark=True)
        size, at = _number(data, at, end, keeps_mark=False)
        stop = end if size == _UNKNOWN_SIZE else min(at + size, end)
        yield _Element(number, header, at, stop)
        at = stop


def _find(data: bytes, at: int, end: int, number: int) -> _Element | None:
    return next((one for one in elements(data, at, end) if one.number == number), None)


def _named(track: bytes) -> bytes:
    name = _find(track, 0, len(track), _NAME)
    return b"" if name is None else track[name.start : name.end]


def _with_shape(track: bytes, aspect: Fraction, size: tuple[int, int], title: str) -> bytes:
    """A track of the same length, with the shape of its pixels and its own name."""
    parts = []
    for one in elements(track, 0, len(track)):
        content = track[one.start : one.end]
        if one.number == _VIDEO:
            kept = b"".join(
                content[inner.header : inner.end]
                for inner in elements(content, 0, len(content))
                if inner.number not in (_WIDTH, _HEIGHT, _UNIT)
            )
            parts.append(_element(_VIDEO, kept + _shape(aspect, size)))
        elif one.number != _NAME:
            parts.append(track[one.header : one.end])
        elif title:
            parts.append(_element(_NAME, title.encode()))
    made = b"".join(parts)
    spare = len(track) - len(made) - 2
    # Fewer than 128 bytes, whose size is one byte.
    return made + bytes([_VOID, 0x80 | spare]) + bytes(spare) if 0 <= spare < 127 else made


def _shape(aspect: Fraction, size: tuple[int, int]) -> bytes:
    height, width = size
    shown = aspect * width
    if shown.denominator == 1:  # in pixels, which every player knows
        return _integer(_WIDTH, int(shown)) + _integer(_HEIGHT, height)
    ratio = shown / height
    return b"".join(
        (
            _integer(_WIDTH, ratio.numerator),
            _integer(_HEIGHT, ratio.denominator),
            _integer(_UNIT, _RATIO),
        )
    )


def _integer(number: int, value: int) -> bytes:
    return _element(number, value.to_bytes(max(1, -(-value.bit_length() // 8))))


def _element(number: int, content: bytes) -> bytes:
    head = number.to_bytes(-(-number.bit_length() // 8))
    # Four bytes of size hold any header.
    size = len(content)
    length = bytes([0x80 | size]) if size < 127 else (0x10000000 | size).to_bytes(4)
    return head + length + content


def _number(data: bytes, at: int, end: int, *, keeps_mark: bool) -> tuple[int, int]:
    """A number of EBML, and where it ends. Damaged ones end where the data does."""
    length = 9 - data[at].bit_length() if at < end else 9
    if length > 8 or at + length > end:
        return _UNKNOWN_SIZE, end
    value = int.from_bytes(data[at : at + length])
    if keeps_mark:
        return value, at + length
    value &= (1 << 7 * length) - 1
    return (_UNKNOWN_SIZE if value == (1 << 7 * length) - 1 else value), at + length
