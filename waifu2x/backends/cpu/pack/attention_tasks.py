"""Attention as a task."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.backends.cpu.pack.attention_shapes import END, attention_places
from waifu2x.backends.cpu.pack.packing import Packing
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import (
    ROWS,
    AttentionTask,
    CrossTask,
    MixTask,
    PlaneAttentionTask,
    RowWindow,
    TaskSchedule,
    TaskSource,
    TaskTarget,
)
from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows, CrossSums, MixPlanes

_POWERS_OF_TWO = math.log2(math.e)
"""Logits times that are what two is raised to the power of."""


def attention_task(packing: Packing, number: int, step: AttendWindows) -> AttentionTask:
    """The task of step `number`."""
    windows, layouts = step.windows, packing.maps.layouts
    target = layouts[step.target.value]
    overlap, cell = windows.overlap, windows.cell
    around = {"down": cell, "offset": -(overlap // cell), "more": 2 * (overlap // cell)}
    schedule = TaskSchedule(
        number,
        windows.rows,
        (
            RowWindow(step.source.value),
            RowWindow(step.keys.value, **around),
            RowWindow(step.values.value, **around),
        ),
        step.target.value,
        step.target.part,
    )
    table = -1
    if step.has_bias:
        # A row's biases from the last column on: as queries go to the right, keys lie further left.
        turned = step.bias[:, :, ::-1].astype(np.float64) * _POWERS_OF_TWO
        table = packing.arrays.add_constant(turned.ravel())
    pixel, pair, block = target.strides(1)
    start = target.start(step.target.part)
    return AttentionTask(
        schedule=schedule,
        source=TaskSource(step.source.value, plane=step.first[0]),
        keys=step.keys.value,
        keys_plane=step.first[1],
        values=step.values.value,
        values_plane=step.first[2],
        target=TaskTarget(step.target.value, start, pixel, pair, block),
        planes=step.planes,
        padding=target.padded[step.target.part] - step.planes,
        heads=step.heads,
        depth=step.planes // step.heads,
        window_rows=windows.rows,
        window_columns=windows.columns,
        shift_rows=windows.shift_rows,
        shift_columns=windows.shift_columns,
        overlap=overlap,
        cell=cell,
        filled_to=windows.filled_to,
        shifts_single=int(windows.shifts_single),
        bias=table,
        factor=step.scale * _POWERS_OF_TWO,
    )


def attention_floats(task: AttentionTask) -> int:
    """Floats of scratch memory that a task takes."""
    rows, columns = (
        (side + 2 * task.overlap) // task.cell for side in (task.window_rows, task.window_columns)
    )
    queries = task.window_rows * task.window_columns
    return attention_places(0, queries, rows * columns, task.depth, task.padding)[END]


def plane_attention_task(packing: Packing, number: int, step: AttendPlanes) -> PlaneAttentionTask:
    """The task of step `number`."""
    target = packing.maps.layouts[step.target.value]
    pixel, pair, block = target.strides(1)
    start, side = target.start(step.target.part), step.windows.rows
    windows = RowWindow(step.source.value), RowWindow(step.values.value)
    return PlaneAttentionTask(
        schedule=TaskSchedule(number, side, windows, step.target.value, step.target.part),
        source=TaskSource(step.source.value, plane=step.first[0]),
        keys_plane=step.first[1],
        values=step.values.value,
        values_plane=step.first[2],
        target=TaskTarget(step.target.value, start, pixel, pair, block),
        planes=step.planes,
        padding=target.padded[step.target.part] - step.planes,
        heads=step.heads,
        depth=step.planes // step.heads,
        window_rows=side,
        bias=packing.arrays.add_constant(step.temperature),
    )


def plane_attention_floats(task: PlaneAttentionTask) -> int:
    """Floats of scratch memory that a task takes: weights by key, and the norms of both."""
    row = -(-(task.depth + task.padding) // LANES) * LANES
    return (task.depth + 2) * row + LANES


def mix_task(packing: Packing, number: int, step: MixPlanes) -> MixTask:
    """The task of step `number`."""
    target = packing.maps.layouts[step.target.value]
    pixel, pair, block = target.strides(1)
    start = target.start(step.target.part)
    return MixTask(
        schedule=TaskSchedule(
            number, ROWS, (RowWindow(step.source.value),), step.target.value, step.target.part
        ),
        source=TaskSource(step.source.value, plane=step.first),
        target=TaskTarget(step.target.value, start, pixel, pair, block),
        planes=step.planes,
        padding=target.padded[step.target.part] - step.planes,
        heads=step.heads,
        depth=step.planes // step.heads,
        vector=packing.vector_starts[step.vector],
        period=step.period,
    )


def cross_task(number: int, step: CrossSums) -> CrossTask:
    """The task of step `number`."""
    return CrossTask(
        schedule=TaskSchedule(number, ROWS, (RowWindow(step.source.value),)),
        source=TaskSource(step.source.value, plane=step.first[0]),
        keys_plane=step.first[1],
        planes=step.planes,
        heads=step.heads,
        depth=step.planes // step.heads,
        period=step.period,
    )
