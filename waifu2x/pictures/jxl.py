"""How large a JPEG XL picture is, by its header: its plugin decodes whatever it opens.

ISO/IEC 18181-1, annex D.2 (SizeHeader), and 18181-2, clause 9 (boxes).
"""

from __future__ import annotations

import struct

_BARE = b"\xff\x0a"
_BITS = (9, 13, 18, 30)
_RATIOS = ((0, 1), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
"""Width to height, by the header's number for it; 0: the width is named."""


def size(data: bytes) -> tuple[int, int]:
    """Width and height. Raises ValueError if there is no header."""
    stream = data if data.startswith(_BARE) else _codestream(data)
    bits = int.from_bytes(stream[2:16].ljust(14, b"\0"), "little")

    def take(count: int) -> int:
        nonlocal bits
        value = bits & ((1 << count) - 1)
        bits >>= count
        return value

    small = take(1)

    def side() -> int:
        return 8 * (take(5) + 1) if small else take(_BITS[take(2)]) + 1

    height = side()
    across, down = _RATIOS[take(3)]
    return (height * across // down if across else side()), height


def _codestream(data: bytes) -> bytes:
    """The start of what the boxes of a container hold."""
    at = 0
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        head = 8
        if length == 1 and at + 16 <= len(data):
            (length,) = struct.unpack_from(">Q", data, at + 8)
            head = 16
        if kind in (b"jxlc", b"jxlp"):
            start = at + head + (4 if kind == b"jxlp" else 0)
            if data[start : start + 2] == _BARE:
                return data[start : start + 16]
        if length < head:
            break
        at += length
    raise ValueError("no codestream")
