"""Reads and packs the tags of TIFF files and EXIF blocks: directories of values at offsets.

TIFF 6.0, section 2; BigTIFF has offsets of 8 bytes; EXIF 2.32, section 4.5.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from waifu2x.formats.limits import MAX_PICTURES, Budget, OverBudgetError
from waifu2x.system.lazy_dataclass import dataclass

EXIF, _GPS, _INTEROPERABILITY = 0x8769, 0x8825, 0xA005
CHILDREN = {EXIF, _GPS, _INTEROPERABILITY}
"""Tags whose value is the offset of a directory."""
SUBFILE_TYPE, WIDTH, HEIGHT, BITS_PER_SAMPLE, COMPRESSION, PHOTOMETRIC = 254, *range(256, 260), 262
SAMPLES_PER_PIXEL, SUB_IFDS = 277, 330
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 282, 283, 296
XMP, IPTC, PHOTOSHOP = 700, 33723, 34377
ICC_PROFILE = 34675
_STRUCTURE = frozenset(
    {*range(254, 269), 273, *range(277, 282), *range(284, 294), 297, 301}
    | {*range(317, 348), *range(512, 533), XMP, IPTC, PHOTOSHOP, ICC_PROFILE, 37724}
    | {*range(50706, 51180)}
)
"""Tags of a TIFF that say how its pixels are stored, or that `Metadata` has fields for."""
RESOLUTION = frozenset((X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT))
"""Tags of a TIFF that EXIF has as well."""
REDUCED = 1
"""A flag of SUBFILE_TYPE: the picture is a smaller one of another page."""
SHORT, LONG = 3, 4
_BYTE, _IFD, _LONG8, _IFD8 = 1, 13, 16, 18
_SIZES = {_BYTE: 1, 2: 1, SHORT: 2, LONG: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
_SIZES |= {_IFD: 4, _LONG8: 8, 17: 8, _IFD8: 8}
"""Bytes of a value, by its type; the last three are BigTIFF's."""
_CODES = {_BYTE: "B", SHORT: "H", LONG: "I", _IFD: "I", _LONG8: "Q", _IFD8: "Q"}
"""`struct` formats of whole numbers, by their type."""
_DEEPEST = 2
"""Levels of directories below a picture's own that are read."""
_NUMBERS = 1024
"""The most whole numbers of a tag that are read."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tagged value, in the byte order of its file."""

    number: int
    kind: int
    """TIFF's code for the type of its values."""
    count: int
    """The number of values."""
    value: bytes


class Directory(NamedTuple):
    """Tags, and the directories below them by the tag that leads to each."""

    tags: tuple[Tag, ...]
    children: Mapping[int, Directory] = MappingProxyType({})


class TiffLayout(NamedTuple):
    """How a TIFF structure is encoded."""

    order: str
    """Byte order as `struct` has it: < or >."""
    big: bool = False
    """Whether it is BigTIFF, whose counts and offsets have 8 bytes."""

    @property
    def number(self) -> str:
        """`struct` format of a directory's number of entries."""
        return self.order + ("Q" if self.big else "H")

    @property
    def entry(self) -> str:
        """`struct` format of an entry up to its value or offset: tag, type and count."""
        return self.order + ("HHQ" if self.big else "HHI")

    @property
    def offset(self) -> str:
        """`struct` format of an offset."""
        return self.order + ("Q" if self.big else "I")

    @property
    def room(self) -> int:
        """Bytes of an offset; a value of no more bytes stands in its place."""
        return 8 if self.big else 4

    @property
    def size(self) -> int:
        """Bytes of an entry."""
        return 20 if self.big else 12


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of a directory, and the offset of its value."""

    at: int
    """Where its value or the offset of its value stands."""
    tag: int
    kind: int
    count: int


def layout(data: bytes) -> TiffLayout:
    """Returns the encoding of a structure. Raises ValueError if it is not a TIFF structure."""
    for order, mark in (("<", b"II"), (">", b"MM")):
        for big, version in ((False, 42), (True, 43)):
            if data[:4] == mark + struct.pack(order + "H", version):
                return TiffLayout(order, big)
    raise ValueError("not a TIFF structure")


def first(data: bytes, form: TiffLayout) -> int:
    """Returns the offset of the first directory. Raises struct.error if it is cut off."""
    return int(struct.unpack_from(form.offset, data, 8 if form.big else 4)[0])


def following(data: bytes, form: TiffLayout, at: int) -> int:
    """Returns where a directory's link to the next one is. Raises struct.error if it is cut off."""
    (count,) = struct.unpack_from(form.number, data, at)
    return int(at + struct.calcsize(form.number) + count * form.size)


def pages(data: bytes, budget: Budget) -> list[int]:
    """Returns the offset of each picture's directory in a TIFF file.

    Visits every entry: none may claim more than the file can hold, so that other readers are safe.
    Raises ValueError if the file is no TIFF, and OverBudgetError.
    """
    form, found = layout(data), dict[int, None]()
    try:
        at = first(data, form)
        while at and at not in found:
            if len(found) == MAX_PICTURES:
                raise OverBudgetError(f"it has more than the {MAX_PICTURES} pages that are read")
            budget.visit()
            found[at] = None
            check(data, form, at, budget)
            (at,) = struct.unpack_from(form.offset, data, following(data, form, at))
    except (ValueError, struct.error):
        pass  # those before the damage
    return list(found)


