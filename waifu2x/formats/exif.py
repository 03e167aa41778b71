"""EXIF and the tags of TIFF files: directories of tagged values, found at offsets.

An EXIF block is changed in place where it says something of size or orientation, or shows the
picture before it was turned, and nowhere else: makers' notes hold offsets of their own, which break
when anything moves.
TIFF 6.0, section 2; BigTIFF has offsets of 8 bytes; EXIF 2.32, section 4.5.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import NamedTuple

from waifu2x.formats.thumbnail import turned_thumbnail

ORIENTATION = 0x0112
_WIDTH, _HEIGHT = 0x0100, 0x0101
_EXIF, _GPS, _INTEROPERABILITY = 0x8769, 0x8825, 0xA005
_PIXELS_ACROSS, _PIXELS_DOWN = 0xA002, 0xA003
CHILDREN = {_EXIF, _GPS, _INTEROPERABILITY}
"""Tags whose value is the offset of a directory."""
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_SIZES |= {16: 8, 17: 8, 18: 8}
"""Bytes of a value, by its type; the last three are BigTIFF's."""
_SHORT, _LONG = 3, 4
_THUMBNAIL, _THUMBNAIL_LENGTH = 0x0201, 0x0202
_STRUCTURE = (
    {*range(254, 269), 273, *range(277, 282), *range(284, 294), 297, 301}
    | {*range(317, 348), *range(512, 533), 700, 33723, 34377, 34675, 37724}
    | {*range(50706, 51180)}
)
"""Tags of a TIFF that say how its pixels are stored, or what `Metadata` has of its own."""
RESOLUTION = {282, 283, 296}
"""Tags that EXIF has as well."""


class Entry(NamedTuple):
    """A tagged value, in the byte order of its file."""

    tag: int
    kind: int
    number: int
    value: bytes


class Directory(NamedTuple):
    """Entries and the directories below them."""

    entries: tuple[Entry, ...]
    children: Mapping[int, Directory] = MappingProxyType({})


class Layout(NamedTuple):
    """How a TIFF structure is written down."""

    order: str
    """For `struct`: < or >."""
    big: bool = False

    @property
    def number(self) -> str:
        """Format of a directory's number of entries."""
        return self.order + ("Q" if self.big else "H")

    @property
    def entry(self) -> str:
        """Format of an entry, its value or offset aside."""
        return self.order + ("HHQ" if self.big else "HHI")

    @property
    def offset(self) -> str:
        """Format of an offset."""
        return self.order + ("Q" if self.big else "I")


def layout(data: bytes) -> Layout:
    """How a structure is written down. Raises ValueError if it is none."""
    for order, mark in (("<", b"II"), (">", b"MM")):
        for big, version in ((False, 42), (True, 43)):
            if data[:4] == mark + struct.pack(order + "H", version):
                return Layout(order, big)
    raise ValueError("not a TIFF structure")


def directories(data: bytes) -> list[int]:
    """The offset of each picture's directory in a TIFF file. Raises ValueError if it is damaged."""
    form, found = layout(data), list[int]()
    try:
        at = _first(data, form)
        while at and at not in found:
            (count,) = struct.unpack_from(form.number, data, at)
            found.append(at)
            size = struct.calcsize(form.entry) + struct.calcsize(form.offset)
            link = at + struct.calcsize(form.number) + count * size
            (at,) = struct.unpack_from(form.offset, data, link)
    except struct.error:
        pass  # as many as there are
    return found


def directory(data: bytes, at: int) -> Directory:
    """The directory at an offset of a TIFF structure. Raises ValueError if it is damaged."""
    return _directory(data, layout(data), at)


def numbers(data: bytes, at: int, tag: int) -> tuple[int, ...]:
    """The whole numbers of a tag, none if it is not there. Raises ValueError."""
    form = layout(data)
    for entry in _directory(data, form, at).entries:
        if entry.tag == tag and entry.kind in (1, _SHORT, _LONG):
            code = {1: "B", _SHORT: "H", _LONG: "I"}[entry.kind]
            return struct.unpack(f"{form.order}{entry.number}{code}", entry.value)
    return ()


def described(whole: Directory, but: Container[int] = ()) -> Directory:
    """Of a picture's directory what is said in words, not how its pixels are stored."""
    entries = tuple(e for e in whole.entries if e.tag not in _STRUCTURE and e.tag not in but)
    return Directory(entries, whole.children)


def block(directory: Directory, order: str) -> bytes:
    """A directory as an EXIF block."""
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HI", 42, 8) + packed(directory, Layout(order), 8)


def packed(directory: Directory, form: Layout, at: int, after: int = 0) -> bytes:
    """A directory, what it points to and those below it, as it stands at an offset of a file.

    `after` is the offset of the next picture's directory.
    """
    entries = sorted(
        (*directory.entries, *(Entry(tag, _LONG, 1, b"") for tag in directory.children)),
        key=lambda entry: entry.tag,
    )
    room = struct.calcsize(form.offset)
    table = struct.pack(form.number, len(entries))
    end = at + len(table) + len(entries) * (struct.calcsize(form.entry) + room) + room
    tail = b""
    for entry in entries:
        kind, value = entry.kind, entry.value
        if entry.tag in directory.children:
            tail += b"\0" * (-(end + len(tail)) % 8)
            start = end + len(tail)
            tail += packed(directory.children[entry.tag], form, start)
            kind, value = 16 if form.big else _LONG, struct.pack(form.offset, start)
        elif len(value) > room:
            tail += b"\0" * (-(end + len(tail)) % 8)
            start = end + len(tail)
            tail += value
            value = struct.pack(form.offset, start)
        table += struct.pack(form.entry, entry.tag, kind, entry.number) + value.ljust(room, b"\0")
    return table + struct.pack(form.offset, after) + tail


