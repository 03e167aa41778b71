"""A semaphore that counts bytes: memory for the pictures under way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from waifu2x.errors import ImageError
from waifu2x.formats.png import chunks
from waifu2x.formats.read import extent
from waifu2x.imaging.processing import Processing
from waifu2x.system.machine import available_memory

_SHARE = 0.5
"""Share of the machine's free memory for pictures."""
_UNKNOWN = 2 << 30
"""Bytes for them if that is unknown."""
_SINGLE = (b"\xff\xd8\xff", b"BM", b"P4", b"P5", b"P6")
"""Beginnings of files with one picture: JPEG, BMP, PNM."""
_UNREAD = 64
"""Bytes of memory for each byte of a file whose header tells no size."""


class MemorySemaphore:
    """Grants bytes in the order of requests. A request for more than there is waits until nothing
    is granted: one large picture is computed alone."""

    def __init__(self, size: int | None = None, sharing: int = 1) -> None:
        """Divides half of the free memory by `sharing`, unless `size` is given."""
        free = available_memory()
        self.size = size or (_UNKNOWN if free is None else int(free * _SHARE)) // sharing
        self._taken = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def acquire(self, size: int, granted: Callable[[], None]) -> None:
        """Calls `granted` when `size` bytes are free, now or within a `release`."""
        with self._lock:
            self._waiting.append((size, granted))
        self._grant()

    def release(self, size: int) -> None:
        """Returns granted bytes."""
        with self._lock:
            self._taken -= size
        self._grant()

    def withdraw(self, granted: Callable[[], None]) -> bool:
        """Cancels a request; returns False if it was granted, and its bytes have to be released."""
        with self._lock:
            before = len(self._waiting)
            self._waiting = deque(each for each in self._waiting if each[1] is not granted)
            withdrawn = len(self._waiting) < before
        self._grant()
        return withdrawn

    def _grant(self) -> None:
        """Grants the requests for which there is room now."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                size, granted = self._waiting[0]
                if self._taken and self._taken + size > self.size:
                    return
                self._waiting.popleft()
                self._taken += size
            granted()


def needed_bytes(content: bytes, processing: Processing, in_flight: int = 1) -> int:
    """Estimates the bytes that a file with that content takes until its result is written. They are
    the file, and `in_flight` pictures with their results and one that is decoded meanwhile, if it
    may have that many."""
    found = extent(content)
    if found is None:
        return _UNREAD * len(content)
    try:
        growth = processing.growth(found.height, found.width)
    except ImageError:
        growth = 0.0
    pictures = in_flight + 1 if in_flight > 1 and _may_hold_many(content) else 1
    return len(content) + pictures * int(found.nbytes * (1 + growth))


def _may_hold_many(content: bytes) -> bool:
    if content.startswith(chunks.SIGNATURE):
        return any(kind == b"acTL" for kind, _, _ in chunks.places(content))
    return not content.startswith(_SINGLE)
