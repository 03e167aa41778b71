"""Writes the pixel aspect and the static metadata of HDR10 into a Matroska file.

FFmpeg's muxer takes them from fields of the stream that PyAV cannot set, unless the codec carries
them. So the track is written with a longer name, whose bytes are then used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from fractions import Fraction
from typing import IO, NamedTuple

from waifu2x.errors import OutputError
from waifu2x.imaging.picture import Hdr

_SEGMENT, _TRACKS, _TRACK, _VIDEO, _NAME = 0x18538067, 0x1654AE6B, 0xAE, 0xE0, 0x536E
_CRC, _VOID = 0xBF, 0xEC
_WIDTH, _HEIGHT, _UNIT = 0x54B0, 0x54BA, 0x54B2
_COLOUR, _MASTERING, _MOST_LIGHT, _MEAN_LIGHT = 0x55B0, 0x55D0, 0x55BC, 0x55BD
_RED_X, _MOST, _LEAST = 0x55D1, 0x55D9, 0x55DA
"""The first of eight coordinates, and luminances."""
_RATIO = 3
"""The unit that makes width and height a ratio."""
_PLACE = "." * 200
"""A placeholder longer than all fields."""
_HEADER = 16 << 20
"""The most bytes up to the end of the tracks; fonts come after."""
_UNKNOWN_SIZE = -1


class _Element(NamedTuple):
    """The position of an element of EBML in the bytes around it."""

    number: int
    header: int
    start: int
    end: int


def placeholder(title: str) -> str:
    """Returns the name under which a track called `title` has to be written."""
    return title + _PLACE


class PictureFields(NamedTuple):
    """The fields of the pictures to write; None leaves one as it is."""

    aspect: Fraction | None
    """Width of a pixel over its height."""
    hdr: Hdr | None


def set_fields(file: IO[bytes], fields: PictureFields, size: tuple[int, int], title: str) -> None:
    """Writes fields into the track named `placeholder(title)`. `size` is height and width. Raises
    OutputError if there is no such track."""
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
            made += data[one.header : one.start] + _with_fields(content, fields, size, title)
        elif one.number != _CRC:
            made += data[one.header : one.end]
    if tracks.end - tracks.start - len(made) == 6:
        made = bytes([_CRC, 0x84]) + zlib.crc32(made).to_bytes(4, "little") + made
    if not is_found or len(made) != tracks.end - tracks.start:
        raise OutputError("the film's header is not as it was written")
    file.seek(tracks.start)
    file.write(made)


def elements(data: bytes, at: int, end: int) -> Iterator[_Element]:
    """Yields consecutive elements of EBML."""
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


def _with_fields(track: bytes, fields: PictureFields, size: tuple[int, int], title: str) -> bytes:
    """Returns a track of the same length with the fields and its own name."""
    parts = []
    for one in elements(track, 0, len(track)):
        content = track[one.start : one.end]
        if one.number == _VIDEO:
            parts.append(_element(_VIDEO, _video(content, fields, size)))
        elif one.number != _NAME:
            parts.append(track[one.header : one.end])
        elif title:
            parts.append(_element(_NAME, title.encode()))
    made = b"".join(parts)
    spare = len(track) - len(made)
    return made + _void(spare) if spare >= 2 else made


def _video(content: bytes, fields: PictureFields, size: tuple[int, int]) -> bytes:
    if fields.aspect is not None:
        content = _without(content, _WIDTH, _HEIGHT, _UNIT) + _shape(fields.aspect, size)
    if fields.hdr is not None:
        colour = _find(content, 0, len(content), _COLOUR)
        told = b"" if colour is None else content[colour.start : colour.end]
        told = _without(told, _MASTERING, _MOST_LIGHT, _MEAN_LIGHT) + _light(fields.hdr)
        content = _without(content, _COLOUR) + _element(_COLOUR, told)
    return content


def _without(content: bytes, *numbers: int) -> bytes:
    return b"".join(
        content[one.header : one.end]
        for one in elements(content, 0, len(content))
        if one.number not in numbers
    )


def _light(hdr: Hdr) -> bytes:
    made = b""
    if hdr.light is not None:
        made += _integer(_MOST_LIGHT, round(hdr.light[0]))
        made += _integer(_MEAN_LIGHT, round(hdr.light[1]))
    numbers = dict(enumerate(hdr.primaries, _RED_X))
    if hdr.luminance:
        numbers |= {_LEAST: hdr.luminance[0], _MOST: hdr.luminance[1]}
    if numbers:
        reals = (_element(key, struct.pack(">d", value)) for key, value in numbers.items())
        made += _element(_MASTERING, b"".join(reals))
    return made


def _void(length: int) -> bytes:
    """Returns an element of `length` bytes, at least 2, that is ignored."""
    if length < 128:
        return bytes([_VOID, 0x80 | (length - 2)]) + bytes(length - 2)
    return bytes([_VOID]) + (0x10000000 | (length - 5)).to_bytes(4) + bytes(length - 5)


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
    """Returns a number of EBML and its end; that of damaged ones is the end of the data."""
    length = 9 - data[at].bit_length() if at < end else 9
    if length > 8 or at + length > end:
        return _UNKNOWN_SIZE, end
    value = int.from_bytes(data[at : at + length])
    if keeps_mark:
        return value, at + length
    value &= (1 << 7 * length) - 1
    return (_UNKNOWN_SIZE if value == (1 << 7 * length) - 1 else value), at + length
