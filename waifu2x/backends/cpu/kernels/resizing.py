"""Computes bicubic interpolation, bilinear enlargement to a size, and max pooling.

Maps are floats, stored by single pixels, and each plane is computed by itself.

Bound: loads of rows and pixels that the nearest caches hold.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import KernelJob, memory_row, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.shapes import LANES


def _emit_mixed(
    v: Emitter, job: KernelJob, taps: ir.Value, places: tuple[ir.Value, ...], target: ir.Value
) -> None:
    """Computes the sum of four pixels of up to LANES planes, each times its tap."""
    products = [
        v.times(v.load(job.scratch, place), v.splat(v.load_float(job.constants, v.add(taps, n))))
        for n, place in enumerate(places)
    ]
    total = v.plus(products[0], products[1])
    v.store(v.plus(v.plus(total, products[2]), products[3]), job.scratch, target)


_mixed = vector_kernel(_emit_mixed)


@native
def bicubic_row(job, y, to, pixel):  # type: ignore[no-untyped-def]
    """Computes row y of a bicubic interpolation, to pixels `pixel` floats apart: first vertically,
    to a row of scratch memory, then horizontally."""
    task, scratch, constants = job.task, job.scratch, job.constants
    source, planes = record(job.maps, task.source), task.planes
    up, down, step = task.up, task.down, source.pixel_floats
    top = ((2 * y + 1) * down - up) // (2 * up) - 1
    last, end = source.rows - 1, source.columns - 1
    first = min(max(((2 * task.column + 1) * down - up) // (2 * up) - 1, 0), end)
    final = ((2 * (task.column + task.columns) - 1) * down - up) // (2 * up) + 2
    count = min(max(final, 0), end) + 1 - first
    start = (first - source.column) * step
    row0 = start + memory_row(source, min(max(top, 0), last))
    row1 = start + memory_row(source, min(max(top + 1, 0), last))
    row2 = start + memory_row(source, min(max(top + 2, 0), last))
    row3 = start + memory_row(source, min(max(top + 3, 0), last))
    taps = task.cubic + y % up * 4
    y0, y1, y2, y3 = constants[taps], constants[taps + 1], constants[taps + 2], constants[taps + 3]
    between = task.inputs
    runs, each = (1, count * planes) if step == planes else (count, planes)
    for run in range(runs):
        shift, made = run * step, between + run * planes
        for i in range(each):
            value = scratch[row0 + shift + i] * y0 + scratch[row1 + shift + i] * y1
            value += scratch[row2 + shift + i] * y2 + scratch[row3 + shift + i] * y3
            scratch[made + i] = value
    for x in range(task.column, task.column + task.columns):
        left = ((2 * x + 1) * down - up) // (2 * up) - 1
        taps = task.cubic + x % up * 4
        p0 = between + (min(max(left, 0), end) - first) * planes
        p1 = between + (min(max(left + 1, 0), end) - first) * planes
        p2 = between + (min(max(left + 2, 0), end) - first) * planes
        p3 = between + (min(max(left + 3, 0), end) - first) * planes
        if pixel == planes <= LANES:
            # Stores more lanes than planes; the results of the next pixels overwrite the others.
            _mixed(job, taps, (p0, p1, p2, p3), to)
            to += pixel
            continue
        x0, x1, x2, x3 = (
            constants[taps],
            constants[taps + 1],
            constants[taps + 2],
            constants[taps + 3],
        )
        for p in range(planes):
            total = scratch[p0 + p] * x0 + scratch[p1 + p] * x1
            scratch[to + p] = (total + scratch[p2 + p] * x2) + scratch[p3 + p] * x3
        _pad(job, to)
        to += pixel


@native
def _held(source, column):  # type: ignore[no-untyped-def]
    """Returns the offset of a column of the source in a row of its ring, clamped to the ring."""
    inner = min(max(column, 0), source.columns - 1) - source.column
    return min(max(inner, 0), source.row_floats // source.pixel_floats - 1) * source.pixel_floats


@native
def _pad(job, to):  # type: ignore[no-untyped-def]
    """Zeroes the padding planes of a pixel."""
    planes = job.task.planes
    for p in range(planes, planes + job.task.padding):
        job.scratch[to + p] = np.float32(0)


@native
def maxima_row(job, y, to, pixel):  # type: ignore[no-untyped-def]
    """Computes row y of maxima, to pixels `pixel` floats apart."""
    task, scratch = job.task, job.scratch
    source = record(job.maps, task.source)
    kernel, planes, last = task.pool, task.planes, source.rows - 1
    for x in range(task.column, task.column + task.columns):
        for dy in range(kernel):
            row = memory_row(source, min(max(y * task.pool_step + dy, 0), last))
            for dx in range(kernel):
                place = row + _held(source, x * task.pool_step + dx)
                if dy == dx == 0:
                    for p in range(planes):
                        scratch[to + p] = scratch[place + p]
                else:
                    for p in range(planes):
                        scratch[to + p] = max(scratch[to + p], scratch[place + p])
        _pad(job, to)
        to += pixel


@native
def bilinear_row(job, y, to, pixel):  # type: ignore[no-untyped-def]
    """Computes row y of a bilinear enlargement to the target's size, to pixels `pixel` floats
    apart, vertically first."""
    task, scratch = job.task, job.scratch
    source, target = record(job.maps, task.source), record(job.maps, task.target)
    rows, columns, planes = target.rows, target.columns, task.planes
    place = max((2 * y + 1) * source.rows - rows, 0)
    near, last = place // (2 * rows), source.rows - 1
    lower = np.float32(place % (2 * rows)) / np.float32(2 * rows)
    upper = np.float32(1) - lower
    row0 = memory_row(source, min(near, last))
    row1 = memory_row(source, min(near + 1, last))
    for x in range(task.column, task.column + task.columns):
        place = max((2 * x + 1) * source.columns - columns, 0)
        left = _held(source, place // (2 * columns))
        right = _held(source, place // (2 * columns) + 1)
        after = np.float32(place % (2 * columns)) / np.float32(2 * columns)
        before = np.float32(1) - after
        for p in range(planes):
            first = scratch[row0 + left + p] * upper + scratch[row1 + left + p] * lower
            second = scratch[row0 + right + p] * upper + scratch[row1 + right + p] * lower
            scratch[to + p] = first * before + second * after
        _pad(job, to)
        to += pixel