def orientation(exif: bytes) -> int:
    """1 to 8; 1, upright, where nothing sensible is said."""
    try:
        form = layout(exif)
        for at, tag, kind, count in _entries(exif, form, _first(exif, form)):
            if tag == ORIENTATION and kind == _SHORT and count == 1:
                (value,) = struct.unpack_from(form.order + "H", exif, at)
                return int(value) if 1 <= value <= 8 else 1
    except (ValueError, struct.error):
        pass
    return 1


def readable(exif: bytes) -> bool:
    """Whether a block's first directory is whole."""
    try:
        form = layout(exif)
        return not form.big and bool(list(_entries(exif, form, _first(exif, form))))
    except (ValueError, struct.error):
        return False


def upright(exif: bytes, orientation: int) -> bytes:
    """The block of a picture that was turned: its orientation 1, its thumbnail turned along."""
    changed = bytearray(exif)
    try:
        form = layout(exif)
        first = _first(exif, form)
        _reset(changed, form, first)
        _turn_thumbnail(changed, form, first, orientation)
    except (ValueError, struct.error):
        pass
    return bytes(changed)


def sized(exif: bytes, height: int, width: int) -> bytes:
    """The block with the size of the picture wherever it names one."""
    changed = bytearray(exif)
    sizes = {_WIDTH: width, _PIXELS_ACROSS: width, _HEIGHT: height, _PIXELS_DOWN: height}
    try:
        form = layout(exif)
        directories = [_first(exif, form)]
        for directory in directories:
            for at, tag, kind, count in _entries(exif, form, directory):
                if tag in sizes and count == 1:
                    _put(changed, form, at, kind, sizes[tag])
                elif tag == _EXIF and len(directories) == 1:
                    directories.append(struct.unpack_from(form.order + "I", exif, at)[0])
    except (ValueError, struct.error):
        pass
    return bytes(changed)


def _first(data: bytes, form: Layout) -> int:
    return int(struct.unpack_from(form.offset, data, 8 if form.big else 4)[0])


def _entries(data: bytes, form: Layout, at: int) -> list[tuple[int, int, int, int]]:
    """Where the value or its offset is, tag, type and count of each entry of a directory."""
    (count,) = struct.unpack_from(form.number, data, at)
    at += struct.calcsize(form.number)
    head = struct.calcsize(form.entry)
    size = head + struct.calcsize(form.offset)
    if at + count * size > len(data):
        raise ValueError("a directory beyond the end")
    return [
        (at + i * size + head, *struct.unpack_from(form.entry, data, at + i * size))
        for i in range(count)
    ]


def _directory(data: bytes, form: Layout, at: int, depth: int = 0) -> Directory:
    entries, children = [], {}
    room = struct.calcsize(form.offset)
    try:
        found = _entries(data, form, at)
    except struct.error as error:
        raise ValueError("a directory beyond the end") from error
    for place, tag, kind, count in found:
        length = _SIZES.get(kind, 0) * count
        if length > room:
            (start,) = struct.unpack_from(form.offset, data, place)
        else:
            start = place
        if not length or start + length > len(data):
            continue
        if tag in CHILDREN and depth < 2 and length <= room:
            (start,) = struct.unpack_from(
                form.order + {4: "I", 8: "Q"}.get(length, "I"), data, place
            )
            try:
                children[tag] = _directory(data, form, start, depth + 1)
            except ValueError:
                continue  # one broken directory does not spoil the others
        elif kind < 16:
            entries.append(Entry(tag, kind, count, data[start : start + length]))
    return Directory(tuple(entries), children)


def _put(data: bytearray, form: Layout, at: int, kind: int, value: int) -> None:
    """Writes a number over the one of an entry, whose type becomes LONG if it has to."""
    if kind == _SHORT and value < 1 << 16:
        struct.pack_into(form.order + "H", data, at, value)
    elif kind in (_SHORT, _LONG) and not form.big:
        struct.pack_into(form.order + "H", data, at - 6, _LONG)
        struct.pack_into(form.order + "I", data, at, value)


def _reset(data: bytearray, form: Layout, directory: int) -> None:
    """Makes a directory ask for no turn."""
    for at, tag, kind, _ in _entries(bytes(data), form, directory):
        if tag == ORIENTATION:
            _put(data, form, at, kind, 1)


def _turn_thumbnail(data: bytearray, form: Layout, first: int, orientation: int) -> None:
    """Turns the thumbnail of the second directory in its place; what cannot be turned is blanked,
    and its directory unlinked."""
    (count,) = struct.unpack_from(form.number, data, first)
    link = first + struct.calcsize(form.number) + 12 * count
    (second,) = struct.unpack_from(form.offset, data, link)
    if form.big or not second:
        return
    place = {tag: at for at, tag, _, _ in _entries(bytes(data), form, second)}
    turned = None
    if _THUMBNAIL in place and _THUMBNAIL_LENGTH in place:
        (start,) = struct.unpack_from(form.order + "I", data, place[_THUMBNAIL])
        (length,) = struct.unpack_from(form.order + "I", data, place[_THUMBNAIL_LENGTH])
        end = min(start + length, len(data))
        if start < end:
            turned = turned_thumbnail(bytes(data[start:end]), orientation)
            data[start:end] = (turned or b"").ljust(end - start, b"\0")
    if turned is None:
        struct.pack_into(form.offset, data, link, 0)
        return
    struct.pack_into(form.order + "I", data, place[_THUMBNAIL_LENGTH], len(turned))
    _reset(data, form, second)
