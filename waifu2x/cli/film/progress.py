"""Shows how far the work on a film is: a line on the terminal, or a line of JSON each second."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from waifu2x.cli.output import report
from waifu2x.cli.output.drawing import shown
from waifu2x.cli.output.progress_line import Figures, rate_text
from waifu2x.flows.film.frames.frame_device import StageTimes

_SECOND = 1.0
_ALL = 1 - 1e-6


class FilmProgress:
    """Counts the frames of a film. Threads may share it."""

    def __init__(self, name: str, count: int | None, times: Callable[[], StageTimes]) -> None:
        """`count` is the number of frames, None if it is unknown; `times` returns the stages'
        times."""
        self._name = name
        self._count = count
        self._times = times
        self._before = times()
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._resumed = self._done = self._computed = 0

    def resume(self, frames: int) -> None:
        """Counts frames of an earlier run."""
        with self._lock:
            self._resumed = frames
            self._begun = time.monotonic()
            self._before = self._times()

    def add(self, frames: int, computed: int) -> None:
        """Counts new frames, and those of them that the network computed."""
        with self._lock:
            self._done += frames
            self._computed += computed

    def document(self) -> dict[str, Any]:
        """Returns the progress for programs."""
        with self._lock:
            done, computed, resumed = self._done, self._computed, self._resumed
            elapsed = max(time.monotonic() - self._begun, 1e-9)
            times = self._times().since(self._before)
        rate = done / elapsed
        left = None
        if self._count is not None and rate > 0:
            left = round(max(0, self._count - resumed - done) / rate, 1)
        return {
            "status": "running",
            "frames": resumed + done,
            "of": self._count,
            "computed": computed,
            "held": done - computed,
            "resumed": resumed,
            "rate": round(rate, 3),
            "left": left,
            "slowest": times.slowest if done else None,
        }

    def figures(self) -> Figures:
        """Returns the progress for a line."""
        found = self.document()
        frames, of = found["frames"], found["of"]
        counted = f"{frames} frames" if of is None else f"{frames}/{of}"
        if found["held"]:
            counted += f" ({found['held']} held)"
        if not found["rate"]:
            return Figures((self._name,), counted=counted, stage="preparing")
        part = None if not of else min(1.0, frames / of)
        if part is not None and part > _ALL:
            return Figures((self._name,), 1.0, counted, stage="joining")
        rate = found["rate"]
        return Figures(
            (self._name,),
            part,
            counted,
            rate=rate_text(rate),
            left=found["left"],
            stage=f"slowest: {found['slowest']}",
        )


@contextmanager
def told(progress: FilmProgress, *, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """Shows the progress during the context, which gives `FilmProgress.add`."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(_SECOND):
            report.show(json.dumps(progress.document()))

    writer = threading.Thread(target=write, name="waifu2x-json", daemon=True)
    if as_json:
        writer.start()
    try:
        with shown(progress.figures) as changed:

            def add(frames: int, computed: int) -> None:
                progress.add(frames, computed)
                changed()

            yield add
    finally:
        ended.set()
        if as_json:
            writer.join()
