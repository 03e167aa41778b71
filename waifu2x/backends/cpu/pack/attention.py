"""Packs attention in windows of pixels, and between planes."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.backends.cpu.pack.packing import Packers, Packing
from waifu2x.backends.cpu.pack.records import ATTENTION, MIX, PLANE_ATTENTION
from waifu2x.backends.cpu.pack.tasks import ROWS, CpuTask, RowWindow, TaskSchedule
from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows, MixPlanes

_POWERS_OF_TWO = math.log2(math.e)
"""The factor of logits for powers of two instead of e."""


def pack_windows(packing: Packing, number: int, step: AttendWindows) -> list[CpuTask]:
    """Packs step `number`: a row of windows at a time."""
    windows = step.windows
    overlap, cell = windows.overlap, windows.cell
    around = {"down": cell, "offset": -(overlap // cell), "more": 2 * (overlap // cell)}
    read = (
        RowWindow(step.source.value),
        RowWindow(step.keys.value, **around),
        RowWindow(step.values.value, **around),
    )
    table = -1
    if step.has_bias:
        # Rows of biases are reversed: from query to query, the relative position of a key moves
        # left.
        turned = step.bias[:, :, ::-1].astype(np.float64) * _POWERS_OF_TWO
        table = packing.arrays.add_constant(turned.ravel())
    fields = _fields(packing, step, step.first[0]) | {
        "keys": step.keys.value,
        "keys_plane": step.first[1],
        "values": step.values.value,
        "values_plane": step.first[2],
        "window_rows": windows.rows,
        "window_columns": windows.columns,
        "shift_rows": windows.shift_rows,
        "shift_columns": windows.shift_columns,
        "overlap": overlap,
        "cell": cell,
        "filled_to": windows.filled_to,
        "shifts_single": int(windows.shifts_single),
        "bias": table,
    }
    schedule = TaskSchedule(number, windows.rows, read, step.target.value, step.target.part)
    return [CpuTask(schedule, ATTENTION, fields, step.scale * _POWERS_OF_TWO)]


def pack_planes(packing: Packing, number: int, step: AttendPlanes) -> list[CpuTask]:
    """Packs step `number`: a row of windows, which are square, at a time."""
    side = step.windows.rows
    read = RowWindow(step.source.value), RowWindow(step.values.value)
    fields = _fields(packing, step, step.first[0]) | {
        "keys_plane": step.first[1],
        "values": step.values.value,
        "values_plane": step.first[2],
        "window_rows": side,
        "bias": packing.arrays.add_constant(step.temperature),
    }
    schedule = TaskSchedule(number, side, read, step.target.value, step.target.part)
    return [CpuTask(schedule, PLANE_ATTENTION, fields)]


def pack_mix(packing: Packing, number: int, step: MixPlanes) -> list[CpuTask]:
    """Packs step `number`."""
    fields = _fields(packing, step, step.first) | {
        "vector": packing.vector_starts[step.vector],
        "period": step.period,
    }
    read = (RowWindow(step.source.value),)
    schedule = TaskSchedule(number, ROWS, read, step.target.value, step.target.part)
    return [CpuTask(schedule, MIX, fields)]


def _fields(
    packing: Packing, step: AttendWindows | AttendPlanes | MixPlanes, first: int
) -> dict[str, int]:
    """Returns the fields of the source, from its plane `first` on, of the target and the heads."""
    return {
        **packing.source(step.source),
        "source_plane": first,
        **packing.target(step.target),
        **packing.padding(step.target, step.planes),
        "heads": step.heads,
        "depth": step.planes // step.heads,
    }


PACKERS: Packers = {AttendWindows: pack_windows, AttendPlanes: pack_planes, MixPlanes: pack_mix}
