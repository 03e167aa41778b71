"""Finds what a JPEG holds besides its picture: gain maps, films, sounds, further pictures.

CIPA DC-007 (Multi-Picture Format), clause 5.2; Adobe's XMP Specification, part 3, 1.1.3 (extended
XMP); Google's Motion Photo 1.0 and Ultra HDR 1.1; ISO 21496-1.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from typing import NamedTuple

from waifu2x.formats.headers import jpeg
from waifu2x.formats.limits import Budget
from waifu2x.formats.metadata import tags

_XMP, _EXTENDED_XMP = b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
_MPF, _ENTRIES = b"MPF\0", 0xB002
_PREVIEWS = (0x010001, 0x010002)
"""Kinds of pictures that show the first one in a smaller size."""
_ENTRY = struct.Struct(">IIIHH"), struct.Struct("<IIIHH")
_KIND = 0xFFFFFF
_HEAD = 1 << 16
"""Bytes of a further picture that say what it is."""
_GAIN_MAPS = (b"hdrgm:", b"hdrgainmap", b"urn:iso:std:iso:ts:21496")
_DEPTHS = (b"depth", b"disparity")
_MATTES = (b"matte",)
_SAID: tuple[tuple[str, bytes], ...] = (
    ("gain map", rb"""Item:Semantic\s*=\s*["']GainMap["']"""),
    ("depth map", rb"""GDepth:Mime|Item:Semantic\s*=\s*["']Depth["']"""),
    ("sound", rb"GAudio:Mime"),
)
"""Parts by what XMP says of them."""
_FILM = rb"MotionPhoto\w*\s*=|MicroVideo\w*\s*=|Item:Semantic\s*=\s*[\"']MotionPhoto"
_SAMSUNG_FILM = b"MotionPhoto_Data"


class _Found(NamedTuple):
    """The segments that tell of parts."""

    xmp: bytes
    extended: int
    """The number of segments of extended XMP."""
    pictures: int | None
    """The offset of the table of pictures (MPF)."""
    behind: int
    """The offset behind the last segment."""


def parts(data: bytes) -> dict[str, int]:
    """Returns the numbers of a JPEG's parts besides its picture, by their kinds in the table.

    What XMP alone promises, and the file lacks, is not among them. Raises OverBudgetError.
    """
    found = _segments(data)
    kinds = Counter[str]()
    if found.pictures is not None:
        kinds += _of_pictures(data, found.pictures)
    if found.extended:
        kinds["extended XMP"] = 1
    further = data.find(jpeg.START, found.behind) >= 0
    for kind, pattern in _SAID:
        present = further if kind == "gain map" else found.extended or further
        if not kinds[kind] and present and re.search(pattern, found.xmp):
            kinds[kind] = 1
    told = re.search(_FILM, found.xmp) and data.find(b"ftyp", found.behind) >= 0
    if told or data.find(_SAMSUNG_FILM, found.behind) >= 0:
        kinds["film"] = 1
    return {kind: count for kind, count in kinds.items() if count}


def _segments(data: bytes) -> _Found:
    xmp, extended, pictures, behind = b"", 0, None, 0
    for marker, start, end in jpeg.segments(data):
        behind = end
        if marker == 0xE1 and data.startswith(_XMP, start):
            xmp = data[start + len(_XMP) : end]
        elif marker == 0xE1 and data.startswith(_EXTENDED_XMP, start):
            extended += 1
        elif marker == 0xE2 and data.startswith(_MPF, start):
            pictures = start + len(_MPF)
        elif marker == jpeg.SCAN:
            break
    return _Found(xmp, extended, pictures, behind)


def _of_pictures(data: bytes, at: int) -> Counter[str]:
    """Returns the further pictures of a table at an offset, from which its own offsets count."""
    kinds, budget = Counter[str](), Budget(len(data))
    block = data[at : at + _HEAD]
    try:
        form = tags.layout(block)
        first = tags.first(block, form)
        table = tags.values(block, first, (_ENTRIES,), budget).get(_ENTRIES, b"")
    except (ValueError, struct.error):
        return kinds
    entry = _ENTRY[form.order == "<"]
    for start in range(entry.size, len(table) - entry.size + 1, entry.size):
        kind, _, offset, _, _ = entry.unpack_from(table, start)
        head = data[at + offset : at + offset + _HEAD]
        if kind & _KIND not in _PREVIEWS and head.startswith(jpeg.START):
            kinds[_kind_of(head)] += 1
    return kinds


def _kind_of(picture: bytes) -> str:
    for kind, words in (("gain map", _GAIN_MAPS), ("depth map", _DEPTHS), ("masks", _MATTES)):
        if any(word in picture for word in words):
            return kind
    return "further pictures"
