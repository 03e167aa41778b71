"""Measures which stage of a film delays the others: decoding, the network or encoding."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

Stage = Literal["decoding", "network", "encoding"]


class StageTimes(NamedTuple):
    """Seconds since a film was begun, and those during which each stage worked."""

    elapsed: float = 0.0
    decoding: float = 0.0
    network: float = 0.0
    encoding: float = 0.0

    def since(self, before: StageTimes) -> StageTimes:
        """Returns the difference from earlier times."""
        return StageTimes(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def slowest(self) -> Stage:
        """Returns the stage that waited least."""
        stages: dict[Stage, float] = {
            "network": self.network,
            "encoding": self.encoding,
            "decoding": self.decoding,
        }
        return max(stages, key=lambda stage: stages[stage])


class Stages:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._spent: dict[Stage, float] = {"decoding": 0.0, "network": 0.0, "encoding": 0.0}
        self._active: dict[Stage, int] = dict.fromkeys(self._spent, 0)
        self._since: dict[Stage, float] = dict.fromkeys(self._spent, 0.0)

    @contextmanager
    def at_work(self, stage: Stage) -> Iterator[None]:
        """Counts the time of the context for a stage; overlapping ones count once."""
        with self._lock:
            if not self._active[stage]:
                self._since[stage] = time.monotonic()
            self._active[stage] += 1
        try:
            yield
        finally:
            with self._lock:
                self._active[stage] -= 1
                if not self._active[stage]:
                    self._spent[stage] += time.monotonic() - self._since[stage]

    def add(self, stage: Stage, seconds: float) -> None:
        """Adds seconds that were measured elsewhere."""
        with self._lock:
            self._spent[stage] += seconds

    def times(self) -> StageTimes:
        """Returns the times up to now."""
        with self._lock:
            now = time.monotonic()
            spent = {
                stage: seconds + (now - self._since[stage] if self._active[stage] else 0.0)
                for stage, seconds in self._spent.items()
            }
            return StageTimes(now - self._begun, **spent)
