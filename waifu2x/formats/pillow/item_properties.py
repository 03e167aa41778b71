"""Adds metadata of HDR10 to an AVIF or HEIF, whose encoders have no arguments for it.

ISO/IEC 14496-12 (boxes, mdcv and clli), 23008-12 (items and their properties). The boxes in front
of the pixels grow, so all places of items are moved.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from waifu2x.formats.headers.boxes import boxes
from waifu2x.formats.limits import Budget
from waifu2x.formats.metadata.code_points import CHROMATICITY, LUMINANCE
from waifu2x.imaging.picture import Hdr


class _Place(NamedTuple):
    """Where a box begins, where its content does, and where it ends."""

    at: int
    start: int
    end: int


def with_hdr(content: bytes, hdr: Hdr) -> bytes:
    """Returns a file of one picture whose primary item has the metadata.

    Raises ValueError for a file that is not as its encoder used to write it.
    """
    added = _boxes(hdr)
    if not added:
        return content
    meta = _child(content, b"meta", 0, len(content))
    inner = meta._replace(start=meta.start + 4)  # behind version and flags
    primary, locations = _in(content, b"pitm", inner), _in(content, b"iloc", inner)
    properties = _in(content, b"iprp", inner)
    known, links = _in(content, b"ipco", properties), _in(content, b"ipma", properties)
    count = sum(1 for _ in boxes(content, known.start, known.end, Budget(len(content))))
    if count + len(added) > 127 or content[primary.start] or content[links.start]:
        raise ValueError("its items have numbers that its encoder did not use to write")
    item = content[primary.start + 4 : primary.start + 6]
    linked = _linked(content, links, item, range(count + 1, count + 1 + len(added)))
    stored = _box(b"ipco", content[known.start : known.end] + b"".join(added))
    if known.end != links.at or links.end != properties.end:
        raise ValueError("its properties have an order that its encoder did not use to write")
    grown = _box(b"iprp", stored + linked)
    moved = len(grown) - (properties.end - properties.at)
    placed = _box(b"iloc", _moved(content[locations.start : locations.end], moved))
    body = content[meta.start : meta.end]
    for place, box in sorted(((properties, grown), (locations, placed)), reverse=True):
        body = body[: place.at - meta.start] + box + body[place.end - meta.start :]
    return content[: meta.at] + _box(b"meta", body) + content[meta.end :]


def _boxes(hdr: Hdr) -> list[bytes]:
    """Returns the properties for the metadata; none for numbers that are too large for them."""
    found = []
    try:
        if hdr.primaries and hdr.luminance:
            red, green, blue, white = (hdr.primaries[at : at + 2] for at in (0, 2, 4, 6))
            display = (round(v * CHROMATICITY) for v in (*green, *blue, *red, *white))
            least, most = (round(value * LUMINANCE) for value in hdr.luminance)
            found.append(_box(b"mdcv", struct.pack(">8H2I", *display, most, least)))
        if hdr.light:
            found.append(_box(b"clli", struct.pack(">2H", *map(round, hdr.light))))
    except struct.error:
        return []
    return found


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + kind + content


def _in(content: bytes, kind: bytes, outer: _Place) -> _Place:
    return _child(content, kind, outer.start, outer.end)


def _child(content: bytes, wanted: bytes, at: int, end: int) -> _Place:
    for kind, start, until in boxes(content, at, end, Budget(len(content))):
        if kind == wanted:
            return _Place(at, start, until)
        at = until
    raise ValueError(f"it has no {wanted.decode()}")


def _linked(content: bytes, links: _Place, item: bytes, numbers: range) -> bytes:
    """Returns an ipma box that gives an item further properties."""
    body = bytearray(content[links.start : links.end])
    wide = body[3] & 1
    (entries,) = struct.unpack_from(">I", body, 4)
    at = 8
    for _ in range(entries):
        end = at + 3 + body[at + 2] * (1 + wide)
        if bytes(body[at : at + 2]) == item:
            body[at + 2] += len(numbers)
            body[end:end] = b"".join(number.to_bytes(1 + wide) for number in numbers)
            return _box(b"ipma", bytes(body))
        at = end
    raise ValueError("its picture has no properties")


def _moved(body: bytes, by: int) -> bytes:
    """Returns the content of an iloc box whose items lie `by` bytes later in the file."""
    version, sizes, more = body[0], body[4], body[5]
    offset, length, base, index = sizes >> 4, sizes & 15, more >> 4, more & 15 if version else 0
    if version > 1 or offset not in (4, 8):
        raise ValueError("its items have places that its encoder did not use to write")
    made = bytearray(body)
    (items,) = struct.unpack_from(">H", made, 6)
    at = 8
    for _ in range(items):
        at += 2
        in_file = True
        if version == 1:
            in_file = made[at + 1] & 15 == 0
            at += 2
        at += 2 + base  # the file's number, and where its extents count from
        (extents,) = struct.unpack_from(">H", made, at)
        at += 2
        for _ in range(extents):
            at += index
            if in_file:
                place = int.from_bytes(made[at : at + offset]) + by
                made[at : at + offset] = place.to_bytes(offset)
            at += offset + length
    return bytes(made)
