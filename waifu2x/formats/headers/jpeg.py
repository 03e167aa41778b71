"""Reads the segments of a JPEG up to its coded samples. ISO/IEC 10918-1, annex B."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from waifu2x.formats.limits import Budget, OverBudgetError

START = b"\xff\xd8\xff"
"""The first bytes of a file."""
_MOST_SCANS = 500
"""Passes over the pixels of a progressive picture: each takes as long as its size says."""
_PROGRESSIVE, _END, SCAN, _FILL = 0xC2, 0xD9, 0xDA, 0xFF
JPEG_LS = 0xF7 - 0xC0
_FRAMES = frozenset((*range(0xC0, 0xD0), 0xF7)) - {0xC4, 0xC8, 0xCC}
"""Markers of frames; the number behind 0xC0 is that of the process."""
_BARE = (0x00, 0x01, *range(0xD0, 0xD9))
"""Markers without a length."""
_MARKER = rb"\xff[^\x00\xd0-\xd7\xff]"
"""The marker that ends the coded data of a scan."""


class Segment(NamedTuple):
    """A segment, by its marker and the offsets at which its content starts and ends."""

    marker: int
    start: int
    end: int


class Frame(NamedTuple):
    """The header of a frame."""

    process: int
    """0 to 2 are usual; 3 is lossless; 5 to 7 and 13 to 15 are hierarchical."""
    bits: int
    height: int
    width: int
    planes: int
    at: int
    """The offset of the byte that names the bits."""


def segments(data: bytes) -> Iterator[Segment]:
    """Yields the segments up to the coded samples, all of them in a progressive file.

    Raises OverBudgetError for more segments or scans, or longer gaps, than sound files have.
    """
    budget, scans, progressive = Budget(len(data)), 0, False
    at = 2
    while at + 4 <= len(data):
        budget.visit()
        if data[at] != _FILL:
            at = data.find(b"\xff", at)
            if at < 0:
                return
            continue
        marker = data[at + 1]
        if marker == _FILL:
            at += 1
            continue
        if marker == _END:
            return
        if marker in _BARE:
            at += 2
            continue
        start, at = at + 4, at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        yield Segment(marker, start, at)
        progressive |= marker == _PROGRESSIVE
        if marker == SCAN:
            scans += 1
            if scans > _MOST_SCANS:
                raise OverBudgetError(f"it has more than the {_MOST_SCANS} scans that are read")
            found = re.compile(_MARKER).search(data, at) if progressive else None
            if found is None:
                return
            at = found.start()


def frame(data: bytes) -> Frame | None:
    """Returns the header of the first frame; None without one. Raises OverBudgetError."""
    for marker, start, end in segments(data):
        if marker in _FRAMES and start + 6 <= len(data):
            bits, height, width, planes = struct.unpack_from(">BHHB", data, start)
            return Frame(marker - 0xC0, bits, height, width, planes, start)
        if marker == SCAN or end > len(data):
            break
    return None


def behind_header(data: bytes) -> int:
    """Returns the offset at which the first coded samples begin. Raises OverBudgetError."""
    return next((segment.end for segment in segments(data) if segment.marker == SCAN), 0)
