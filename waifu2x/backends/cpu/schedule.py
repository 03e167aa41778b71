"""In which order the tasks of a strip run, and how many rows the rings must hold for it.

Each row is made as late as can be: a task runs when another one needs rows that it has not made
yet, so maps stay in the caches from writer to reader. What reads without being read (rows to keep,
to add up, to write) runs as soon as it can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.tasks import RowWindow, TaskSchedule
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class RunOrder:
    """The order for one strip, or all that are alike."""

    runs: NDArray[np.int64]
    """The numbers of the tasks, one for each of their runs."""
    rings: dict[int, int]
    """Rows of each map's ring: powers of two."""


def order(tasks: Sequence[TaskSchedule], spans: Sequence[tuple[int, int]]) -> RunOrder:
    """The order for tasks with rows spans[n][0] to spans[n][1] each; an empty span is no work."""
    strip = _StripOrder(tasks, spans)
    strip.run_all()
    rings = {map_: 1 << (rows - 1).bit_length() for map_, rows in strip.held.items()}
    return RunOrder(np.array(strip.runs, np.int64), rings)


class _StripOrder:
    """The tasks of a strip while their order is found, by their numbers."""

    def __init__(self, tasks: Sequence[TaskSchedule], spans: Sequence[tuple[int, int]]) -> None:
        self._tasks = tasks
        self._done = [first for first, _ in spans]
        """The row up to which each task has come,"""
        self._ends = [end for _, end in spans]
        """and where it ends."""
        busy = [n for n, (first, end) in enumerate(spans) if first < end]
        self._writers: dict[int, list[int]] = {}
        """The tasks that write each map."""
        self._readers: dict[int, list[tuple[int, RowWindow]]] = {}
        """The tasks that read each map, and their windows."""
        for n in busy:
            if tasks[n].target >= 0:
                self._writers.setdefault(tasks[n].target, []).append(n)
            for window in tasks[n].windows:
                self._readers.setdefault(window.map, []).append((n, window))
        self._sources = {
            n: [(window, self._wanted(window)) for window in tasks[n].windows] for n in busy
        }
        """The windows of each task, and who writes what is read there."""
        self.runs: list[int] = []
        self.held = dict.fromkeys(self._writers, 1)
        """Rows of each map that must be there at the same time."""

    def run_all(self) -> None:
        """Runs all that nothing waits for, the last ones first, and so everything."""
        for n in reversed(range(len(self._tasks))):
            if self._tasks[n].target < 0:
                while self._done[n] < self._ends[n]:
                    self._run(n)

    def _wanted(self, window: RowWindow) -> list[int]:
        """The tasks that write what is read in a window."""
        parts = (None, *range(window.first, window.first + window.parts))
        return [w for w in self._writers[window.map] if self._tasks[w].part in parts]

    def _made(self, n: int) -> int:
        """The row of its target's memory up to which a task has come."""
        up, down = self._tasks[n].rate
        return self._done[n] * up // down

    def _is_short_of(self, writer: int, stop: int) -> bool:
        """Whether a task has yet to make rows before `stop`."""
        return self._done[writer] < self._ends[writer] and self._made(writer) < stop

    def _run(self, n: int) -> None:
        """Runs a task for its next rows, and all tasks before whose rows those need."""
        task, first = self._tasks[n], self._done[n]
        end = min(first + task.rows, self._ends[n])
        for window, writers in self._sources[n]:
            stop = window.stop(end)
            for writer in writers:
                while self._is_short_of(writer, stop):
                    self._run(writer)
        if self._done[n] > first:
            return  # it has followed the last writer
        self.runs.append(n)
        map_ = task.target
        if map_ < 0:
            self._done[n] = end
            return
        up, down = task.rate
        stop = -(-end * up // down)
        self.held[map_] = max(self.held[map_], stop - self._lowest(map_, self._made(n)))
        self._done[n] = end
        for reader, window in self._readers.get(map_, ()):
            if self._tasks[reader].target < 0:
                self._follow(reader, window)

    def _follow(self, n: int, window: RowWindow) -> None:
        """Runs a task that nothing waits for as long as its rows are there."""
        sources, rows, end = self._sources[n], self._tasks[n].rows, self._ends[n]
        if len(sources) > 1:
            return
        ((_, writers),) = sources
        while self._done[n] < end:
            next_row = min(self._done[n] + rows, end)
            stop = window.stop(next_row)
            if any(self._is_short_of(writer, stop) for writer in writers):
                return
            self.runs.append(n)
            self._done[n] = next_row

    def _lowest(self, map_: int, default: int) -> int:
        """The first row of a map that a reader still needs, or that a writer of another part has
        yet to write: what is outside becomes zero in all parts, whoever comes to it."""
        lowest = default
        for writer in self._writers[map_]:
            if self._done[writer] < self._ends[writer]:
                lowest = min(lowest, self._made(writer))
        for reader, window in self._readers.get(map_, ()):
            if self._done[reader] < self._ends[reader]:
                lowest = min(lowest, window.start(self._done[reader]))
        return lowest
