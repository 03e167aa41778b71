"""Reads which pictures and other parts a file of HEIF's structure holds: HEIC, AVIF.

ISO/IEC 14496-12 for boxes, ISO/IEC 23008-12 for items, 6.5.8 for auxiliary pictures; ISO 21496-1
for gain maps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from waifu2x.formats.headers.boxes import Box, boxes
from waifu2x.formats.limits import Budget

AVIF = frozenset((b"avif", b"avis"))
OF_HEVC = frozenset((b"heic", b"heix", b"hevc", b"hevx"))
HEIF = OF_HEVC | {b"mif1", b"msf1"}
"""Brands of files that pillow-heif reads, unless they are AVIF's as well."""
_CODED = frozenset(
    (b"hvc1", b"av01", b"avc1", b"jpeg", b"j2k1", b"vvc1", b"unci", b"grid", b"iden", b"iovl")
)
"""Types of items that are pictures."""
_GAIN_MAP = b"tmap"
_ALPHA = (b":auxid:1", b"auxiliary:alpha")
_DEPTH = (b":auxid:2", b"auxiliary:depth", b"depth")
_MOST_BRANDS = 64
_NOTHING: Box = (b"", 0, 0)


def brands(data: bytes) -> frozenset[bytes]:
    """Returns the brands of a file, the major one and those that it is compatible with."""
    if data[4:8] != b"ftyp":
        return frozenset()
    end = min(int.from_bytes(data[:4], "big"), len(data), 16 + 4 * _MOST_BRANDS)
    return frozenset(data[at : at + 4] for at in (8, *range(16, end - 3, 4)))


def parts(data: bytes) -> dict[str, int]:
    """Returns the numbers of the parts besides the primary picture, by their kinds in the table.

    Raises OverBudgetError. What is damaged is left out.
    """
    budget, found = Budget(len(data)), dict[str, int]()
    for kind, start, end in boxes(data, 0, len(data), budget):
        if kind == b"meta":
            try:
                found |= _of_items(data, start, end, budget)
            except (struct.error, IndexError):
                continue
        elif kind == b"mpvd":  # a motion photo
            found["film"] = 1
        elif kind == b"moov":
            found |= _of_tracks(data, start, end, budget)
            if not brands(data) & AVIF:  # an AVIF's is read
                found["animation"] = 1
    return found


def _of_tracks(data: bytes, start: int, end: int, budget: Budget) -> dict[str, int]:
    sounds = 0
    for track, start_of_track, end_of_track in boxes(data, start, end, budget):
        for media, at, until in boxes(data, start_of_track, end_of_track, budget):
            if track == b"trak" and media == b"mdia":
                sounds += any(
                    kind == b"hdlr" and data[place + 8 : place + 12] == b"soun"
                    for kind, place, _ in boxes(data, at, until, budget)
                )
    return {"sound": sounds} if sounds else {}


def _of_items(data: bytes, start: int, end: int, budget: Budget) -> dict[str, int]:
    """Returns the parts among a file's items. Raises struct.error, IndexError, OverBudgetError."""
    known = {box[0]: box for box in boxes(data, start + 4, end, budget)}
    items = dict(_items(data, known.get(b"iinf", _NOTHING), budget))
    shown = {item for item, kind in items.items() if kind in _CODED}
    referred = list(_references(data, known.get(b"iref", _NOTHING), budget))
    for kind, item, others in referred:
        if kind in (b"auxl", b"thmb"):
            shown.discard(item)
        elif kind == b"dimg":
            # The parts of a grid; of a gain map's result, the picture itself and the map.
            base = others[0] if items.get(item) == _GAIN_MAP else None
            shown -= {other for other in others if other != base}
    found: dict[str, int] = {"further pictures": max(0, len(shown) - 1)}
    for kind in _auxiliary(data, known.get(b"iprp", _NOTHING), budget):
        if b"hdrgainmap" in kind:
            found["gain map"] = 1
        elif any(word in kind for word in _DEPTH):
            found["depth map"] = 1
        elif not any(word in kind for word in _ALPHA):
            found["masks"] = found.get("masks", 0) + 1
    if _GAIN_MAP in items.values():
        found["gain map"] = 1
    return {kind: count for kind, count in found.items() if count}


def _items(data: bytes, box: Box, budget: Budget) -> Iterator[tuple[int, bytes]]:
    """Yields number and type of the items that are not hidden."""
    _, start, end = box
    if not end:
        return
    for kind, at, _ in boxes(data, start + (6 if data[start] == 0 else 8), end, budget):
        version, hidden = data[at], data[at + 3] & 1
        if kind == b"infe" and version >= 2 and not hidden:
            yield struct.unpack_from(">H2x4s" if version == 2 else ">I2x4s", data, at + 4)


def _references(
    data: bytes, box: Box, budget: Budget
) -> Iterator[tuple[bytes, int, tuple[int, ...]]]:
    """Yields references as their kind, the item that refers, and those that it refers to."""
    _, start, end = box
    if not end:
        return
    code = "I" if data[start] else "H"
    size = struct.calcsize(code)
    for kind, at, _ in boxes(data, start + 4, end, budget):
        item, count = struct.unpack_from(f">{code}H", data, at)
        budget.visit(count)
        yield kind, item, struct.unpack_from(f">{count}{code}", data, at + size + 2)


def _auxiliary(data: bytes, box: Box, budget: Budget) -> Iterator[bytes]:
    """Yields the types of auxiliary pictures."""
    _, start, end = box
    for group, at, until in boxes(data, start, end, budget):
        if group == b"ipco":
            for kind, place, behind in boxes(data, at, until, budget):
                if kind == b"auxC":
                    yield data[place + 4 : behind]
