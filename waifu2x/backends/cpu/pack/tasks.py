"""A program's steps as the tasks that compiled code runs: a class for each kind.

They hold what depends on no picture. `fill` makes the record (`records.TASK`) of any of them: all
fields of a task but `schedule` are fields of the record, those of a Formula too, and those of a
TaskSource, TaskTarget or TaskResidual with its name before theirs: `source`, `source_plane`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, get_args, get_type_hints

import numpy as np

from waifu2x.backends.cpu.pack.records import (
    ATTENTION,
    CROSS,
    FEW_TILES,
    INTEGER_POINTWISE,
    INTEGER_WINOGRAD,
    KEEP,
    LOAD,
    MIX,
    PIXEL_TILES,
    PLANE_ATTENTION,
    POOL,
    READ,
    REARRANGE,
    TILES,
)
from waifu2x.system.lazy_dataclass import dataclass

ROWS = 4
"""Rows at a time of tasks that could do with any number."""
ON_TILES = (TILES, PIXEL_TILES, FEW_TILES)
"""Kinds of convolutions in bf16."""
IN_INTEGERS = (INTEGER_WINOGRAD, INTEGER_POINTWISE)
"""Kinds of convolutions in 16-bit integers."""


@dataclass(frozen=True)
class RowWindow:
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
        """The rows that are read for rows `first` to `end` of the task, as such a range."""
        return self.start(first), self.stop(end)

    def start(self, first: int) -> int:
        """The first row that is read for rows from `first` on."""
        return (first * self.up // self.down + self.offset) // self.unit

    def stop(self, end: int) -> int:
        """The row after the last one that is read for rows before `end`."""
        stop = -(-end * self.up // self.down) + self.more + self.offset
        return -(-stop // self.unit)


@dataclass(frozen=True)
class TaskSchedule:
    """Which rows a task reads, computes and writes: all that decides when it runs."""

    step: int
    """The step of the program that it belongs to; for maps that are kept, the value."""
    rows: int
    """Rows that it computes at a time."""
    windows: tuple[RowWindow, ...] = ()
    """What it reads of maps."""
    target: int = -1
    """The map that it writes; -1 for none."""
    part: int | None = 0
    """The part of the target that it writes; None for all."""
    rate: tuple[int, int] = (1, 1)
    """Row y of it makes rows y * rate[0] / rate[1] of the target's memory."""
    scale: int = 1
    """How many rows and columns it computes for each of the step's results."""


@dataclass(frozen=True)
class TaskSource:
    """The map that a task reads, and where; see `records.TASK` for all fields."""

    map: int
    offset: int = 0
    plane: int = 0
    terms: int = 0
    lo: int = 0
    zero: int = 0


@dataclass(frozen=True)
class TaskTarget:
    """The map that a task writes, and where; see `records.TASK` for all fields."""

    map: int
    plane: int = 0
    pixel: int = 0
    pair: int = 0
    block: int = 0
    terms: int = 0
    lo: int = 0
    zero: int = 0


@dataclass(frozen=True)
class TaskResidual:
    """The map that a task adds, and where; see `records.TASK` for all fields."""

    map: int = -1
    """-1 for none."""
    offset: int = 0
    plane: int = 0
    pixel: int = 0
    pair: int = 0
    block: int = 0
    terms: int = 0
    lo: int = 0
    zero: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvTask:
    """A convolution, into a map."""

    schedule: TaskSchedule
    kind: int
    """How it is computed: one of the first nine kinds."""
    source: TaskSource
    target: TaskTarget
    residual: TaskResidual
    depth: int
    planes: int
    group_planes: int
    taps: int
    across: int
    k_blocks: int
    k_step: int
    weight: int
    bias: int
    slopes: int
    depth_to_space: int
    factor: float


@dataclass(frozen=True, kw_only=True)
class Formula:
    """Which value of its source each value of a planewise step is made of, and how; see
    `records.TASK` for all fields."""

    depth_to_space: int = 1
    space_to_depth: int = 1
    enlarge: int = 1
    plane_step: int = 1
    row_step: int = 0
    column_step: int = 0
    activation: int = 0
    slopes: int = 0
    vector: int = -1
    shifts: int = -1
    factor: float = 1.0
    join: int = 0
    up: int = 0
    """0 for what is no bicubic interpolation."""
    down: int = 0
    cubic: int = 0
    pool: int = 0
    pool_step: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanewiseTask:
    """A step without weights, or the activation and the store behind a convolution: into a map, or
    into the pixels of the result."""

    schedule: TaskSchedule
    kind: int
    """PLANEWISE or WRITE."""
    method: int
    source: TaskSource
    target: TaskTarget
    residual: TaskResidual
    formula: Formula
    planes: int
    padding: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadTask:
    """The picture, padded and enlarged, into a map."""

    schedule: TaskSchedule
    kind: int = READ
    target: TaskTarget
    enlarge: int


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadTask:
    """A map that an earlier phase has kept whole, into its ring."""

    schedule: TaskSchedule
    kind: int = LOAD
    target: TaskTarget
    as_integers: int


