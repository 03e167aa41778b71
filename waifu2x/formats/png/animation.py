"""Checks whether the animation of a PNG is whole; of a damaged one, the first picture is read.

PNG 3, sections 4.9 (sequence numbers) and 11.3.6 (chunks).
"""

from __future__ import annotations

import struct

from waifu2x.formats.png import chunks

DAMAGED = "its animation is damaged: only its first picture is read"
_CHUNKS = (b"acTL", b"fcTL", b"fdAT")
_CONTROL = 26
"""Bytes of a frame's control chunk."""


def still(data: bytes) -> bytes:
    """Returns a PNG without its animation."""
    return chunks.without(data, _CHUNKS)


def is_damaged(data: bytes) -> bool:
    """Returns whether a PNG declares an animation whose frames are not what they should be.

    Raises OverBudgetError.
    """
    places = list(chunks.places(data))
    kinds = [kind for kind, _, _ in places]
    if b"acTL" not in kinds or b"IDAT" not in kinds:
        return False
    if kinds.index(b"acTL") > kinds.index(b"IDAT"):
        return False  # then it is none
    try:
        return not _is_whole(data, places)
    except struct.error:
        return True


def _is_whole(data: bytes, places: list[chunks.Place]) -> bool:
    width, height = struct.unpack_from(">II", data, places[0][1])
    frames, number, declared = 0, 0, 0
    has_data = True
    """Whether the last frame has data."""
    seen_pixels = False
    for place in places:
        kind, start, end = place
        if kind == b"IDAT":
            has_data = seen_pixels = True
        if kind not in _CHUNKS:
            continue
        if not chunks.sound(data, place):
            return False
        if kind == b"acTL":
            if declared:
                return False
            declared, _ = struct.unpack_from(">II", data[start:end])
            continue
        if struct.unpack_from(">I", data[start : min(end, start + 4)])[0] != number:
            return False
        number += 1
        if kind == b"fdAT":
            if not (frames and seen_pixels):
                return False
            has_data = True
        elif not has_data or end - start != _CONTROL:
            return False
        else:
            across, down, left, top = struct.unpack_from(">4I", data, start + 4)
            whole = (left, top, across, down) == (0, 0, width, height)
            inside = left + across <= width and top + down <= height and across and down
            if not inside or not (whole or seen_pixels):
                return False
            frames, has_data = frames + 1, False
    return 0 < declared == frames and has_data
