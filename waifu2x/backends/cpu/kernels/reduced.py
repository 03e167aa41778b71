"""Maxima over pixels, and bilinear enlargement to a size: of maps of floats that are stored by
single pixels, plane by plane.

Bound: loads of reduced maps, which the nearest caches hold.
"""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import memory_row


@native
def _held(source, column):  # type: ignore[no-untyped-def]
    """Where a column of the source lies in a row of its ring: one that the ring has."""
    inner = min(max(column, 0), source.columns - 1) - source.column
    return min(max(inner, 0), source.row_floats // source.pixel_floats - 1) * source.pixel_floats


@native
def _padded(scratch, task, to, planes):  # type: ignore[no-untyped-def]
    """Makes the planes behind those of a pixel zero."""
    for p in range(planes, planes + task.padding):
        scratch[to + p] = np.float32(0)


@native
def maxima_row(task, source, scratch, y, to, pixel):  # type: ignore[no-untyped-def]
    """Row y of maxima, to pixels `pixel` floats apart."""
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
        _padded(scratch, task, to, planes)
        to += pixel


@native
def bilinear_row(task, source, target, scratch, y, to, pixel):  # type: ignore[no-untyped-def]
    """Row y of a map enlarged to the target's size, to pixels `pixel` floats apart: down the
    columns first."""
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
        _padded(scratch, task, to, planes)
        to += pixel
