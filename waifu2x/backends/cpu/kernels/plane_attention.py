"""Attention between planes in windows, fp32.

For a window and a head, the lanes of a vector are planes of queries. Products with each plane of
keys are summed row by row of the window, then replaced in place by weights; so the highest logit
and the sum of powers of a plane are lanes, too. Then the weights mix values, as for a whole map.

A window's place in the picture alone decides the order in which its pixels are summed.

Bound: fp32 multiply-adds; a percent or two of a network's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.attention_parts import fill
from waifu2x.backends.cpu.kernels.channel_attention import HEIGHT, Mixed, Weights, mix_run
from waifu2x.backends.cpu.kernels.memory import record
from waifu2x.backends.cpu.kernels.register_tiles import accumulate_apart
from waifu2x.backends.cpu.kernels.values import pixel_start
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.shapes import LANES

_SHORTEST = 1e-12
"""The lower bound of norms."""
_LOWEST = -3.0e38


class _Run(NamedTuple):
    """A run of neighbouring pixels of a window."""

    scratch: Any
    count: Any
    pixel: Any
    """The stride between pixels, in floats."""


def _emit_products(
    v: Emitter,
    run: _Run,
    height: ir.Value,
    keys: ir.Value,
    queries: ir.Value,
    sums: ir.Value,
    step: ir.Value,
) -> None:
    """Adds products of `height` planes of keys with a vector of planes of queries to sums, in which
    planes of keys are `step` apart."""
    scratch, pixel = run.scratch, run.pixel
    for h in v.cases(height, (HEIGHT, 1)):
        slots = v.accumulators([v.load(scratch, v.add(sums, v.mul(step, m))) for m in range(h)])
        accumulate_apart(
            *(v, slots, 1, v.at(scratch, keys), (1, pixel)),
            *(v.at(scratch, queries), pixel, run.count),
        )
        for m, slot in enumerate(slots):
            v.store(v.get(slot), scratch, v.add(sums, v.mul(step, m)))


def _emit_squares(
    v: Emitter, run: _Run, planes: ir.Value, source: ir.Value, sums: ir.Value
) -> None:
    """Adds the squares of planes to sums."""
    with v.loop(planes, LANES) as plane:
        place = v.add(sums, plane)
        (slot,) = v.accumulators([v.load(run.scratch, place)])
        with v.loop(run.count) as x:
            value = v.load(run.scratch, v.add(v.add(source, plane), v.mul(x, run.pixel)))
            v.set(slot, v.fma(value, value, v.get(slot)))
        v.store(v.get(slot), run.scratch, place)


def _emit_weights(
    v: Emitter,
    depth: ir.Value,
    step: ir.Value,
    scratch: ir.Value,
    sums: ir.Value,
    temperature: ir.Value,
) -> None:
    """Replaces products of keys and queries, which the sums of squares follow, by weights: a
    softmax over keys."""

    def shares(place: ir.Value) -> ir.Value:
        """Returns one over each norm of a vector of them."""
        norms = v.maximum(v.root(v.load(scratch, place)), v.splat(_SHORTEST))
        return v.divided(v.splat(1.0), norms)

    query_squares = v.add(sums, v.mul(depth, step))
    key_squares = v.add(query_squares, step)
    with v.loop(depth, LANES) as plane:
        place = v.add(key_squares, plane)
        v.store(shares(place), scratch, place)
    highest, total = v.accumulators([v.splat(0.0)] * 2)
    with v.loop(depth, LANES) as plane:
        own = v.add(sums, plane)
        factor = v.times(shares(v.add(query_squares, plane)), v.splat(temperature))
        v.set(highest, v.splat(_LOWEST))
        v.set(total, v.splat(0.0))
        with v.loop(depth) as key:
            place = v.add(own, v.mul(step, key))
            share = v.splat(v.load_float(scratch, v.add(key_squares, key)))
            logit = v.times(v.times(v.load(scratch, place), share), factor)
            v.store(logit, scratch, place)
            v.set(highest, v.maximum(logit, v.get(highest)))
        with v.loop(depth) as key:
            place = v.add(own, v.mul(step, key))
            power = v.exp(v.minus(v.load(scratch, place), v.get(highest)))
            v.store(power, scratch, place)
            v.set(total, v.plus(v.get(total), power))
        each = v.divided(v.splat(1.0), v.get(total))
        with v.loop(depth) as key:
            place = v.add(own, v.mul(step, key))
            v.store(v.times(v.load(scratch, place), each), scratch, place)


_products = vector_kernel(_emit_products)
_squares = vector_kernel(_emit_squares)
_weights = vector_kernel(_emit_weights)


@native
def _add_row(task, run, queries, keys, row):  # type: ignore[no-untyped-def]
    """Adds a run of pixels to the products and squares of a head."""
    depth, sums = task.depth, task.inputs
    for query in range(0, depth, LANES):
        key = 0
        while key < depth:
            height = HEIGHT if depth - key >= HEIGHT else 1
            place = sums + key * row + query
            _products(run, height, keys + key, queries + query, place, row)
            key += height
    _squares(run, depth, queries, sums + depth * row)
    _squares(run, depth, keys, sums + (depth + 1) * row)


@native
def attend_planes(job):  # type: ignore[no-untyped-def]
    """Computes the next row of windows."""
    task, maps, scratch = job.task, job.maps, job.scratch
    source, target = record(maps, task.source), record(maps, task.target)
    values = record(maps, task.values)
    side, depth, sums = task.window_rows, task.depth, task.inputs
    row = -(-(depth + task.padding) // LANES) * LANES
    pixel, value_pixel = source.pixel_floats, values.pixel_floats
    target_pixel = target.pixel_floats
    top, bottom = max(task.next_row, 0), min(task.next_row + side, source.rows)
    for head in range(task.heads):
        plane = head * depth
        planes = depth + task.padding if head == task.heads - 1 else depth
        for begin in range(task.column, task.column + task.columns, side):
            left, right = max(begin, 0), min(begin + side, source.columns)
            if top >= bottom or left >= right:
                continue
            fill((depth + 2) * row, np.float32(0), scratch, sums)
            run = _Run(scratch, right - left, pixel)
            for y in range(top, bottom):
                start = pixel_start(source, y, left) + plane
                queries, keys = start + task.source_plane, start + task.keys_plane
                _add_row(task, run, queries, keys, row)
            _weights(depth, row, scratch, sums, job.constants[task.bias + head])
            for y in range(top, bottom):
                start = pixel_start(values, y, left) + task.values_plane + plane
                to = pixel_start(target, y, left) + task.target_plane + plane
                mixed = Mixed(start, value_pixel, to, target_pixel)
                mix_run(job, mixed, right - left, planes, Weights(scratch, sums, row))
