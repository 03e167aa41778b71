"""Attention between planes, fp32: sums products of queries and keys over the picture, mixes values.

The products of a run of pixels of a row, which no strip divides, are summed in registers: those of
some planes of queries with vectors of planes of keys. Then they become integers, whose sums have
the same bits in any order.

Bound: fp32 multiply-adds; a percent or two of a network's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import KernelJob, record
from waifu2x.backends.cpu.kernels.register_tiles import accumulate_apart
from waifu2x.backends.cpu.kernels.values import pixel_start
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import CROSS_BITS, CROSS_COLUMNS, CROSS_LIMIT
from waifu2x.backends.cpu.pack.shapes import LANES

HEIGHT = 10
"""The pixels, or planes, of a register tile."""


class Run(NamedTuple):
    """A run of pixels whose products are summed."""

    count: Any
    pixel: Any
    """The stride between pixels, in floats."""
    rest: Any
    """The distance from a sum's first integer to its second."""


class Weights(NamedTuple):
    """The weights by which values are mixed."""

    memory: Any
    place: Any
    """The offset of those of the head's first plane of values."""
    step: Any
    """The stride between planes of values."""


class Mixed(NamedTuple):
    """A run of pixels whose values are mixed, and their targets."""

    source: Any
    source_pixel: Any
    """The stride between source pixels, in floats."""
    target: Any
    target_pixel: Any


def _emit_products(
    v: Emitter,
    job: KernelJob,
    run: Run,
    height: ir.Value,
    queries: ir.Value,
    keys: ir.Value,
    lanes: ir.Value,
    sums: ir.Value,
) -> None:
    """Adds products of `height` planes of queries with the first `lanes` of a vector of keys to
    sums, in which planes of queries are a head's planes apart."""
    step = v.field(job.task, "depth")
    for h in v.cases(height, (HEIGHT, 1)):
        slots = v.accumulators([v.splat(0.0)] * h)
        accumulate_apart(
            *(v, slots, 1, v.at(job.scratch, queries), (1, run.pixel)),
            *(v.at(job.scratch, keys), run.pixel, run.count),
        )
        for m, slot in enumerate(slots):
            value = v.first_lanes(v.get(slot), lanes)
            place = v.add(sums, v.mul(step, m))
            v.add_split(value, CROSS_BITS, CROSS_LIMIT, job.sums, place, run.rest)


def _emit_squares(v: Emitter, job: KernelJob, run: Run, source: ir.Value, sums: ir.Value) -> None:
    """Adds the squares of planes to sums."""
    planes = v.field(job.task, "planes")
    with v.loop(planes, LANES) as plane:
        (slot,) = v.accumulators([v.splat(0.0)])
        with v.loop(run.count) as x:
            value = v.load(job.scratch, v.add(v.add(source, plane), v.mul(x, run.pixel)))
            v.set(slot, v.fma(value, value, v.get(slot)))
        value = v.first_lanes(v.get(slot), v.minus_offset(planes, plane))
        v.add_split(value, CROSS_BITS, CROSS_LIMIT, job.sums, v.add(sums, plane), run.rest)


def _emit_mixed(
    v: Emitter,
    job: KernelJob,
    height: ir.Value,
    plane: ir.Value,
    stored: ir.Value,
    mixed: Mixed,
    weights: Weights,
) -> None:
    """Computes a vector of a head's planes, from `plane` on, of `height` pixels, and stores its
    first `stored` lanes."""
    depth = v.field(job.task, "depth")
    for h in v.cases(height, (HEIGHT, 1)):
        slots = v.accumulators([v.splat(0.0)] * h)
        rows = v.at(weights.memory, v.add(weights.place, plane))
        source = v.at(job.scratch, mixed.source)
        accumulate_apart(v, slots, 1, source, (mixed.source_pixel, 1), rows, weights.step, depth)
        for m, slot in enumerate(slots):
            value = v.first_lanes(v.get(slot), v.minus_offset(depth, plane))
            place = v.add(v.add(mixed.target, plane), v.mul(mixed.target_pixel, m))
            v.store_first(value, stored, job.scratch, place)


_products = vector_kernel(_emit_products)
_squares = vector_kernel(_emit_squares)
_mix = vector_kernel(_emit_mixed)


@native
def mix_run(job, mixed, count, planes, weights):  # type: ignore[no-untyped-def]
    """Mixes the values of a head for `count` pixels, and stores `planes` planes of each."""
    for plane in range(0, planes, LANES):
        x = 0
        while x < count:
            height = HEIGHT if count - x >= HEIGHT else 1
            source = mixed.source + x * mixed.source_pixel
            target = mixed.target + x * mixed.target_pixel
            own = Mixed(source, mixed.source_pixel, target, mixed.target_pixel)
            _mix(job, height, plane, min(planes - plane, LANES), own, weights)
            x += height


@native
def add_products(job):  # type: ignore[no-untyped-def]
    """Adds the next rows to sums of products of planes."""
    task = job.task
    source = record(job.maps, task.source)
    depth, planes, period = task.depth, task.planes, task.period
    end, each = task.column + task.columns, planes * (depth + 2)
    pixel, rest = source.pixel_floats * period, period * period * each
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        x = task.column
        while x < end:
            stop = min((x // CROSS_COLUMNS + 1) * CROSS_COLUMNS, end)
            for column in range(x, min(x + period, stop)):
                run = Run((stop - column + period - 1) // period, pixel, rest)
                own = task.memory + (y % period * period + column % period) * each
                start = pixel_start(source, y, column)
                queries, keys = start + task.source_plane, start + task.keys_plane
                for first in range(0, planes, depth):
                    for key in range(0, depth, LANES):
                        query = 0
                        while query < depth:
                            height = HEIGHT if depth - query >= HEIGHT else 1
                            sums = own + (first + query) * depth + key
                            left, right = queries + first + query, keys + first + key
                            _products(job, run, height, left, right, depth - key, sums)
                            query += height
                squares = own + planes * depth
                _squares(job, run, queries, squares)
                _squares(job, run, keys, squares + planes)
            x = stop


@native
def mix_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of planes mixed by weights."""
    task, maps = job.task, job.maps
    source, target = record(maps, task.source), record(maps, task.target)
    depth, period = task.depth, task.period
    pixel, target_pixel = source.pixel_floats * period, target.pixel_floats * period
    end = task.column + task.columns
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        for column in range(task.column, min(task.column + period, end)):
            start = pixel_start(source, y, column) + task.source_plane
            to = pixel_start(target, y, column) + task.target_plane
            count = (end - column + period - 1) // period
            # Rows and columns beyond the map have remainders, too; results there do not count.
            part = y % period * period + column % period
            for head in range(task.heads):
                first = head * depth
                planes = depth + task.padding if head == task.heads - 1 else depth
                place = task.vector + (part * task.planes + first) * depth
                mixed = Mixed(start + first, pixel, to + first, target_pixel)
                mix_run(job, mixed, count, planes, Weights(job.vectors, place, depth))
