"""In which order the tasks of a strip run, and how many rows the rings must hold for it.

Each row is made as late as can be: a task runs when another one needs rows that it has not made
yet, so maps stay in the caches from writer to reader. What reads without being read (rows to keep,
to add up, to write) runs as soon as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.tasks import RowWindow, TaskSchedule


@dataclass(frozen=True)
class RunOrder:
    """The order for one strip, or all that are alike."""

    runs: NDArray[np.int64]
    """The numbers of the tasks, one for each of their runs."""
    rings: dict[int, int]
    """Rows of each map's ring: powers of two."""


def order(tasks: Sequence[TaskSchedule], spans: Sequence[tuple[int, int]]) -> RunOrder:
    """The order for tasks with rows spans[n][0] to spans[n][1] each; an empty span is no work."""
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[tuple[int, int]]] = {}
    for n, task in enumerate(tasks):
        if spans[n][0] >= spans[n][1]:
            continue
        if task.target >= 0:
            writers.setdefault(task.target, []).append(n)
        for r, window in enumerate(task.windows):
            readers.setdefault(window.map, []).append((n, r))
    done = [first for first, _ in spans]
    runs: list[int] = []
    held = dict.fromkeys(writers, 1)

    def made(task: int) -> int:
        """The rows of its target's memory up to which a task has come."""
        up, down = tasks[task].rate
        return done[task] * up // down

    def wanted(window: RowWindow) -> list[int]:
        """The tasks that write what another one reads."""
        parts = (None, *range(window.first, window.first + window.parts))
        return [w for w in writers[window.map] if tasks[w].part in parts]

    def lowest(map_: int, default: int) -> int:
        """The first row of a map that a reader still needs, or that a writer of another part has
        yet to write: what is outside becomes zero in all parts, whoever comes to it."""
        rows = default
        for writer in writers[map_]:
            if done[writer] < spans[writer][1]:
                rows = min(rows, made(writer))
        for n, r in readers.get(map_, ()):
            if done[n] < spans[n][1]:
                first = done[n]
                rows = min(rows, tasks[n].windows[r].rows(first, first + 1)[0])
        return rows

    def run(n: int) -> None:
        task, first = tasks[n], done[n]
        end = min(first + task.rows, spans[n][1])
        for window in task.windows:
            stop = window.rows(first, end)[1]
            for writer in wanted(window):
                while done[writer] < spans[writer][1] and made(writer) < stop:
                    run(writer)
        if done[n] > first:
            return  # it has followed the last writer
        runs.append(n)
        map_ = task.target
        if map_ >= 0:
            up, down = task.rate
            stop = -(-end * up // down)
            held[map_] = max(held[map_], stop - lowest(map_, made(n)))
        done[n] = end
        if map_ >= 0:
            for reader, r in readers.get(map_, ()):
                if tasks[reader].target < 0:
                    follow(reader, r)

    def follow(n: int, r: int) -> None:
        """Runs a task that nothing waits for as long as its rows are there."""
        window = tasks[n].windows[r]
        while done[n] < spans[n][1]:
            stop = window.rows(done[n], min(done[n] + tasks[n].rows, spans[n][1]))[1]
            if any(done[w] < spans[w][1] and made(w) < stop for w in wanted(window)):
                return
            if len(tasks[n].windows) > 1:
                return
            runs.append(n)
            done[n] = min(done[n] + tasks[n].rows, spans[n][1])

    for n in reversed(range(len(tasks))):
        if tasks[n].target < 0:
            while done[n] < spans[n][1]:
                run(n)
    rings = {map_: 1 << (rows - 1).bit_length() for map_, rows in held.items()}
    return RunOrder(np.array(runs, np.int64), rings)
