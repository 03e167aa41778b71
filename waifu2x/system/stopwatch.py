"""Measures where time goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Holds the seconds of each stage by name, in the order in which stages began. Threads may
    share it: the time of each counts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times the block as part of the stage `name`."""
        self.seconds.setdefault(name, 0.0)
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] += time.monotonic() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Adds the seconds of another one."""
        with self._lock:
            for name, more in seconds.items():
                self.seconds[name] = self.seconds.get(name, 0.0) + more

    @property
    def total(self) -> float:
        """Returns the seconds of all stages."""
        return sum(self.seconds.values())
