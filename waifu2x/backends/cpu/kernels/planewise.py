"""Computes planewise steps, from map to map, for all work that no epilogue of a convolution does.

The general way goes value by value, for every depth-to-space and every layout of a map. Common
steps go by rows: maps of many planes by vectors of planes, times a vector (squeeze and excite),
through an activation, added to another map or gated by it; and maps of floats by pixels, by
depth-to-space or enlarged, and with an addition.

Bound: memory, or rather the caches; a few percent of any network.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.activations import activated, emit_activated, joined
from waifu2x.backends.cpu.kernels.memory import KernelJob, pixel_row, record
from waifu2x.backends.cpu.kernels.resizing import bicubic_row, bilinear_row, maxima_row
from waifu2x.backends.cpu.kernels.values import get, pixel_plane, pixel_start, put
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.shapes import LANES, TERMS
from waifu2x.networks.expressions import has_parameter


def _emit_planes(
    v: Emitter,
    job: KernelJob,
    source: ir.Value,
    source_pixel: ir.Value,
    residual: ir.Value,
    target: ir.Value,
) -> None:
    """Computes all planes of a row as `combine` does, by vectors, for maps of any layout.

    Places and strides count values of their maps. Planes beyond those of the source are zeros.
    """
    scratch, constants, vectors = job.scratch, job.constants, job.vectors

    def field(name: str) -> ir.Value:
        return v.field(job.task, name)

    def read(map_: str, place: ir.Value, plane: ir.Value) -> None:
        """Loads a vector of the source, or joins one of the residual."""
        for terms in v.cases(field(f"{map_}_terms"), TERMS):
            value = v.load_terms(scratch, v.add(place, plane), terms, field(f"{map_}_lo"))
            if terms:
                zero_point = v.load_constant(constants, v.add(field(f"{map_}_zero"), plane))
                value = v.plus(value, zero_point)
            if map_ == "residual":
                for join in v.cases(field("join"), range(len(records.JOINED))):
                    v.set(slot, emit_activated(v, records.JOINED[join], v.get(slot), value))
            else:
                v.set(slot, v.first_lanes(value, v.minus_offset(planes, plane)))

    planes = field("planes")
    factors, factor = field("vector"), v.splat(v.narrow(field("factor")))
    target_strides = field("target_pixel"), field("target_pair")
    (slot,) = v.accumulators([v.splat(0.0)])
    with v.loop(field("columns")) as x:
        start = v.add(source, v.mul(source_pixel, x))
        other = v.add(residual, v.mul(field("residual_pixel"), x))
        to = v.add(target, v.pixel(target_strides, x))
        with v.loop(v.add(planes, field("padding")), LANES) as plane:
            read("source", start, plane)
            own = v.get(slot)
            for code in v.cases(field("activation"), range(1, len(records.FUNCTIONS))):
                function = records.FUNCTIONS[code]
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


def _emit_runs(
    v: Emitter,
    job: KernelJob,
    count: ir.Value,
    run: ir.Value,
    source: ir.Value,
    step: ir.Value,
    target: ir.Value,
) -> None:
    """Copies runs of floats that lie `step` apart, times a factor, to contiguous memory."""
    by = v.splat(v.narrow(v.field(job.task, "factor")))
    with v.loop(count) as n:
        start, to = v.add(source, v.mul(n, step)), v.add(target, v.mul(n, run))
        with v.loop(run, LANES) as i:
            v.store(v.times(v.load(job.scratch, v.add(start, i)), by), job.scratch, v.add(to, i))


_planes = vector_kernel(_emit_planes)
_runs = vector_kernel(_emit_runs)


@native
def source_pixel(task, source, y, x):  # type: ignore[no-untyped-def]
    """Returns the place of the source of result pixel (y, x): the start of its memory, and the
    first plane."""
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
    """Returns plane p of result pixel (y, x) in the source of a space-to-depth."""
    side = task.space_to_depth
    inner = p % side**2
    start, plane = source_pixel(task, source, y * side + inner // side, x * side + inner % side)
    return get(source, scratch, constants, start, plane + p // side**2)


@native
def combine(task, maps, scratch, constants, vectors, value, y, x, plane):  # type: ignore[no-untyped-def]
    """Returns value, activated, * factors * factor, joined to the residual of a pixel and plane.

    It takes no job, since calls for each value cost more with more pointers.
    """
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
def copy_floats(job, y, to, pixel):  # type: ignore[no-untyped-def]
    """Computes row y of a step between maps of floats, stored by single pixels, to pixels `pixel`
    floats apart.

    It copies fields first, since compiled code would load them again after every store.
    """
    task, maps, scratch = job.task, job.maps, job.scratch
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
        # The last vector of each run goes beyond it; the next run overwrites that.
        run = copies * planes
        _runs(job, task.columns // copies, run, start, source_pixel_floats, to)
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
def _unshuffle_floats(job, y, to, pixel):  # type: ignore[no-untyped-def]
    """Computes row y of a space-to-depth between maps of floats, stored by single pixels, to pixels
    `pixel` floats apart."""
    task, maps, scratch = job.task, job.maps, job.scratch
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
def vector_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a step that writes whole parts, by vectors of planes."""
    task = job.task
    source, target = record(job.maps, task.source), record(job.maps, task.target)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        start, plane = source_pixel(task, source, y, task.column)
        pixel, added = source.pixel_floats, 0
        if source.terms:
            start, pixel = 2 * start, 2 * pixel
        if task.residual >= 0:
            other, x = record(job.maps, task.residual), task.column + task.residual_offset
            added = pixel_row(other, y + task.residual_offset, x) + task.residual_plane
        to = pixel_row(target, y, task.column) + task.target_plane
        _planes(job, start + plane, pixel, added, to)


@native
def float_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a step between maps of floats, stored by single pixels."""
    task = job.task
    target = record(job.maps, task.target)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        to = pixel_start(target, y, task.column) + task.target_plane
        if task.space_to_depth > 1:
            _unshuffle_floats(job, y, to, target.pixel_floats)
        else:
            copy_floats(job, y, to, target.pixel_floats)


@native
def resized_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a step whose source is resized, or whose maxima it takes."""
    task = job.task
    target = record(job.maps, task.target)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        to = pixel_start(target, y, task.column) + task.target_plane
        if task.method == records.BY_RESIZING:
            bicubic_row(job, y, to, target.pixel_floats)
        elif task.method == records.BY_MAXIMA:
            maxima_row(job, y, to, target.pixel_floats)
        else:
            bilinear_row(job, y, to, target.pixel_floats)


@native
def value_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of any step, value by value."""
    task, maps, scratch, vectors = job.task, job.maps, job.scratch, job.vectors
    constants, planes = job.constants, task.planes
    source, target = record(maps, task.source), record(maps, task.target)
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        for x in range(task.column, task.column + task.columns):
            to, made = pixel_start(target, y, x), pixel_plane(target, y, x) + task.target_plane
            start, first = source_pixel(task, source, y, x)
            for p in range(planes):
                if task.space_to_depth == 1:
                    value = get(source, scratch, constants, start, first + p * task.plane_step)
                else:
                    value = gathered(task, source, scratch, constants, y, x, p)
                value = combine(task, maps, scratch, constants, vectors, value, y, x, p)
                put(target, scratch, constants, to, made + p, value)
            for p in range(planes, planes + task.padding):
                put(target, scratch, constants, to, made + p, np.float32(0))
