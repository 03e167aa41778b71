"""Reads size and depth of a JPEG XL from its header: its plugin decodes any file that it opens.

ISO/IEC 18181-1, annex D.2 (SizeHeader) and D.3 (ImageMetadata), and 18181-2, clause 9 (boxes).
"""

from __future__ import annotations

from waifu2x.formats.headers.boxes import boxes
from waifu2x.formats.limits import Budget

_BARE = b"\xff\x0a"
_BITS = (9, 13, 18, 30)
_RATIOS = ((0, 1), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
"""Ratios of width to height, by the header's number for them; 0 means that the width is named."""
_DEPTHS = (8, 10, 12, 0)
"""Bits of a sample, by the header's number for them; 0 means that they are named."""
_PACKED = b"brob"
"""A box whose content is packed by Brotli, behind its own kind."""
_MOST_UNPACKED = 1 << 24
"""Bytes to which such content may unpack."""
_LONGEST = 32
"""Bytes that hold two sizes and what comes before the depth."""


def is_jxl(data: bytes) -> bool:
    """Returns whether a file begins as JPEG XL does, bare or in boxes."""
    return data[:2] == _BARE or data[4:12] == b"JXL \r\n\x87\n"


def size(data: bytes) -> tuple[int, int]:
    """Returns width and height. Raises ValueError without a header, and OverBudgetError."""
    return _BitReader(data).size()


def depth(data: bytes) -> int:
    """Returns bits of a sample; 8 for floats, animations and files with a preview.

    Raises ValueError without a header, and OverBudgetError.
    """
    header = _BitReader(data)
    header.size()
    if header.take(1):
        return 8  # all default
    if header.take(1):
        header.take(3)
        if header.take(1):
            header.size()
        if header.take(2):
            return 8
    if header.take(1):
        return 8
    usual = _DEPTHS[header.take(2)]
    return usual or header.take(6) + 1


def is_animated(data: bytes) -> bool:
    """Returns whether further pictures follow.

    Raises ValueError without a header, and OverBudgetError.
    """
    header = _BitReader(data)
    header.size()
    if header.take(1) or not header.take(1):
        return False
    header.take(3)
    if header.take(1):
        header.size()
    return header.take(2) == 2  # no preview, but an animation


class _BitReader:
    """Reads the first bits of a codestream one after the other."""

    def __init__(self, data: bytes) -> None:
        stream = data if data.startswith(_BARE) else _codestream(data)
        self._bits = int.from_bytes(stream[2:_LONGEST].ljust(_LONGEST, b"\0"), "little")

    def take(self, count: int) -> int:
        value = self._bits & ((1 << count) - 1)
        self._bits >>= count
        return value

    def size(self) -> tuple[int, int]:
        small = self.take(1)

        def side() -> int:
            return 8 * (self.take(5) + 1) if small else self.take(_BITS[self.take(2)]) + 1

        height = side()
        across, down = _RATIOS[self.take(3)]
        return (height * across // down if across else side()), height


def _codestream(data: bytes) -> bytes:
    """Returns the first bytes of the codestream in a container's boxes.

    Raises ValueError without a codestream, and OverBudgetError.
    """
    for kind, at, _ in boxes(data, 0, len(data), Budget(len(data))):
        start = at + (4 if kind == b"jxlp" else 0)
        if kind in (b"jxlc", b"jxlp") and data[start : start + 2] == _BARE:
            return data[start : start + _LONGEST]
    raise ValueError("no codestream")


def has_gain_map(data: bytes) -> bool:
    """Returns whether a file holds a gain map (ISO 21496-1). Raises OverBudgetError."""
    found = boxes(data, 0, len(data), Budget(len(data)))
    return not data.startswith(_BARE) and any(kind == b"jhgm" for kind, _, _ in found)


def content_of(data: bytes, kind: bytes) -> bytes | None:
    """Returns the content of the first box of a kind, unpacked; None without one that is sound.

    Raises OverBudgetError.
    """
    if data.startswith(_BARE):
        return None
    for held, start, end in boxes(data, 0, len(data), Budget(len(data))):
        if held == kind:
            return data[start:end]
        if held == _PACKED and data[start : start + 4] == kind:
            return _unpacked(data[start + 4 : end])
    return None


def _unpacked(packed: bytes) -> bytes | None:
    import imagecodecs

    try:
        return bytes(imagecodecs.brotli_decode(packed, out=_MOST_UNPACKED))
    except Exception:
        return None  # damaged, or of more bytes
