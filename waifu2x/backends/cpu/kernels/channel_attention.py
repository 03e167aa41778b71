"""Attention between planes, fp32: products of queries and keys over the picture, and values mixed.

A run of pixels of a row, at a place of the picture that no strip divides, has its products added up
in registers, those of some planes of queries with vectors of planes of keys. Then they become
integers, whose sums have the same bits in any order.

Bound: fp32 multiply-adds; a percent or two of a network's.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.accumulate import accumulate_apart
from waifu2x.backends.cpu.kernels.memory import record
from waifu2x.backends.cpu.kernels.values import pixel_start
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import CROSS_BITS, CROSS_COLUMNS, CROSS_LIMIT
from waifu2x.backends.cpu.pack.shapes import LANES

HEIGHT = 10
"""Pixels, or planes, of a register tile."""


def _emit_products(
    v: Emitter,
    height: ir.Value,
    pixels: ir.Value,
    pixel: ir.Value,
    scratch: ir.Value,
    queries: ir.Value,
    keys: ir.Value,
    planes: ir.Value,
    sums: ir.Value,
    first: ir.Value,
    step: ir.Value,
    rest: ir.Value,
) -> None:
    """Adds products of some planes of queries with the first `planes` lanes of a vector of keys to
    sums, `step` from a plane of queries to the next; `rest` as of `add_split`."""
    for h in v.cases(height, (HEIGHT, 1)):
        slots = v.accumulators([v.splat(0.0)] * h)
        for slot in slots:
            v.set(slot, v.splat(0.0))
        accumulate_apart(
            *(v, slots, 1, v.at(scratch, queries), (1, pixel), v.at(scratch, keys), pixel, pixels)
        )
        for m, slot in enumerate(slots):
            value = v.first_lanes(v.get(slot), planes)
            place = v.add(first, v.mul(step, m))
            v.add_split(value, CROSS_BITS, CROSS_LIMIT, sums, place, rest)


def _emit_squares(
    v: Emitter,
    pixels: ir.Value,
    pixel: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    planes: ir.Value,
    sums: ir.Value,
    first: ir.Value,
    rest: ir.Value,
) -> None:
    """Adds the squares of planes to sums."""
    with v.loop(planes, LANES) as plane:
        (slot,) = v.accumulators([v.splat(0.0)])
        v.set(slot, v.splat(0.0))
        with v.loop(pixels) as x:
            value = v.load(scratch, v.add(v.add(source, plane), v.mul(x, pixel)))
            v.set(slot, v.fma(value, value, v.get(slot)))
        value = v.first_lanes(v.get(slot), v.minus_offset(planes, plane))
        v.add_split(value, CROSS_BITS, CROSS_LIMIT, sums, v.add(first, plane), rest)


def _emit_mixed(
    v: Emitter,
    height: ir.Value,
    depth: ir.Value,
    plane: ir.Value,
    stored: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    pixel: ir.Value,
    vectors: ir.Value,
    weights: ir.Value,
    step: ir.Value,
    target: ir.Value,
    target_pixel: ir.Value,
) -> None:
    """A vector of planes from `plane` on, of a head's `depth`, of some pixels; so many are
    stored. Weights of a plane of the values lie `step` behind those of the one before."""
    for h in v.cases(height, (HEIGHT, 1)):
        slots = v.accumulators([v.splat(0.0)] * h)
        for slot in slots:
            v.set(slot, v.splat(0.0))
        rows = v.at(vectors, v.add(weights, plane))
        accumulate_apart(*(v, slots, 1, v.at(scratch, source), (pixel, 1), rows, step, depth))
        for m, slot in enumerate(slots):
            value = v.first_lanes(v.get(slot), v.minus_offset(depth, plane))
            place = v.add(v.add(target, plane), v.mul(target_pixel, m))
            v.store_first(value, stored, scratch, place)


_products = vector_kernel(_emit_products)
_squares = vector_kernel(_emit_squares)
mix_pixels = vector_kernel(_emit_mixed)


@native
def add_products(task, maps, scratch, sums):  # type: ignore[no-untyped-def]
    """Adds the next rows to sums of products of planes."""
    source = record(maps, task.source)
    depth, planes, period = task.depth, task.planes, task.period
    end, each = task.column + task.columns, planes * (depth + 2)
    pixel, rest = source.pixel_floats * period, period * period * each
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        x = task.column
        while x < end:
            stop = min((x // CROSS_COLUMNS + 1) * CROSS_COLUMNS, end)
            for column in range(x, min(x + period, stop)):
                count = (stop - column + period - 1) // period
                own = task.memory + (y % period * period + column % period) * each
                start = pixel_start(source, y, column)
                queries, keys = start + task.source_plane, start + task.keys_plane
                for head in range(task.heads):
                    for key in range(0, depth, LANES):
                        query = 0
                        while query < depth:
                            height = HEIGHT if depth - query >= HEIGHT else 1
                            _products(
                                *(height, count, pixel, scratch, queries + head * depth + query),
                                *(keys + head * depth + key, depth - key, sums),
                                *(own + (head * depth + query) * depth + key, depth, rest),
                            )
                            query += height
                squares = own + planes * depth
                _squares(count, pixel, scratch, queries, planes, sums, squares, rest)
                _squares(count, pixel, scratch, keys, planes, sums, squares + planes, rest)
            x = stop


@native
def mix_rows(task, maps, scratch, vectors):  # type: ignore[no-untyped-def]
    """The next rows of planes mixed by weights."""
    source, target = record(maps, task.source), record(maps, task.target)
    depth, period = task.depth, task.period
    pixel, target_pixel = source.pixel_floats * period, target.pixel_floats * period
    end = task.column + task.columns
    for y in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        for column in range(task.column, min(task.column + period, end)):
            start = pixel_start(source, y, column) + task.source_plane
            to = pixel_start(target, y, column) + task.target_plane
            count = (end - column + period - 1) // period
            # Rows and columns beyond the map have remainders, too: what is made there is nothing.
            part = y % period * period + column % period
            for head in range(task.heads):
                first = head * depth
                planes = depth + task.padding if head == task.heads - 1 else depth
                weights = task.vector + (part * task.planes + first) * depth
                for plane in range(0, planes, LANES):
                    x = 0
                    while x < count:
                        height = HEIGHT if count - x >= HEIGHT else 1
                        mix_pixels(
                            *(height, depth, plane, min(planes - plane, LANES), scratch),
                            *(start + x * pixel + first, pixel, vectors, weights, depth),
                            *(to + x * target_pixel + first, target_pixel),
                        )
                        x += height
