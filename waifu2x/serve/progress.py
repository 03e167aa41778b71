"""How far jobs are, and how fast each model was. Kept in memory alone."""

from __future__ import annotations

import threading
import time

from waifu2x.serve.jobs import JobRecord, Progress
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _Begun:
    progress: Progress
    since: float
    """When its turn came, by `time.monotonic`."""
    pixels: int = 0
    """Pixels of the result; 0 if they are not known."""


class ProgressTable:
    """Holds the progress of jobs by their ids, and rates of models. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, _Begun] = {}
        self._rates: dict[str, float | None] = {}
        """The latest rate of each model, in output megapixels a second; None after its first job,
        whose time includes compiling."""

    def begin(self, identity: str) -> None:
        """Starts the clock of a job."""
        with self._lock:
            self._begun[identity] = _Begun(Progress(0.0, None, None, 0), time.monotonic())

    def advance(self, identity: str, part: float, pixels: int, before: float, version: int) -> None:
        """Notes that `part` of a job is done, 0 to 1, of a result of `pixels` pixels. The part
        `before` was done when its turn came. Does nothing if the job is not under way."""
        with self._lock:
            begun = self._begun.get(identity)
            if begun is None:
                return
            part = min(max(part, 0.0), 1.0)
            seconds = time.monotonic() - begun.since
            rate = left = None
            made = part - before
            if made > 0.0 and seconds > 0.0:
                left = round(seconds * (1 - part) / made, 2)
                rate = round(made * pixels / seconds / 1e6, 3) if pixels else None
            told = Progress(part, rate, left, version)
            self._begun[identity] = _Begun(told, begun.since, pixels)

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

    def rated(self, record: JobRecord, seconds: float) -> None:
        """Notes how many seconds a job took."""
        with self._lock:
            begun = self._begun.get(record.id)
            if begun is None or not begun.pixels or seconds <= 0 or record.kind == "film":
                return
            model = record.settings.model
            rate = round(begun.pixels / seconds / 1e6, 3)
            self._rates[model] = rate if model in self._rates else None

    def rate(self, model: str) -> float | None:
        """Returns output megapixels a second of a model's latest job; None before its second."""
        return self._rates.get(model)
