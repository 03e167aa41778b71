"""Finds the order in which the tasks of a strip run, and the rows that rings must hold for it.

Each row is made as late as possible: a task runs when another one needs rows that it has not made
yet, so maps stay in the caches from writer to reader. Tasks whose results no task reads (rows to
keep, to sum, to write) run as soon as possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.pack.tasks import RowWindow, TaskSchedule
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class RunOrder:
    """The order for one strip, or all equal ones."""

    runs: NDArray[np.int64]
    """The number of a task for each run."""
    rings: dict[int, int]
    """The rows of each map's ring, powers of two."""


def order(tasks: Sequence[TaskSchedule], spans: Sequence[tuple[int, int]]) -> RunOrder:
    """Returns the order for tasks of rows spans[n][0] to spans[n][1]; an empty span is no work."""
    strip = _StripOrder(tasks, spans)
    strip.run_all()
    rings = {map_: 1 << (rows - 1).bit_length() for map_, rows in strip.held.items()}
    return RunOrder(np.array(strip.runs, np.int64), rings)


class _Reading:
    """A window that a task reads, and the tasks that write those rows."""

    __slots__ = ("down", "least", "more", "reader", "start", "unit", "up", "writers")

    def __init__(self, reader: int, window: RowWindow, writers: list[int]) -> None:
        self.reader = reader
        self.writers = writers
        self.up, self.down, self.unit = window.up, window.down, window.unit
        self.least, self.more = window.offset, window.more + window.offset
        self.start: float = _NO_ROW
        """The first row of the map that the task still needs; _NO_ROW once it has ended."""


_NO_ROW = float("inf")
"""A row behind all others."""


class _StripOrder:
    """Simulates the tasks of a strip, by number, to find their order.

    A new size of picture waits for this, row by row, so values that depend on a task's progress are
    updated when it advances, not when others ask.
    """

    def __init__(self, tasks: Sequence[TaskSchedule], spans: Sequence[tuple[int, int]]) -> None:
        self._targets = [task.target for task in tasks]
        self._rows = [task.rows for task in tasks]
        self._rates = [task.rate for task in tasks]
        self._done = [first for first, _ in spans]
        """The row up to which each task is done."""
        self._ends = [end for _, end in spans]
        """The end of each task's rows."""
        self._made = [_NO_ROW] * len(tasks)
        """The stored row of its target up to which each task is done; _NO_ROW once it has ended."""
        busy = [n for n, (first, end) in enumerate(spans) if first < end]
        self._writers: dict[int, list[int]] = {}
        """The tasks that write each map."""
        for n in busy:
            if tasks[n].target >= 0:
                self._writers.setdefault(tasks[n].target, []).append(n)
        self._readings: dict[int, list[_Reading]] = {}
        """The readings of each task."""
        self._readers: dict[int, list[_Reading]] = {}
        """The readings of each map."""
        for n in busy:
            self._readings[n] = []
            for window in tasks[n].windows:
                parts = (None, *range(window.first, window.first + window.parts))
                writers = [w for w in self._writers[window.map] if tasks[w].part in parts]
                reading = _Reading(n, window, writers)
                self._readings[n].append(reading)
                self._readers.setdefault(window.map, []).append(reading)
        for n in busy:
            self._go_on(n, self._done[n])
        self.runs: list[int] = []
        self._fronts = {map_: self._front(map_) for map_ in self._writers}
        """A heap for each map: the rows that are still needed or to be written, and by whom."""
        self.held = dict.fromkeys(self._writers, 1)
        """The most rows of each map that are needed at the same time."""

    def run_all(self) -> None:
        """Runs the tasks that no task reads, and so all others. The next one is always the least
        advanced in the strip: otherwise maps that several of them read would be held whole."""
        ends = [
            (0.0, -n)
            for n in self._readings
            if self._targets[n] < 0 and self._done[n] < self._ends[n]
        ]
        heapq.heapify(ends)
        first = list(self._done)
        while ends:
            n = -ends[0][1]
            if self._done[n] < self._ends[n]:
                self._run(n)
            share = (self._done[n] - first[n]) / (self._ends[n] - first[n])
            if share < 1:
                heapq.heapreplace(ends, (share, -n))
            else:
                heapq.heappop(ends)

    def _go_on(self, n: int, row: int) -> None:
        """Advances a task to a row."""
        self._done[n] = row
        if row == self._ends[n]:
            self._made[n] = _NO_ROW
            for reading in self._readings[n]:
                reading.start = _NO_ROW
            return
        up, down = self._rates[n]
        self._made[n] = row * up // down
        for reading in self._readings[n]:
            first = row * reading.up // reading.down + reading.least
            reading.start = first // reading.unit

    def _run(self, n: int) -> None:
        """Runs a task for its next rows, and before it all tasks whose rows it needs."""
        waiting = [(n, self._done[n], self._missing(n))]
        while waiting:
            n, first, missing = waiting[-1]
            for writer in missing:
                waiting.append((writer, self._done[writer], self._missing(writer)))
                break
            else:
                waiting.pop()
                if self._done[n] == first:  # otherwise it has followed the last writer
                    self._run_ready(n, first)

    def _missing(self, n: int) -> Iterator[int]:
        """Yields the tasks that must run before the next rows of task `n`, each as often as needed;
        the caller runs one before it asks for the next."""
        made, end = self._made, min(self._done[n] + self._rows[n], self._ends[n])
        for reading in self._readings[n]:
            stop = -((end * -reading.up // reading.down - reading.more) // reading.unit)
            for writer in reading.writers:
                while made[writer] < stop:
                    yield writer

    def _run_ready(self, n: int, first: int) -> None:
        """Runs a task for its next rows, from `first` on, whose inputs are ready."""
        end = min(first + self._rows[n], self._ends[n])
        self.runs.append(n)
        map_ = self._targets[n]
        if map_ >= 0:
            up, down = self._rates[n]
            readers = self._readers.get(map_, ())
            rows = -(-end * up // down) - self._lowest(map_, readers)
            if rows > self.held[map_]:
                self.held[map_] = int(rows)
            self._go_on(n, end)
            for reading in readers:
                if self._targets[reading.reader] < 0:
                    self._follow(reading)
        else:
            self._go_on(n, end)

    def _follow(self, reading: _Reading) -> None:
        """Runs a task that no task reads for as long as its inputs are ready."""
        n, made = reading.reader, self._made
        rows, end = self._rows[n], self._ends[n]
        if len(self._readings[n]) > 1:
            return
        while self._done[n] < end:
            next_row = min(self._done[n] + rows, end)
            stop = -((next_row * -reading.up // reading.down - reading.more) // reading.unit)
            for writer in reading.writers:
                if made[writer] < stop:
                    return
            self.runs.append(n)
            self._go_on(n, next_row)

    def _front(self, map_: int) -> list[tuple[float, int]]:
        """Returns the heap of a map: writers by their numbers, readers by what is below 0."""
        found = [(self._made[writer], writer) for writer in self._writers[map_]]
        readers = self._readers.get(map_, ())
        found += [(reading.start, ~n) for n, reading in enumerate(readers)]
        heapq.heapify(found)
        return found

    def _lowest(self, map_: int, readers: Sequence[_Reading]) -> float:
        """Returns the first row of a map that a reader still needs, or that a writer of another
        part has yet to write: each writer zeroes the outside of all parts."""
        front = self._fronts[map_]
        while True:
            row, n = front[0]
            now = self._made[n] if n >= 0 else readers[~n].start
            # Rows only grow: what stands first and has not changed is the lowest.
            if now == row:
                return row
            heapq.heapreplace(front, (now, n))
