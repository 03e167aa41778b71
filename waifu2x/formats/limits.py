"""Bounds how much a file may hold, and what reading its structure may cost.

A small file can declare more than any memory holds, and entries that overlap or form a ring can be
visited without end.
"""

from __future__ import annotations

from waifu2x.errors import ImageError

MAX_PIXELS = 250_000_000
"""Default limit for the pixels of all pictures of a file together."""
MAX_PICTURES = 30_000
"""The most frames or pages of a file."""
_ENTRIES = 1 << 16
_BYTES_AN_ENTRY = 16
"""A file may have this many entries, and one more for each 16 of its bytes."""
_COPIED = 1 << 24
_COPIES = 4
"""A file may have this many bytes copied or unpacked, and four times its own size more."""


class OverBudgetError(Exception):
    """The structure of a file costs more to read than a sound file of its size ever does."""


class Budget:
    """Counts the entries and bytes that may still be spent on the structure of one file.

    Every parser of tags, chunks, boxes and blocks asks it before it visits or copies anything. The
    budget grows with the file, so it is enough for sound files of any size.
    """

    def __init__(self, size: int) -> None:
        """`size` is that of the file, in bytes."""
        self.entries = _ENTRIES + size // _BYTES_AN_ENTRY
        """Entries that may still be visited."""
        self.bytes = _COPIED + _COPIES * size
        """Bytes that may still be copied or unpacked."""

    def visit(self, entries: int = 1) -> None:
        """Takes entries that are about to be visited. Raises OverBudgetError."""
        self.entries -= entries
        if self.entries < 0:
            raise OverBudgetError("it has more entries than a file of its size can hold")

    def copy(self, size: int) -> None:
        """Takes bytes that are about to be copied or unpacked. Raises OverBudgetError."""
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