def check(data: bytes, form: TiffLayout, at: int, budget: Budget) -> None:
    """Takes all values of the directory at an offset from the budget.

    Raises ValueError if it is beyond the end, and OverBudgetError.
    """
    for place in places(data, form, at, budget):
        length = _SIZES.get(place.kind, 0) * place.count
        if length <= len(data):
            budget.copy(length)


def places(data: bytes, form: TiffLayout, at: int, budget: Budget) -> Iterator[Place]:
    """Yields the entries of the directory at an offset.

    Raises ValueError if it is beyond the end, and OverBudgetError.
    """
    first = at + struct.calcsize(form.number)
    if first > len(data):
        raise ValueError("a directory beyond the end")
    (count,) = struct.unpack_from(form.number, data, at)
    end, head = first + count * form.size, form.size - form.room
    if end > len(data):
        raise ValueError("a directory beyond the end")
    budget.visit(count)
    for start in range(first, end, form.size):
        yield Place(start + head, *struct.unpack_from(form.entry, data, start))


def numbers(
    data: bytes, at: int, wanted: Collection[int], budget: Budget
) -> dict[int, tuple[int, ...]]:
    """Returns the whole numbers of the wanted tags that the directory at an offset has.

    Tags without any are left out. Raises ValueError if the directory is damaged, and
    OverBudgetError.
    """
    form, found = layout(data), {}
    try:
        for place in places(data, form, at, budget):
            code = _CODES.get(place.kind)
            if place.tag in wanted and code and 0 < place.count <= _NUMBERS:
                start = _start(data, form, place)
                values = struct.unpack_from(f"{form.order}{place.count}{code}", data, start)
                found[place.tag] = values
    except (struct.error, OverflowError) as error:  # offsets of 64 bits are beyond any place
        raise ValueError("a directory beyond the end") from error
    return found


def values(data: bytes, at: int, wanted: Collection[int], budget: Budget) -> dict[int, bytes]:
    """Returns the values of the wanted tags that the directory at an offset has.

    Raises as `numbers` does.
    """
    form = layout(data)
    found = places(data, form, at, budget)
    read = (_tag(data, form, place, budget) for place in found if place.tag in wanted)
    return {tag.number: tag.value for tag in read if tag}


def described(data: bytes, at: int, budget: Budget, but: Collection[int] = ()) -> Directory:
    """Returns the tags of the directory at an offset but `but` and those of how pixels are stored.

    Raises as `numbers` does.
    """
    return _described(data, layout(data), at, budget, but, 0)


def _described(
    data: bytes, form: TiffLayout, at: int, budget: Budget, but: Collection[int], depth: int
) -> Directory:
    found: list[Tag] = []
    children = {}
    for place in places(data, form, at, budget):
        if depth == 0 and (place.tag in _STRUCTURE or place.tag in but):
            continue
        tag = _tag(data, form, place, budget)
        if tag is None:
            continue
        if tag.number in CHILDREN and depth < _DEEPEST and len(tag.value) <= form.room:
            code = "Q" if len(tag.value) == 8 else "I"
            (start,) = struct.unpack_from(form.order + code, tag.value.ljust(8, b"\0"))
            try:
                below = _described(data, form, start, budget, but, depth + 1)
            except ValueError:
                continue  # one broken directory does not spoil the others
            children[tag.number] = below
        elif tag.kind < _LONG8:
            found.append(tag)
    return Directory(tuple(found), children)


def _tag(data: bytes, form: TiffLayout, place: Place, budget: Budget) -> Tag | None:
    """Returns the tag of an entry; None if it has no value, or one beyond the end."""
    length = _SIZES.get(place.kind, 0) * place.count
    start = _start(data, form, place)
    if not length or start + length > len(data):
        return None
    budget.copy(length)
    return Tag(place.tag, place.kind, place.count, data[start : start + length])


def _start(data: bytes, form: TiffLayout, place: Place) -> int:
    """Returns where the value of an entry starts."""
    if _SIZES.get(place.kind, 0) * place.count <= form.room:
        return place.at
    return int(struct.unpack_from(form.offset, data, place.at)[0])


def block(directory: Directory, order: str) -> bytes:
    """Returns a directory as an EXIF block, in the byte order < or >."""
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HI", 42, 8) + packed(directory, TiffLayout(order), 8)


def packed(directory: Directory, form: TiffLayout, at: int, after: int = 0) -> bytes:
    """Returns a directory with its values and the directories below it, placed at offset `at`.

    `after` is the offset of the next picture's directory.
    """
    entries = sorted(
        (*directory.tags, *(Tag(tag, LONG, 1, b"") for tag in directory.children)),
        key=lambda tag: tag.number,
    )
    table = bytearray(struct.pack(form.number, len(entries)))
    end = at + len(table) + len(entries) * form.size + form.room
    tail = bytearray()
    for tag in entries:
        kind, value = tag.kind, tag.value
        is_child = tag.number in directory.children
        if is_child or len(value) > form.room:
            tail += bytes(-(end + len(tail)) % 8)
            start = end + len(tail)
            if is_child:
                kind = _LONG8 if form.big else LONG
                value = packed(directory.children[tag.number], form, start)
            tail += value
            value = struct.pack(form.offset, start)
        table += struct.pack(form.entry, tag.number, kind, tag.count)
        table += value.ljust(form.room, b"\0")
    return bytes(table + struct.pack(form.offset, after) + tail)
