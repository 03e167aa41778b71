"""Where the time of some work goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Seconds spent on each stage of some work, by its name, in the order of their beginnings.

    Threads may share it: what several of them do at a time counts for each.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times the block inside as part of the stage `name`."""
        self.seconds.setdefault(name, 0.0)
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] += time.monotonic() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Adds what another one has counted."""
        with self._lock:
            for name, more in seconds.items():
                self.seconds[name] = self.seconds.get(name, 0.0) + more

    @property
    def total(self) -> float:
        """All seconds together."""
        return sum(self.seconds.values())
