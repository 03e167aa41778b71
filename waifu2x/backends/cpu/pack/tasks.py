"""Defines the tasks that compiled code runs for a program's steps, and the rows that they need."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from waifu2x.backends.cpu.pack import records
from waifu2x.system.lazy_dataclass import dataclass

ROWS = 4
"""The rows computed at a time by tasks that could compute any number."""
ON_TILES = (records.TILES, records.PIXEL_TILES, records.FEW_TILES)
"""The kinds of convolutions in bf16."""
IN_INTEGERS = (records.INTEGER_WINOGRAD, records.INTEGER_POINTWISE)
"""The kinds of convolutions in 16-bit integers."""
OF_WINDOWS = (records.ATTENTION, records.PLANE_ATTENTION)
"""The kinds that compute a row of windows at a time."""


@dataclass(frozen=True)
class RowWindow:
    """The stored rows of a map that a task reads for its rows y0 to y1:

    from floor((y0 * up // down + offset) / unit) to ceil((ceil(y1 * up / down) + more + offset) /
    unit).
    """

    map: int
    up: int = 1
    down: int = 1
    offset: int = 0
    more: int = 0
    unit: int = 1
    first: int = 0
    """The first part of the map that it reads, and their number: others may be made later."""
    parts: int = 1

    def rows(self, first: int, end: int) -> tuple[int, int]:
        """Returns the half-open range of rows that rows `first` to `end` need."""
        start = (first * self.up // self.down + self.offset) // self.unit
        stop = -(-end * self.up // self.down) + self.more + self.offset
        return start, -(-stop // self.unit)


@dataclass(frozen=True)
class TaskSchedule:
    """The rows that a task reads, computes and writes, which decide when it runs."""

    step: int
    """The step of the program that it belongs to; for kept maps, the value."""
    rows: int
    """The rows that it computes at a time."""
    windows: tuple[RowWindow, ...] = ()
    """The windows of maps that it reads."""
    target: int = -1
    """The map that it writes; -1 for none."""
    part: int | None = 0
    """The part of the target that it writes; None for all."""
    rate: tuple[int, int] = (1, 1)
    """Its row y makes the stored rows y * rate[0] / rate[1] of the target."""
    scale: int = 1
    """The rows, and columns, that it computes for each of the step's results."""


@dataclass(frozen=True, eq=False)
class CpuTask:
    """A step or a part of one, as compiled code runs it, independent of strips and pictures."""

    schedule: TaskSchedule
    kind: int
    """One of the kinds of `records`."""
    fields: Mapping[str, int]
    """The nonzero fields of its record, `records.TASK`; without `residual` it adds none."""
    factor: float = 1.0
    """The record's factor."""

    def fill(self, record: np.void) -> None:
        """Writes the fields that are the same for all strips into a record of zeros."""
        record["kind"], record["rows"] = self.kind, self.schedule.rows
        record["factor"], record["residual"] = self.factor, -1
        for name, value in self.fields.items():
            record[name] = value
