"""Memory for pictures that are being worked on, bounded by bytes and not by their number."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from waifu2x.errors import ImageError
from waifu2x.formats.read import extent
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.system.machine import available_memory

_SHARE = 0.5
"""Of the machine's free memory, where the system tells how much that is."""
_UNKNOWN = 2 << 30
"""Bytes, where it does not."""
_UNREAD = 64
"""Times the bytes of a file that tells nothing without being decoded."""


class Room:
    """So many bytes, given to those who wait in the order in which they came.

    Who needs more than there are gets them when nobody else has any: one large picture is computed
    alone.
    """

    def __init__(self, size: int | None = None) -> None:
        """`size` is a share of the memory that is free now, if it is not given."""
        free = available_memory()
        self.size = size or (_UNKNOWN if free is None else int(free * _SHARE))
        self._taken = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, threading.Event]] = deque()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Waits for so many bytes, which are given back at the end."""
        granted = threading.Event()
        with self._lock:
            self._waiting.append((size, granted))
            self._grant()
        granted.wait()
        try:
            yield
        finally:
            with self._lock:
                self._taken -= size
                self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if self._taken and self._taken + size > self.size:
                return
            self._waiting.popleft()
            self._taken += size
            granted.set()


def needed_bytes(content: bytes, enlarger: Enlarger) -> int:
    """About what a file with that content takes until its result is written: the file, a picture
    of it at a time, and its result."""
    found = extent(content)
    if found is None:
        return _UNREAD * len(content)
    try:
        growth = enlarger.growth(found.height, found.width)
    except ImageError:
        growth = 0.0
    return len(content) + int(found.nbytes * (1 + growth))
