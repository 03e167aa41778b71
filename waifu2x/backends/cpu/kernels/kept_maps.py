"""Maps that are kept whole between phases, and the sums of means.

A map that is kept in 16-bit integers has one scale for each 2 * PART_PAIRS values of a pixel of
memory, as 1x1 convolutions have for their inputs: a row is the integers of all pixels, then all
scales, float32. That is half the memory, which no cache holds.

Bound: memory.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.integers import blocks, largest, scale_of, store_integers
from waifu2x.backends.cpu.kernels.memory import memory_row, pointer, record
from waifu2x.backends.cpu.kernels.values import clear, get, pixel_plane, pixel_start
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import BY_PLANES, SUM_BITS, SUM_LIMIT
from waifu2x.backends.cpu.pack.shapes import LANES, MOST_SHORT, PART_PAIRS, TERMS

_PART = 2 * PART_PAIRS


def _emit_sum(
    v: Emitter,
    pixels: ir.Value,
    pixel: ir.Value,
    planes: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    terms_stored: ir.Value,
    zero_point: ir.Value,
    constants: ir.Value,
    sums: ir.Value,
    first: ir.Value,
    squared: ir.Value,
    rest: ir.Value,
) -> None:
    """Adds a run of pixels, `pixel` values apart, or their squares, to sums of integers, plane by
    plane; `rest` as of `add_split`."""
    for terms in v.cases(terms_stored, TERMS):
        with v.loop(pixels) as x:
            start = v.add(source, v.mul(x, pixel))
            with v.loop(planes, LANES) as plane:
                value = v.load_terms(scratch, v.add(start, plane), terms, planes)
                if terms:
                    value = v.plus(value, v.load_constant(constants, v.add(zero_point, plane)))
                place = v.add(first, plane)
                for squares in v.cases(squared, (0, 1)):
                    added = v.times(value, value) if squares else value
                    v.add_split(added, SUM_BITS, SUM_LIMIT, sums, place, rest, is_narrow=True)


def _emit_kept(
    v: Emitter,
    pixels: ir.Value,
    values: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    memory: ir.Value,
    target: ir.Value,
    scales: ir.Value,
) -> None:
    """Writes a run of pixels of so many values, one behind the other, as integers."""
    if not VECTOR.integers:
        return
    (scale,) = v.accumulators([scales])
    v.set(scale, scales)
    with v.loop(pixels) as x:
        first = v.mul(x, values)
        with v.loop(values, _PART) as begin:
            start = v.add(first, begin)
            count = v.smaller(v.add(values, v.mul(begin, -1)), v.index(_PART))
            most = largest(v, scratch, v.add(source, start), count)
            unit, fineness = scale_of(v, most, MOST_SHORT)
            v.store_float(v.first(unit), memory, v.get(scale))
            v.set(scale, v.add(v.get(scale), 1))
            own, to = v.opaque(scratch, v.add(source, start)), v.add(target, v.half(start))
            for plane, vectors in blocks(v, count):
                place = v.add(to, v.half(plane))
                store_integers(v, own, plane, LANES, vectors, fineness, memory, place)


def _emit_loaded(
    v: Emitter,
    pixels: ir.Value,
    values: ir.Value,
    memory: ir.Value,
    source: ir.Value,
    scales: ir.Value,
    scratch: ir.Value,
    target: ir.Value,
) -> None:
    """Reads what `_emit_kept` wrote."""
    if not VECTOR.integers:
        return
    (scale,) = v.accumulators([scales])
    v.set(scale, scales)
    with v.loop(pixels) as x:
        first = v.mul(x, values)
        with v.loop(values, _PART) as begin:
            start = v.add(first, begin)
            count = v.smaller(v.add(values, v.mul(begin, -1)), v.index(_PART))
            unit = v.splat(v.load_float(memory, v.get(scale)))
            v.set(scale, v.add(v.get(scale), 1))
            own, to = v.add(source, v.half(start)), v.add(target, start)
            for plane, vectors in blocks(v, count):
                place = v.add(own, v.half(plane))
                loaded = (
                    v.load_pairs(memory, place) if vectors == 2 else [v.load_shorts(memory, place)]
                )
                for n, each in enumerate(loaded):
                    place = v.add(to, v.add(plane, n * LANES))
                    v.store(v.times(v.floats(each), unit), scratch, place)


_sum = vector_kernel(_emit_sum)
_kept = vector_kernel(_emit_kept)
_loaded = vector_kernel(_emit_loaded)


@native
def load_rows(task, maps, scratch, constants):  # type: ignore[no-untyped-def]
    """The next rows of a map that was kept; zeros outside it."""
    target = record(maps, task.target)
    floats, side, pixel = (
        pointer(task.memory, np.float32),
        target.space_to_depth,
        target.pixel_floats,
    )
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
            start = row * task.memory_floats
            scales = start + task.memory_columns * pixel // 2 + first * -(-pixel // _PART)
            start += first * pixel // 2
            _loaded(end - first, pixel, floats, start, scales, scratch, to)
            continue
        start = row * task.memory_floats + first * pixel
        for i in range((end - first) * pixel):
            scratch[to + i] = floats[start + i]


@native
def rearrange_rows(task, maps, scratch):  # type: ignore[no-untyped-def]
    """The next rows of a map whose pixels are those of a kept one, at other places."""
    target = record(maps, task.target)
    floats, pixel, planes = pointer(task.memory, np.float32), task.depth, task.planes
    rows, columns = task.memory_rows, task.memory_columns
    down, across = task.parts, task.parts
    if task.inverse:
        down, across = rows // down, columns // across
    first, end = max(task.column, 0), min(task.column + task.columns, columns)
    for row in range(max(task.next_row, 0), min(task.next_row + task.rows, task.end_row, rows)):
        begin = (row % down * (rows // down) + row // down) * task.memory_floats
        for column in range(first, end):
            x = column % across * (columns // across) + column // across
            to = pixel_start(target, row, column) + task.target_plane
            if task.as_integers:
                scales = begin + columns * pixel // 2 + x * -(-pixel // _PART)
                _loaded(1, pixel, floats, begin + x * pixel // 2, scales, scratch, to)
                continue
            start = begin + x * pixel
            for i in range(planes):
                scratch[to + i] = floats[start + i]
            for i in range(planes, planes + task.padding):
                scratch[to + i] = np.float32(0)


@native
def keep_rows(task, maps, scratch):  # type: ignore[no-untyped-def]
    """Writes the next rows of a map to where it is kept."""
    source = record(maps, task.source)
    floats, pixel = pointer(task.memory, np.float32), source.pixel_floats
    for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        start = memory_row(source, row) + (task.column - source.column) * pixel
        if task.as_integers:
            to = row * task.memory_floats
            scales = to + task.memory_columns * pixel // 2 + task.column * -(-pixel // _PART)
            to += task.column * pixel // 2
            _kept(task.columns, pixel, scratch, start, floats, to, scales)
            continue
        to = row * task.memory_floats + task.column * pixel
        for i in range(task.columns * pixel):
            floats[to + i] = scratch[start + i]


@native
def add_rows(task, maps, scratch, constants, sums):  # type: ignore[no-untyped-def]
    """Adds the next rows to the sums of a mean."""
    source = record(maps, task.source)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        if task.method == BY_PLANES:
            values = 2 if source.terms else 1
            _sum(
                task.columns,
                source.pixel_floats * values,
                source.planes,
                scratch,
                pixel_start(source, y, task.column) * values,
                source.terms,
                source.zero_point,
                constants,
                sums,
                task.memory,
                task.squared,
                task.rest,
            )
            continue
        for x in range(task.column, task.column + task.columns):
            start, plane = pixel_start(source, y, x), pixel_plane(source, y, x)
            for p in range(task.planes):
                value = get(source, scratch, constants, start, plane + p)
                if task.squared:
                    value = value * value
                value = min(max(value, -np.float32(SUM_LIMIT)), np.float32(SUM_LIMIT))
                whole = np.rint(value * np.float32(1 << SUM_BITS[0]))
                left = value - whole * np.float32(1 / (1 << SUM_BITS[0]))
                sums[task.memory + p] += np.int64(whole)
                small = np.rint(left * np.float32(1 << SUM_BITS[1]))
                sums[task.memory + task.rest + p] += np.int64(small)
