"""What each second of some work went into."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by what they were spent on, in the order in which that began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times what is done inside; what bears one name is added up."""
        self.seconds.setdefault(name, 0.0)
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - start

    @property
    def total(self) -> float:
        """Of all of it."""
        return sum(self.seconds.values())
