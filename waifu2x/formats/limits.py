"""How much a file may hold, and what reading its structure may cost.

What a small file declares can be larger than any memory, and entries that overlap or form a ring
can be visited without end.
"""

from __future__ import annotations

from waifu2x.errors import ImageError

MAX_PIXELS = 250_000_000
"""The most that a file may hold, all its pictures together, unless the caller says otherwise."""
MAX_PICTURES = 30_000
"""The most frames or pages of a file."""
_ENTRIES = 1 << 16
_BYTES_AN_ENTRY = 16
"""Entries are for free up to the first; beyond that, a file has to be so large for each."""
_COPIED = 1 << 24
_COPIES = 4
"""Bytes that are copied or unpacked in any case, and as many times the size of the file."""


class OverBudgetError(Exception):
    """The structure of a file costs more to read than a sound file of its size ever does."""


class Budget:
    """What may still be spent on the structure of one file: entries and bytes.

    Every parser of tags, chunks, boxes and blocks asks it before it visits or copies anything. What
    it allows grows with the file, so it is enough for sound files of any size.
    """

    def __init__(self, size: int) -> None:
        """`size` is that of the file, in bytes."""
        self.entries = _ENTRIES + size // _BYTES_AN_ENTRY
        """Entries that may still be visited."""
        self.bytes = _COPIED + _COPIES * size
        """Bytes that may still be copied or unpacked."""

    def visit(self, entries: int = 1) -> None:
        """Allows for entries that are looked at. Raises OverBudgetError."""
        self.entries -= entries
        if self.entries < 0:
            raise OverBudgetError("it has more entries than a file of its size can hold")

    def copy(self, size: int) -> None:
        """Allows for bytes that are copied or unpacked. Raises OverBudgetError."""
        self.bytes -= size
        if self.bytes < 0:
            raise OverBudgetError("its entries claim more bytes than the file holds")


def check_pixels(name: str, size: tuple[int, int], count: int, total: int, most: int) -> None:
    """Raises ImageError if `total` pixels, of `count` pictures of about `size`, are too many."""
    if total > most:
        width, height = size
        what = f"{count} pictures of {width}x{height}" if count > 1 else f"{width}x{height}"
        raise ImageError(f"{name}: {what} pixels are more than --max-pixels {most} allows")
    if count > MAX_PICTURES:
        raise ImageError(f"{name}: {count} pictures are more than the {MAX_PICTURES} that are read")
