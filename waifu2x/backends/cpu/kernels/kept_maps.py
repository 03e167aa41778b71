"""Stores and loads maps that are kept whole between phases, and sums them for means.

A map that is kept in 16-bit integers has one scale for each 2 * PART_PAIRS values of a stored
pixel, like the inputs of 1x1 convolutions: a row holds the integers of all pixels, then all scales,
in float32. This halves the memory traffic, since no cache holds such maps.

Bound: memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.integers import blocks, largest, scale_of, store_integers
from waifu2x.backends.cpu.kernels.memory import KernelJob, memory_row, pointer, record
from waifu2x.backends.cpu.kernels.values import clear, get, pixel_plane, pixel_start
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import BY_PLANES, MAP, SUM_BITS, SUM_LIMIT
from waifu2x.backends.cpu.pack.shapes import LANES, MOST_SHORT, PART_PAIRS, TERMS

_PART = 2 * PART_PAIRS


class _Integers(NamedTuple):
    """A run of pixels of a map that is kept as integers."""

    memory: Any
    pixels: Any
    values: Any
    """The values of each pixel."""
    place: Any
    """The offset of the integers, in floats."""
    scales: Any
    """The offset of their scales, in floats."""


def _emit_sum(v: Emitter, job: KernelJob, source: ir.Value, start: ir.Value) -> None:
    """Adds a row of pixels, or their squares, to sums of integers, plane by plane; `source` is the
    record of their map, `start` an offset in its values."""
    task = job.task
    planes, floats, stored, zero_point = (
        v.field(source, name, MAP) for name in ("planes", "pixel_floats", "terms", "zero_point")
    )
    for terms in v.cases(stored, TERMS):
        pixel = v.mul(floats, 2) if terms else floats
        with v.loop(v.field(task, "columns")) as x:
            first = v.add(start, v.mul(x, pixel))
            with v.loop(planes, LANES) as plane:
                value = v.load_terms(job.scratch, v.add(first, plane), terms, planes)
                if terms:
                    zeros = v.load_constant(job.constants, v.add(zero_point, plane))
                    value = v.plus(value, zeros)
                place, rest = v.add(v.field(task, "memory"), plane), v.field(task, "rest")
                for squares in v.cases(v.field(task, "squared"), (0, 1)):
                    added = v.times(value, value) if squares else value
                    v.add_split(added, SUM_BITS, SUM_LIMIT, job.sums, place, rest, is_narrow=True)


def _scaled_runs(v: Emitter, kept: _Integers) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
    """Yields, for each run of values that share a scale, the index of its first value, its length,
    and where the scale is stored."""
    (scale,) = v.accumulators([kept.scales])
    with v.loop(kept.pixels) as x, v.loop(kept.values, _PART) as begin:
        count = v.smaller(v.add(kept.values, v.mul(begin, -1)), v.index(_PART))
        yield v.add(v.mul(x, kept.values), begin), count, v.get(scale)
        v.set(scale, v.add(v.get(scale), 1))


def _emit_kept(v: Emitter, scratch: ir.Value, source: ir.Value, kept: _Integers) -> None:
    """Quantizes a run of contiguous pixels, and stores it."""
    for start, count, scale in _scaled_runs(v, kept) if VECTOR.integers else ():
        most = largest(v, scratch, v.add(source, start), count)
        unit, fineness = scale_of(v, most, MOST_SHORT)
        v.store_float(v.first(unit), kept.memory, scale)
        own, to = v.opaque(scratch, v.add(source, start)), v.add(kept.place, v.half(start))
        for plane, vectors in blocks(v, count):
            found = [v.load(own, v.add(plane, n * LANES)) for n in range(vectors)]
            store_integers(v, found, fineness, kept.memory, v.add(to, v.half(plane)))


def _emit_loaded(v: Emitter, scratch: ir.Value, target: ir.Value, kept: _Integers) -> None:
    """Loads a run of pixels that `_emit_kept` stored."""
    memory = kept.memory
    for start, count, scale in _scaled_runs(v, kept) if VECTOR.integers else ():
        unit = v.splat(v.load_float(memory, scale))
        own, to = v.add(kept.place, v.half(start)), v.add(target, start)
        for plane, vectors in blocks(v, count):
            place = v.add(own, v.half(plane))
            loaded = v.load_pairs(memory, place) if vectors == 2 else [v.load_shorts(memory, place)]
            for n, each in enumerate(loaded):
                place = v.add(to, v.add(plane, n * LANES))
                v.store(v.times(v.floats(each), unit), scratch, place)


_sum = vector_kernel(_emit_sum)
_keep = vector_kernel(_emit_kept)
_load = vector_kernel(_emit_loaded)


@native
def _integers_at(task, memory, pixels, values, row, column):  # type: ignore[no-untyped-def]
    """Returns the place of a run of pixels of the kept map."""
    start = row * task.memory_floats
    scales = start + task.memory_columns * values // 2 + column * -(-values // _PART)
    return _Integers(memory, pixels, values, start + column * values // 2, scales)


@native
def load_rows(job):  # type: ignore[no-untyped-def]
    """Loads the next rows of a kept map, with zeros outside it."""
    task, scratch, constants = job.task, job.scratch, job.constants
    target = record(job.maps, task.target)
    floats = pointer(task.memory, np.float32)
    side, pixel = target.space_to_depth, target.pixel_floats
    left, right = task.column, task.column + task.columns
    first, end = max(left, 0), min(right, task.memory_columns)
    for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        if row < 0 or row >= task.memory_rows or first >= end:
            for y in range(row * side, row * side + side):
                clear(target, scratch, constants, y, left * side, right * side)
            continue
        for y in range(row * side, row * side + side):
            clear(target, scratch, constants, y, left * side, first * side)
            clear(target, scratch, constants, y, end * side, right * side)
        to = memory_row(target, row) + (first - target.column) * pixel
        if task.as_integers:
            _load(scratch, to, _integers_at(task, floats, end - first, pixel, row, first))
            continue
        start = row * task.memory_floats + first * pixel
        for i in range((end - first) * pixel):
            scratch[to + i] = floats[start + i]


@native
def _place(first, offset, length):  # type: ignore[no-untyped-def]
    """Returns the pixels before and behind the place `offset` pixels from `first`, and the weight
    of the second; a place beyond the edges is clamped to them."""
    offset = min(max(offset, np.float32(-first)), np.float32(length - 1 - first))
    down = np.floor(offset)
    near = min(max(first + np.int64(down), 0), length - 1)
    return near, min(near + 1, length - 1), offset - down


@native
def sample_rows(job):  # type: ignore[no-untyped-def]
    """Samples a kept map at the places that offsets give, for the next rows."""
    task, scratch = job.task, job.scratch
    target, offsets = record(job.maps, task.target), record(job.maps, task.residual)
    floats, pixel = pointer(task.memory, np.float32), task.depth
    rows, columns, row_floats = task.memory_rows, task.memory_columns, task.memory_floats
    side, groups = task.parts, task.heads
    each = task.planes // (side * side * groups)
    first, end = max(task.column, 0), min(task.column + task.columns, columns)
    for row in range(max(task.next_row, 0), min(task.next_row + task.rows, task.end_row, rows)):
        for column in range(first, end):
            to = pixel_start(target, row, column) + task.target_plane
            moves = pixel_start(offsets, row, column)
            for sample in range(side * side):
                below = np.float32(2 * (sample // side) + 1 - side) / np.float32(2 * side)
                right = np.float32(2 * (sample % side) + 1 - side) / np.float32(2 * side)
                for group in range(groups):
                    top, bottom, lower = _place(row, below + scratch[moves + 1], rows)
                    near, far, after = _place(column, right + scratch[moves], columns)
                    upper, before = np.float32(1) - lower, np.float32(1) - after
                    corner0 = top * row_floats + near * pixel + group * each
                    corner1 = top * row_floats + far * pixel + group * each
                    corner2 = bottom * row_floats + near * pixel + group * each
                    corner3 = bottom * row_floats + far * pixel + group * each
                    for p in range(each):
                        high = floats[corner0 + p] * before + floats[corner1 + p] * after
                        low = floats[corner2 + p] * before + floats[corner3 + p] * after
                        scratch[to + p] = high * upper + low * lower
                    to += each
                    moves += 2
            for i in range(task.padding):
                scratch[to + i] = np.float32(0)


@native
def rearrange_rows(job):  # type: ignore[no-untyped-def]
    """Loads the next rows of a map whose pixels are rearranged ones of a kept map."""
    task, scratch = job.task, job.scratch
    if task.residual >= 0:
        sample_rows(job)
        return
    target = record(job.maps, task.target)
    floats, pixel, planes = pointer(task.memory, np.float32), task.depth, task.planes
    rows, columns = task.memory_rows, task.memory_columns
    down, across = task.parts, task.parts
    if task.inverse:
        down, across = rows // down, columns // across
    first, end = max(task.column, 0), min(task.column + task.columns, columns)
    for row in range(max(task.next_row, 0), min(task.next_row + task.rows, task.end_row, rows)):
        y = row % down * (rows // down) + row // down
        for column in range(first, end):
            x = column % across * (columns // across) + column // across
            to = pixel_start(target, row, column) + task.target_plane
            if task.as_integers:
                _load(scratch, to, _integers_at(task, floats, 1, pixel, y, x))
                continue
            start = y * task.memory_floats + x * pixel
            for i in range(planes):
                scratch[to + i] = floats[start + i]
            for i in range(planes, planes + task.padding):
                scratch[to + i] = np.float32(0)


@native
def keep_rows(job):  # type: ignore[no-untyped-def]
    """Stores the next rows of a map in its kept copy."""
    task, scratch = job.task, job.scratch
    source = record(job.maps, task.source)
    floats, pixel = pointer(task.memory, np.float32), source.pixel_floats
    for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        start = memory_row(source, row) + (task.column - source.column) * pixel
        if task.as_integers:
            kept = _integers_at(task, floats, task.columns, pixel, row, task.column)
            _keep(scratch, start, kept)
            continue
        to = row * task.memory_floats + task.column * pixel
        for i in range(task.columns * pixel):
            floats[to + i] = scratch[start + i]


@native
def add_rows(job):  # type: ignore[no-untyped-def]
    """Adds the next rows to the sums of a mean."""
    task, scratch, sums = job.task, job.scratch, job.sums
    source = record(job.maps, task.source)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        if task.method == BY_PLANES:
            values = 2 if source.terms else 1
            _sum(job, source, pixel_start(source, y, task.column) * values)
            continue
        for x in range(task.column, task.column + task.columns):
            start, plane = pixel_start(source, y, x), pixel_plane(source, y, x)
            for p in range(task.planes):
                value = get(source, scratch, job.constants, start, plane + p)
                if task.squared:
                    value = value * value
                value = min(max(value, -np.float32(SUM_LIMIT)), np.float32(SUM_LIMIT))
                whole = np.rint(value * np.float32(1 << SUM_BITS[0]))
                left = value - whole * np.float32(1 / (1 << SUM_BITS[0]))
                sums[task.memory + p] += np.int64(whole)
                small = np.rint(left * np.float32(1 << SUM_BITS[1]))
                sums[task.memory + task.rest + p] += np.int64(small)
