"""Tasks: what compiled code runs for the steps of a program, and which rows they need of others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from waifu2x.backends.cpu.pack import records
from waifu2x.system.lazy_dataclass import dataclass

ROWS = 4
"""Rows that tasks compute at once which could do with any number."""
ON_TILES = (records.TILES, records.PIXEL_TILES, records.FEW_TILES)
"""Kinds of convolutions in bf16."""
IN_INTEGERS = (records.INTEGER_WINOGRAD, records.INTEGER_POINTWISE)
"""Kinds of convolutions in 16-bit integers."""
OF_WINDOWS = (records.ATTENTION, records.PLANE_ATTENTION)
"""Kinds that compute a row of windows at a time."""


@dataclass(frozen=True)
class RowWindow:
    """The rows of a map's memory that a task reads for its rows y0 to y1:

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
    """The first of the map's parts that it reads, and how many: others may be made later."""
    parts: int = 1

    def rows(self, first: int, end: int) -> tuple[int, int]:
        """Returns the rows, from one and before another, that rows `first` to `end` need."""
        start = (first * self.up // self.down + self.offset) // self.unit
        stop = -(-end * self.up // self.down) + self.more + self.offset
        return start, -(-stop // self.unit)


@dataclass(frozen=True)
class TaskSchedule:
    """The rows that a task reads, computes and writes: they decide when it runs."""

    step: int
    """The step of the program that it belongs to; for maps that are kept, the value."""
    rows: int
    """Rows that it computes at a time."""
    windows: tuple[RowWindow, ...] = ()
    """The parts of maps that it reads."""
    target: int = -1
    """The map that it writes; -1 for none."""
    part: int | None = 0
    """The part of the target that it writes; None for all."""
    rate: tuple[int, int] = (1, 1)
    """Its row y makes rows y * rate[0] / rate[1] of the target's memory."""
    scale: int = 1
    """How many rows and columns it computes for each of the step's results."""


@dataclass(frozen=True, eq=False)
class CpuTask:
    """A step or a part of one, as compiled code runs it on strips of any picture."""

    schedule: TaskSchedule
    kind: int
    """One of the kinds of `records`."""
    fields: Mapping[str, int]
    """The fields of its record, `records.TASK`, that are not 0; without `residual` it adds none."""
    factor: float = 1.0
    """The record's factor."""

    def fill(self, record: np.void) -> None:
        """Writes what is the same for all strips into a record of zeros."""
        record["kind"], record["rows"] = self.kind, self.schedule.rows
        record["factor"], record["residual"] = self.factor, -1
        for name, value in self.fields.items():
            record[name] = value
