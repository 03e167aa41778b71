"""Maps that are kept whole between phases, and the sums of means."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import memory_row, pointer, record
from waifu2x.backends.cpu.kernels.values import clear, get, pixel_plane, pixel_start
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.layout import BY_PLANES, SUM_BITS, SUM_LIMIT
from waifu2x.backends.cpu.shapes import LANES


def _emit_sum(
    v: Emitter,
    pixels: ir.Value,
    pixel: ir.Value,
    planes: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    sums: ir.Value,
    first: ir.Value,
) -> None:
    """Adds a run of pixels, `pixel` floats apart, to sums of integers, plane by plane."""
    with v.loop(pixels) as x:
        start = v.add(source, v.mul(x, pixel))
        with v.loop(planes, LANES) as plane:
            value = v.load(scratch, v.add(start, plane))
            v.add_fixed(value, SUM_BITS, SUM_LIMIT, sums, v.add(first, plane))


_sum = vector_kernel(_emit_sum)


@native
def load_rows(task, maps, scratch, constants):  # type: ignore[no-untyped-def]
    """The next rows of a map that was kept; zeros outside it."""
    target = record(maps, task.target)
    floats, fold, pixel = pointer(task.memory, np.float32), target.fold, target.pixel_floats
    left, right = task.column, task.column + task.columns
    first, end = max(left, 0), min(right, task.memory_columns)
    for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        if row < 0 or row >= task.memory_rows or first >= end:
            for y in range(row * fold, row * fold + fold):
                clear(target, scratch, constants, y, left * fold, right * fold)
            continue
        for y in range(row * fold, row * fold + fold):
            clear(target, scratch, constants, y, left * fold, first * fold)
            clear(target, scratch, constants, y, end * fold, right * fold)
        to = memory_row(target, row) + (first - target.column) * pixel
        start = row * task.memory_floats + first * pixel
        for i in range((end - first) * pixel):
            scratch[to + i] = floats[start + i]


@native
def keep_rows(task, maps, scratch):  # type: ignore[no-untyped-def]
    """Writes the next rows of a map to where it is kept."""
    source = record(maps, task.source)
    floats, pixel = pointer(task.memory, np.float32), source.pixel_floats
    for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        start = memory_row(source, row) + (task.column - source.column) * pixel
        to = row * task.memory_floats + task.column * pixel
        for i in range(task.columns * pixel):
            floats[to + i] = scratch[start + i]


@native
def add_rows(task, maps, scratch, constants, sums):  # type: ignore[no-untyped-def]
    """Adds the next rows to the sums of a mean."""
    source = record(maps, task.source)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        if task.group == BY_PLANES:
            start = pixel_start(source, y, task.column)
            _sum(
                task.columns,
                source.pixel_floats,
                source.planes,
                scratch,
                start,
                sums,
                task.memory,
            )
            continue
        for x in range(task.column, task.column + task.columns):
            start, plane = pixel_start(source, y, x), pixel_plane(source, y, x)
            for p in range(task.planes):
                value = get(source, scratch, constants, start, plane + p)
                value = min(max(value, np.float32(-SUM_LIMIT)), np.float32(SUM_LIMIT))
                sums[task.memory + p] += np.int64(np.rint(value * np.float32(1 << SUM_BITS)))