@dataclass(frozen=True, eq=False, kw_only=True)
class KeepTask:
    """A map to where it is kept whole."""

    schedule: TaskSchedule
    kind: int = KEEP
    source: TaskSource
    as_integers: int


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolTask:
    """A map into the sums of its planes' means, or of means of squares."""

    schedule: TaskSchedule
    kind: int = POOL
    method: int
    source: TaskSource
    planes: int
    squared: int
    rest: int


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionTask:
    """Attention in windows, one row of which it computes at a time."""

    schedule: TaskSchedule
    kind: int = ATTENTION
    source: TaskSource
    """The map of the queries."""
    keys: int
    keys_plane: int
    values: int
    values_plane: int
    target: TaskTarget
    planes: int
    padding: int
    heads: int
    depth: int
    window_rows: int
    window_columns: int
    shift_rows: int
    shift_columns: int
    overlap: int
    cell: int
    filled_to: int
    shifts_single: int
    bias: int
    factor: float


@dataclass(frozen=True, eq=False, kw_only=True)
class PlaneAttentionTask:
    """Attention between planes in windows, one row of which it computes at a time."""

    schedule: TaskSchedule
    kind: int = PLANE_ATTENTION
    source: TaskSource
    """The map of queries and keys, from the first plane of the queries on."""
    keys_plane: int
    values: int
    values_plane: int
    target: TaskTarget
    planes: int
    padding: int
    heads: int
    depth: int
    window_rows: int
    """Columns too."""
    bias: int
    """Where the temperatures stand among the constants."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DepthwiseTask:
    """A convolution of each plane, into a map."""

    schedule: TaskSchedule
    kind: int
    source: TaskSource
    target: TaskTarget
    residual: TaskResidual
    planes: int
    taps: int
    weight: int
    bias: int
    slopes: int
    activation: int
    join: int


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerNormTask:
    """A norm over the planes of each pixel, into a map."""

    schedule: TaskSchedule
    kind: int
    source: TaskSource
    target: TaskTarget
    planes: int
    depth: int
    slopes: int


@dataclass(frozen=True, eq=False, kw_only=True)
class RearrangeTask:
    """Pixels of a map that an earlier phase has kept whole, at other places."""

    schedule: TaskSchedule
    kind: int = REARRANGE
    source: TaskSource
    target: TaskTarget
    planes: int
    padding: int
    depth: int
    """Planes of a pixel of the source, padding included."""
    parts: int
    inverse: int
    as_integers: int


@dataclass(frozen=True, eq=False, kw_only=True)
class MixTask:
    """Planes of heads mixed by weights of a vector, into a map."""

    schedule: TaskSchedule
    kind: int = MIX
    source: TaskSource
    target: TaskTarget
    planes: int
    padding: int
    heads: int
    depth: int
    vector: int
    period: int


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossTask:
    """Products of a map's planes into their sums."""

    schedule: TaskSchedule
    kind: int = CROSS
    source: TaskSource
    """The map, from the first plane of the queries on."""
    keys_plane: int
    planes: int
    heads: int
    depth: int
    period: int


WindowTask = AttentionTask | PlaneAttentionTask
"""Tasks of whole windows."""
MapTask = (
    LayerNormTask | ConvTask | DepthwiseTask | PlanewiseTask | WindowTask | MixTask | RearrangeTask
)
"""Tasks of steps that write maps."""
CpuTask = MapTask | ReadTask | LoadTask | KeepTask | PoolTask | CrossTask


def fill(record: np.void, task: CpuTask) -> None:
    """Writes what a task is, for all strips, into its record."""
    record["rows"] = task.schedule.rows
    record["residual"] = -1
    names, values = _FIELDS[type(task)]
    for name, value in zip(names, values(task), strict=True):
        record[name] = value


def _fields(kind: type[Any]) -> tuple[list[str], Callable[[CpuTask], tuple[Any, ...]]]:
    """The fields of the record that a class of tasks has, and what gets them all from a task."""
    hints = get_type_hints(kind)
    found = {}
    for field in fields(kind):
        parts = hints[field.name]
        if parts in (TaskSource, TaskTarget, TaskResidual):
            for inner in fields(parts):
                name = "" if inner.name == "map" else f"_{inner.name}"
                found[field.name + name] = f"{field.name}.{inner.name}"
        elif parts is Formula:
            found |= {inner.name: f"{field.name}.{inner.name}" for inner in fields(parts)}
        elif parts is not TaskSchedule:
            found[field.name] = field.name
    return list(found), attrgetter(*found.values())


_FIELDS = {kind: _fields(kind) for kind in get_args(CpuTask)}
