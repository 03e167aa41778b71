"""What each second of some work went into."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by what they were spent on, in the order in which that began.

    Threads may share it: what several of them do at a time counts for each.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times what is done inside; what bears one name is added up."""
        self.seconds.setdefault(name, 0.0)
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] += time.monotonic() - start

    @property
    def total(self) -> float:
        """Of all of it."""
        return sum(self.seconds.values())
