"""Planewise steps: pixels from map to map, with whatever no convolution does on its way.

Value by value, so that every depth-to-space and every layout of a map is right. The common ones go
by rows: maps of many planes, times a vector (squeeze and excite), through an activation, added to
another or gated by it, by vectors of planes; and pixels from and to maps of floats, by
depth-to-space or enlarged, and with an addition.

Bound: memory, or rather the caches; a few percent of any network.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.activations import activated, emit_activated, joined
from waifu2x.backends.cpu.kernels.memory import memory_row, pixel_row, record
from waifu2x.backends.cpu.kernels.reduced import bilinear_row, maxima_row
from waifu2x.backends.cpu.kernels.values import get, pixel_plane, pixel_start, put
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import (
    BY_FLOATS,
    BY_MAXIMA,
    BY_PLANES,
    BY_RESIZING,
    BY_SIZES,
    FUNCTIONS,
    JOINED,
    TASK,
)
from waifu2x.backends.cpu.pack.shapes import LANES, TERMS
from waifu2x.networks.expressions import has_parameter


def _emit_planes(
    v: Emitter,
    columns: ir.Value,
    task: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    source_pixel: ir.Value,
    residual: ir.Value,
    residual_pixel: ir.Value,
    constants: ir.Value,
    vectors: ir.Value,
    target: ir.Value,
    target_pixel: ir.Value,
    target_pair: ir.Value,
) -> None:
    """All planes of a row and what `combine` does with them, by vectors; maps of any layout.

    Places and strides count values of their maps; those of the target are to the pixel after an
    even one and to the one after that. Planes beyond those of the source are zeros.
    """

    def field(name: str) -> ir.Value:
        return v.field(task, TASK, name)

    def read(map_: str, place: ir.Value, plane: ir.Value) -> None:
        """A vector of the source, or adds one of the residual."""
        for terms in v.cases(field(f"{map_}_terms"), TERMS):
            value = v.load_terms(scratch, v.add(place, plane), terms, field(f"{map_}_lo"))
            if terms:
                zero_point = v.load_constant(constants, v.add(field(f"{map_}_zero"), plane))
                value = v.plus(value, zero_point)
            if map_ == "residual":
                for join in v.cases(field("join"), range(len(JOINED))):
                    v.set(slot, emit_activated(v, JOINED[join], v.get(slot), value))
            else:
                v.set(slot, v.first_lanes(value, v.minus_offset(planes, plane)))

    planes = field("planes")
    factors, factor = field("vector"), v.splat(v.narrow(field("factor")))
    (slot,) = v.accumulators([v.splat(0.0)])
    with v.loop(columns) as x:
        start, other = v.add(source, v.mul(source_pixel, x)), v.mul(residual_pixel, x)
        other = v.add(residual, other)
        to = v.add(target, v.pixel((target_pixel, target_pair), x))
        with v.loop(v.add(planes, field("padding")), LANES) as plane:
            read("source", start, plane)
            own = v.get(slot)
            for code in v.cases(field("activation"), range(1, len(FUNCTIONS))):
                function = FUNCTIONS[code]
                parameter = v.splat(0.0)
                if has_parameter(function):
                    parameter = v.load_constant(constants, v.add(field("slopes"), plane))
                v.set(slot, emit_activated(v, function, own, parameter))
            for _ in v.cases(v.at_least(factors, 0), (1,)):
                v.set(slot, v.times(v.get(slot), v.load(vectors, v.add(factors, plane))))
            for _ in v.cases(v.at_least(field("shifts"), 0), (1,)):
                shift = v.load(vectors, v.add(field("shifts"), plane))
                v.set(slot, v.plus(v.get(slot), shift))
            v.set(slot, v.times(v.get(slot), factor))
            for _ in v.cases(v.at_least(field("residual"), 0), (1,)):
                read("residual", other, plane)
            for terms in v.cases(field("target_terms"), TERMS):
                value = v.get(slot)
                if terms:
                    zero_point = v.load_constant(constants, v.add(field("target_zero"), plane))
                    value = v.minus(value, zero_point)
                v.store_terms(value, scratch, v.add(to, plane), terms, field("target_lo"))


def _emit_mixed(
    v: Emitter,
    scratch: ir.Value,
    constants: ir.Value,
    taps: ir.Value,
    place_0: ir.Value,
    place_1: ir.Value,
    place_2: ir.Value,
    place_3: ir.Value,
    target: ir.Value,
) -> None:
    """The sum of four pixels of up to LANES planes, each times its tap."""
    products = [
        v.times(v.load(scratch, place), v.splat(v.load_float(constants, v.add(taps, n))))
        for n, place in enumerate((place_0, place_1, place_2, place_3))
    ]
    total = v.plus(products[0], products[1])
    v.store(v.plus(v.plus(total, products[2]), products[3]), scratch, target)


def _emit_runs(
    v: Emitter,
    count: ir.Value,
    run: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    step: ir.Value,
    target: ir.Value,
    factor: ir.Value,
) -> None:
    """Copies runs of floats that lie `step` apart, times a factor, one behind the other."""
    by = v.splat(factor)
    with v.loop(count) as n:
        start, to = v.add(source, v.mul(n, step)), v.add(target, v.mul(n, run))
        with v.loop(run, LANES) as i:
            v.store(v.times(v.load(scratch, v.add(start, i)), by), scratch, v.add(to, i))


_planes = vector_kernel(_emit_planes)
_mixed = vector_kernel(_emit_mixed)
_runs = vector_kernel(_emit_runs)


@native
def source_pixel(task, source, y, x):  # type: ignore[no-untyped-def]
    """Where a task finds result pixel (y, x): the start of its memory, and the first plane."""
    plane, side, enlarge = task.source_plane, task.depth_to_space, task.enlarge
    if side > 1:
        plane += y % side * task.row_step + x % side * task.column_step
        y, x = y // side, x // side
    y, x = y + task.source_offset, x + task.source_offset
    if enlarge > 1:
        y, x = y // enlarge, x // enlarge
    return pixel_start(source, y, x), plane + pixel_plane(source, y, x)


@native
def gathered(task, source, scratch, constants, y, x, p):  # type: ignore[no-untyped-def]
    """Plane p of result pixel (y, x) in the source of a space-to-depth."""
    side = task.space_to_depth
    inner = p % side**2
    start, plane = source_pixel(task, source, y * side + inner // side, x * side + inner % side)
    return get(source, scratch, constants, start, plane + p // side**2)


@native
def combine(task, maps, scratch, constants, vectors, value, y, x, plane):  # type: ignore[no-untyped-def]
    """value, activated, * factors * factor, joined to its residual, at a pixel and plane."""
    if task.activation:
        side, first = task.depth_to_space, task.slopes + plane * task.plane_step
        parameter = constants[first + y % side * task.row_step + x % side * task.column_step]
        value = activated(task.activation, value, parameter)
    if task.vector >= 0:
        value *= vectors[task.vector + plane]
    if task.shifts >= 0:
        value += vectors[task.shifts + plane]
    value *= np.float32(task.factor)
    if task.residual >= 0:
        residual = record(maps, task.residual)
        y, x = y + task.residual_offset, x + task.residual_offset
        first = pixel_plane(residual, y, x) + task.residual_plane
        added = get(residual, scratch, constants, pixel_start(residual, y, x), first + plane)
        value = joined(task.join, value, added)
    return value


@native
def resize_row(task, source, scratch, constants, y, to, pixel, planes):  # type: ignore[no-untyped-def]
    """Row y of a bicubic interpolation of a map of floats, stored by single pixels, to pixels
    `pixel` floats apart: first down the columns, to a row of scratch memory, then along it."""
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
            # More lanes than planes: the results of the next pixels overwrite them.
            _mixed(scratch, constants, taps, p0, p1, p2, p3, to)
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
        for p in range(planes, planes + task.padding):
            scratch[to + p] = np.float32(0)
        to += pixel


@native
def copy_floats(task, maps, scratch, y, to, pixel):  # type: ignore[no-untyped-def]
    """Row y of a step between maps of floats, stored by single pixels, to pixels `pixel` floats
    apart.

    All that compiled code would read again after every store is copied first.
    """
    source, side, planes = record(maps, task.source), task.depth_to_space, task.planes
    enlarge, padding = task.enlarge, task.padding
    step, column_step, source_pixel_floats = task.plane_step, task.column_step, source.pixel_floats
    factor, has_residual, added, added_pixel = np.float32(task.factor), task.residual >= 0, 0, 0
    # Only one of them is above 1.
    x = (task.column // side + task.source_offset) // enlarge
    start = pixel_start(source, (y // side + task.source_offset) // enlarge, x)
    start += task.source_plane + y % side * task.row_step
    if has_residual:
        residual = record(maps, task.residual)
        added_pixel = residual.pixel_floats
        x = task.column + task.residual_offset
        added = pixel_start(residual, y + task.residual_offset, x) + task.residual_plane
    inner, copies = task.column % side, side
    if enlarge > 1:
        inner, copies = (task.column + task.source_offset) % enlarge, enlarge
        column_step = 0
    if (
        copies > 1
        and inner == task.columns % copies == 0
        and step == 1
        and column_step == planes == pixel
        and not has_residual
    ):
        # The last vector of each run goes beyond it, where the next one overwrites that.
        run = copies * planes
        _runs(task.columns // copies, run, scratch, start, source_pixel_floats, to, factor)
        return
    for _ in range(task.columns):
        first = start + inner * column_step
        for p in range(planes):
            value = scratch[first + p * step] * factor
            if has_residual:
                value += scratch[added + p]
            scratch[to + p] = value
        for p in range(planes, planes + padding):
            scratch[to + p] = np.float32(0)
        to, added, inner = to + pixel, added + added_pixel, inner + 1
        if inner == copies:
            start, inner = start + source_pixel_floats, 0


@native
def unshuffle_floats(task, maps, scratch, y, to, pixel):  # type: ignore[no-untyped-def]
    """Row y of a space-to-depth between maps of floats, stored by single pixels, to pixels `pixel`
    floats apart."""
    source, side, columns = record(maps, task.source), task.space_to_depth, task.columns
    planes, made, padding = task.planes // side**2, task.planes, task.padding
    x, step = task.column * side + task.source_offset, source.pixel_floats
    for dy in range(side):
        start = pixel_start(source, y * side + dy + task.source_offset, x) + task.source_plane
        for column in range(columns):
            first = to + column * pixel + dy * side
            for dx in range(side):
                for plane in range(planes):
                    scratch[first + dx + plane * side**2] = scratch[start + plane]
                start += step
    for column in range(columns):
        for plane in range(made, made + padding):
            scratch[to + column * pixel + plane] = np.float32(0)


@native
def planewise_rows(task, maps, scratch, constants, vectors):  # type: ignore[no-untyped-def]
    """The next rows of a planewise step."""
    source, target = record(maps, task.source), record(maps, task.target)
    step, planes = task.plane_step, task.planes
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        if task.method == BY_FLOATS:
            to = pixel_start(target, y, task.column) + task.target_plane
            if task.space_to_depth > 1:
                unshuffle_floats(task, maps, scratch, y, to, target.pixel_floats)
            else:
                copy_floats(task, maps, scratch, y, to, target.pixel_floats)
            continue
        if task.method == BY_PLANES:
            start, plane = source_pixel(task, source, y, task.column)
            pixel = source.pixel_floats
            if source.terms:
                start, pixel = 2 * start, 2 * pixel
            added, added_pixel = 0, 0
            if task.residual >= 0:
                other, x = record(maps, task.residual), task.column + task.residual_offset
                added = pixel_row(other, y + task.residual_offset, x) + task.residual_plane
                added_pixel = task.residual_pixel
            _planes(
                task.columns,
                task,
                scratch,
                start + plane,
                pixel,
                added,
                added_pixel,
                constants,
                vectors,
                pixel_row(target, y, task.column) + task.target_plane,
                task.target_pixel,
                task.target_pair,
            )
            continue
        if task.method == BY_RESIZING:
            to = pixel_start(target, y, task.column) + task.target_plane
            resize_row(task, source, scratch, constants, y, to, target.pixel_floats, planes)
            continue
        if task.method == BY_MAXIMA:
            to = pixel_start(target, y, task.column) + task.target_plane
            maxima_row(task, source, scratch, y, to, target.pixel_floats)
            continue
        if task.method == BY_SIZES:
            to = pixel_start(target, y, task.column) + task.target_plane
            bilinear_row(task, source, target, scratch, y, to, target.pixel_floats)
            continue
        for x in range(task.column, task.column + task.columns):
            to, first = pixel_start(target, y, x), pixel_plane(target, y, x) + task.target_plane
            start, plane = source_pixel(task, source, y, x)
            for p in range(planes):
                if task.space_to_depth == 1:
                    value = get(source, scratch, constants, start, plane + p * step)
                else:
                    value = gathered(task, source, scratch, constants, y, x, p)
                value = combine(task, maps, scratch, constants, vectors, value, y, x, p)
                put(target, scratch, constants, to, first + p, value)
            for p in range(planes, planes + task.padding):
                put(target, scratch, constants, to, first + p, np.float32(0))
