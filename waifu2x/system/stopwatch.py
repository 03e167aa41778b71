"""Where the time of some work goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds spent on each stage of some work, by its name, in the order of their beginnings."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times the block inside as part of the stage `name`."""
        self.seconds.setdefault(name, 0.0)
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - start

    @property
    def total(self) -> float:
        """All seconds together."""
        return sum(self.seconds.values())
