"""A program's steps as the tasks that compiled code runs, with what does not depend on a
picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reach:
    """Which rows of a map's memory a task reads for its rows y0 to y1:

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
        """For rows `first` to `end` of the task."""
        start = (first * self.up // self.down + self.offset) // self.unit
        stop = -(-end * self.up // self.down) + self.more + self.offset
        return start, -(-stop // self.unit)


@dataclass(frozen=True, eq=False)
class Task:
    """One entry of the table that compiled code runs. Maps are known by numbers."""

    kind: int
    step: int
    """The step of the program that it belongs to; for LOAD and KEEP, the value."""
    rows: int
    """That it computes at a time."""
    reaches: tuple[Reach, ...]
    target: int = -1
    """The map that it writes; -1 for none."""
    part: int = 0
    """Of the target."""
    rate: tuple[int, int] = (1, 1)
    """Row y of it makes rows y * rate[0] / rate[1] of the target's memory."""
    scale: int = 1
    """Its rows and columns are those of the step's results times this."""
    fields: Mapping[str, int | float] = field(default_factory=dict)
    """Of layout.TASK, that are the same for all strips."""
