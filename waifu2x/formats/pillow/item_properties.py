"""Adds properties and metadata of its picture to an AVIF or HEIF, whose encoder has no arguments
for them.

ISO/IEC 14496-12 (boxes, mdcv and clli), 23008-12 (items and their properties). The boxes in front
of the pixels grow, so all places of items are moved.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
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


class Item(NamedTuple):
    """Metadata of a picture: the end of its infe box, which has its type, and its content."""

    kind: bytes
    content: bytes


def with_hdr(content: bytes, hdr: Hdr) -> bytes:
    """Returns a file of one picture whose primary item has the metadata.

    Raises ValueError for a file that is not as its encoder used to write it.
    """
    return grown(content, _boxes(hdr))


def grown(content: bytes, properties: Sequence[bytes], items: Sequence[Item] = ()) -> bytes:
    """Returns a file of one picture whose primary item has further properties, boxes each, and
    further items that describe it; their contents follow at the end.

    Raises ValueError for a file that is not as its encoder used to write it.
    """
    if not (properties or items):
        return content
    meta = _child(content, b"meta", 0, len(content))
    inside = Budget(len(content))
    parts = {
        kind: content[start:end]
        for kind, start, end in boxes(content, meta.start + 4, meta.end, inside)
    }
    primary = parts[b"pitm"]
    if primary[0]:
        raise ValueError("its items have numbers that its encoder did not use to write")
    item = primary[4:6]
    made = dict(parts)
    if properties:
        made[b"iprp"] = _with_properties(parts[b"iprp"], properties, item)
    if items:
        (count,) = struct.unpack_from(">H", parts[b"iinf"], 4)
        numbers = range(count + 1, count + 1 + len(items))
        made[b"iinf"] = _with_infos(parts[b"iinf"], items, numbers)
        references = parts.get(b"iref", bytes(4))
        made[b"iref"] = references + b"".join(
            box(b"cdsc", struct.pack(">2H", number, 1) + item) for number in numbers
        )
        made[b"iloc"] = _with_places(parts[b"iloc"], items, numbers, len(content) + 8)
    version = content[meta.start : meta.start + 4]
    boxed = box(b"meta", version + b"".join(box(*part) for part in made.items()))
    moved = len(boxed) - (meta.end - meta.at)
    made[b"iloc"] = _moved(made[b"iloc"], moved)
    boxed = box(b"meta", version + b"".join(box(*part) for part in made.items()))
    added = box(b"mdat", b"".join(each.content for each in items)) if items else b""
    return content[: meta.at] + boxed + content[meta.end :] + added


def _with_properties(held: bytes, properties: Sequence[bytes], item: bytes) -> bytes:
    """Returns the content of an iprp box that gives an item further properties."""
    known, links = (_child(held, kind, 0, len(held)) for kind in (b"ipco", b"ipma"))
    count = sum(1 for _ in boxes(held, known.start, known.end, Budget(len(held))))
    if count + len(properties) > 127 or held[links.start]:
        raise ValueError("its items have numbers that its encoder did not use to write")
    if known.end != links.at or links.end != len(held):
        raise ValueError("its properties have an order that its encoder did not use to write")
    linked = _linked(held, links, item, range(count + 1, count + 1 + len(properties)))
    return box(b"ipco", held[known.start : known.end] + b"".join(properties)) + linked


def _with_infos(held: bytes, items: Sequence[Item], numbers: range) -> bytes:
    """Returns the content of an iinf box that knows further items."""
    if held[0]:
        raise ValueError("its items have numbers that its encoder did not use to write")
    entries = b"".join(
        box(b"infe", struct.pack(">I2H", 2 << 24, number, 0) + each.kind)
        for number, each in zip(numbers, items, strict=True)
    )
    return held[:4] + struct.pack(">H", numbers.stop - 1) + held[6:] + entries


def _with_places(held: bytes, items: Sequence[Item], numbers: range, at: int) -> bytes:
    """Returns the content of an iloc box of further items, which lie one after the other from `at`
    on."""
    if held[0] or held[4:6] != b"\x44\0":
        raise ValueError("its items have places that its encoder did not use to write")
    entries = []
    for number, each in zip(numbers, items, strict=True):
        entries.append(struct.pack(">3H2I", number, 0, 1, at, len(each.content)))
        at += len(each.content)
    return held[:6] + struct.pack(">H", numbers.stop - 1) + held[8:] + b"".join(entries)


def _boxes(hdr: Hdr) -> list[bytes]:
    """Returns the properties for the metadata; none for numbers that are too large for them."""
    found = []
    try:
        if hdr.primaries and hdr.luminance:
            red, green, blue, white = (hdr.primaries[at : at + 2] for at in (0, 2, 4, 6))
            display = (round(v * CHROMATICITY) for v in (*green, *blue, *red, *white))
            least, most = (round(value * LUMINANCE) for value in hdr.luminance)
            found.append(box(b"mdcv", struct.pack(">8H2I", *display, most, least)))
        if hdr.light:
            found.append(box(b"clli", struct.pack(">2H", *map(round, hdr.light))))
    except struct.error:
        return []
    return found


def box(kind: bytes, content: bytes) -> bytes:
    """Returns a box of a kind and its content."""
    return struct.pack(">I", 8 + len(content)) + kind + content


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
            return box(b"ipma", bytes(body))
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
