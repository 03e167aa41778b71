"""A semaphore that counts bytes: memory for the pictures that are being worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from waifu2x.errors import ImageError
from waifu2x.formats import png
from waifu2x.formats.read import extent
from waifu2x.imaging.processing import Processing
from waifu2x.system.machine import available_memory

_SHARE = 0.5
"""Share of the machine's free memory that pictures get, where the system tells how much that is."""
_UNKNOWN = 2 << 30
"""Bytes that they get where it does not."""
_SINGLE = (b"\xff\xd8\xff", b"BM", b"P4", b"P5", b"P6")
"""What files of one picture begin with: JPEG, BMP, PNM."""
_UNREAD = 64
"""Bytes of memory for each byte of a file that tells nothing without being decoded."""


class MemorySemaphore:
    """So many bytes, granted in the order in which they are asked for. Whoever needs more than
    there are gets them when nobody else has any: one large picture is computed alone."""

    def __init__(self, size: int | None = None, sharing: int = 1) -> None:
        """`size` is half of the memory that is free now, if it is not given, divided by the number
        of those that are `sharing` the machine."""
        free = available_memory()
        self.size = size or (_UNKNOWN if free is None else int(free * _SHARE)) // sharing
        self._taken = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def acquire(self, size: int, granted: Callable[[], None]) -> None:
        """Calls `granted` when so many bytes are there, now or from within a `release`."""
        with self._lock:
            self._waiting.append((size, granted))
            ready = self._grant()
        for each in ready:
            each()

    def release(self, size: int) -> None:
        """Gives bytes back that were granted."""
        with self._lock:
            self._taken -= size
            ready = self._grant()
        for each in ready:
            each()

    def withdraw(self, granted: Callable[[], None]) -> bool:
        """Forgets who waits; whether it still did. Otherwise its bytes are to be released."""
        with self._lock:
            before = len(self._waiting)
            self._waiting = deque(each for each in self._waiting if each[1] is not granted)
            withdrawn = len(self._waiting) < before
            ready = self._grant()
        for each in ready:
            each()
        return withdrawn

    def _grant(self) -> list[Callable[[], None]]:
        """Who is next, to be called without the lock."""
        ready = []
        while self._waiting:
            size, granted = self._waiting[0]
            if self._taken and self._taken + size > self.size:
                break
            self._waiting.popleft()
            self._taken += size
            ready.append(granted)
        return ready


def needed_bytes(content: bytes, processing: Processing, in_flight: int = 1) -> int:
    """About how many bytes a file with that content takes until its result is written. These are
    the file, and the pictures of it that are under way together, with their results: `in_flight`,
    and one that is decoded meanwhile, where there may be as many."""
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
    """Whether a file may have more than one picture, by its first bytes."""
    if content.startswith(png.SIGNATURE):
        return any(kind == b"acTL" for kind, _, _ in png.places(content))
    return not content.startswith(_SINGLE)
