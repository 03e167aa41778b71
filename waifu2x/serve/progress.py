"""How far jobs are, and how fast each model was. Kept in memory alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from waifu2x.serve.jobs import JobRecord, Progress
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _Begun:
    progress: Progress
    since: float
    """When its turn came: by the clock of work until it has progress, then by `time.monotonic`."""
    pixels: int = 0
    """Pixels of the result; 0 if they are not known."""


class ProgressTable:
    """Holds the progress of jobs by their ids, and rates of models. Threads may share it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` stands still while networks are compiled: a job that has no progress yet may wait
        for its own."""
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[str, _Begun] = {}
        self._rates: dict[str, float] = {}
        """The latest rate of each model, in output megapixels a second."""

    def begin(self, identity: str) -> None:
        """Starts the time of a job."""
        with self._lock:
            self._begun[identity] = _Begun(Progress(0.0, None, None, 0), self._clock())

    def advance(self, identity: str, part: float, pixels: int, before: float, version: int) -> None:
        """Notes that `part` of a job is done, 0 to 1, of a result of `pixels` pixels. The part
        `before` was done when its turn came. Does nothing if the job is not under way."""
        with self._lock:
            begun = self._begun.get(identity)
            if begun is None:
                return
            part = min(max(part, 0.0), 1.0)
            seconds = self._seconds(begun)
            rate = left = None
            made = part - before
            if made > 0.0 and seconds > 0.0:
                left = round(seconds * (1 - part) / made, 2)
                rate = round(made * pixels / seconds / 1e6, 3) if pixels else None
            since = time.monotonic() - seconds if part else begun.since
            self._begun[identity] = _Begun(Progress(part, rate, left, version), since, pixels)

    def _seconds(self, begun: _Begun) -> float:
        return (time.monotonic() if begun.progress.part else self._clock()) - begun.since

    def end(self, identity: str) -> None:
        """Forgets a job."""
        with self._lock:
            self._begun.pop(identity, None)

    def of(self, identity: str) -> Progress | None:
        """Returns the progress of a job; None if it is not under way."""
        with self._lock:
            begun = self._begun.get(identity)
        return None if begun is None else begun.progress

    def ids(self) -> list[str]:
        """Returns the jobs under way."""
        with self._lock:
            return list(self._begun)

    def seconds(self, identity: str) -> float:
        """Returns how many seconds a job has taken, without compiling; 0 if it is not under way."""
        with self._lock:
            begun = self._begun.get(identity)
            return 0.0 if begun is None else self._seconds(begun)

    def rated(self, record: JobRecord, seconds: float) -> None:
        """Notes how many seconds a job took."""
        with self._lock:
            begun = self._begun.get(record.id)
            if begun is not None and begun.pixels and seconds > 0 and record.kind != "film":
                self._rates[record.settings.model] = round(begun.pixels / seconds / 1e6, 3)

    def rate(self, model: str) -> float | None:
        """Returns output megapixels a second of a model's latest job; None before its first."""
        return self._rates.get(model)
