"""Reads what a PSD file says of its channels and layers.

Adobe Photoshop File Formats Specification (2019): file header, image resources, layer information.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from waifu2x.formats.limits import Budget

SIGNATURE = b"8BPS"
RGB, MULTICHANNEL = 3, 7
_COLOURS = {0: 1, 1: 1, 2: 1, 3: 3, 4: 4, 8: 1, 9: 3}
"""Channels of the colours, by the number of the mode."""
_VERSION = 1057
"""The resource whose fifth byte says whether there is a merged picture."""
RESOLUTION, IPTC, EXIF, XMP = 1005, 1028, 1058, 1060
"""Resources that are metadata."""


class PsdHeader(NamedTuple):
    """The header of a file, and what it holds besides its merged picture."""

    version: int
    """1; 2 for large documents (PSB)."""
    bits: int
    mode: int
    """RGB, MULTICHANNEL, which has no meaning as colours, or another."""
    is_merged: bool
    """Whether the merged picture is one, and not left blank."""
    layers: int
    transparent: bool
    """Whether the first channel behind the colours is what is opaque in the merged picture."""
    channels: int
    """Channels that are neither: saved selections and spot colours."""


def read(data: bytes) -> PsdHeader | None:
    """Returns the header of a file that begins with SIGNATURE; None if it is cut off.

    Raises OverBudgetError.
    """
    try:
        version, channels, _, _, bits, mode = struct.unpack_from(">H6xHIIHH", data, 4)
        (length,) = struct.unpack_from(">I", data, 26)
        at = 30 + length
        (length,) = struct.unpack_from(">I", data, at)
        version_info = _resources(data, at + 4, at + 4 + length).get(_VERSION, b"")
        at += 4 + length
        wide = "Q" if version == 2 else "I"
        (length,) = struct.unpack_from(">" + wide, data, at)
        count = 0
        if length:
            at += struct.calcsize(wide)
            (info,) = struct.unpack_from(">" + wide, data, at)
            if info:
                (count,) = struct.unpack_from(">h", data, at + struct.calcsize(wide))
    except struct.error:
        return None
    further = channels - _COLOURS.get(mode, channels)
    transparent = count < 0 and further > 0
    return PsdHeader(
        version,
        bits,
        mode,
        version_info[4:5] != b"\0",
        abs(count),
        transparent,
        max(0, further - transparent),
    )


def is_transparent(data: bytes) -> bool:
    """Returns whether the merged picture has transparency. Raises OverBudgetError."""
    header = read(data)
    return header is not None and header.transparent


def resources(data: bytes) -> dict[int, bytes]:
    """Returns the contents of a file's image resources by their numbers, up to one that is damaged.

    Of several of one number, the first counts. Raises OverBudgetError.
    """
    try:
        at = 30 + int(struct.unpack_from(">I", data, 26)[0])
        (length,) = struct.unpack_from(">I", data, at)
        return _resources(data, at + 4, at + 4 + length)
    except struct.error:
        return {}


def _resources(data: bytes, at: int, end: int) -> dict[int, bytes]:
    budget, found = Budget(len(data)), dict[int, bytes]()
    while at + 12 <= end and data[at : at + 4] == b"8BIM":
        budget.visit()
        kind, named = struct.unpack_from(">HB", data, at + 4)
        at += 6 + named + 1 + (named + 1) % 2
        (length,) = struct.unpack_from(">I", data, at)
        found.setdefault(kind, data[at + 4 : at + 4 + length])
        at += 4 + length + length % 2
    return found
