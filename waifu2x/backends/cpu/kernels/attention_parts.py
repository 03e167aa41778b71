"""Emits the parts of attention in windows as vector code; see `attention`."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from waifu2x.backends.cpu.kernels.register_tiles import accumulate_apart
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.attention_shapes import (
    BLOCK,
    BLOCK_HEIGHT,
    BLOCK_WIDTH,
    AttentionPlaces,
)
from waifu2x.backends.cpu.pack.shapes import LANES

_WIDTHS = tuple(range(BLOCK_WIDTH, 0, -1))
_HEIGHTS = tuple(range(1, BLOCK_HEIGHT + 1))


class Window(NamedTuple):
    """The scratch memory of a head of a window of attention."""

    scratch: Any
    numbers: Any
    """The same memory as 64-bit integers."""
    places: AttentionPlaces
    """The places of its parts, in floats."""
    depth: Any
    """The planes of the head."""
    row: Any
    """The planes, padded to whole vectors."""
    keys: Any
    padded_keys: Any
    """The number of keys, padded to whole vectors."""
    padded: Any
    """The number of queries, padded to whole vectors."""


def _emit_biases(
    v: Emitter,
    rows: ir.Value,
    columns: ir.Value,
    table: ir.Value,
    start: ir.Value,
    step: ir.Value,
    target: ir.Value,
) -> None:
    """Copies the biases of a key for all queries of a window to `target`; the table has a row,
    `step` floats apart, for each row of queries, the last one first."""
    with v.loop(rows) as y:
        first, place = v.minus_offset(start, v.mul(y, step)), v.mul(y, columns)
        with v.loop(columns, LANES) as x:
            v.store(v.load(table, v.add(first, x)), target, v.add(place, x))


def _emit_gathered(v: Emitter, window: Window) -> None:
    """Copies the values of a window to rows of scratch memory."""
    scratch, places = window.scratch, window.places
    with v.loop(window.keys) as n:
        start = v.integer(window.numbers, v.add(v.half(places.value_places), n))
        to = v.add(places.values, v.mul(n, window.row))
        with v.loop(window.depth, LANES) as plane:
            v.store(v.load(scratch, v.add(start, plane)), scratch, v.add(to, plane))


def _emit_transposed_in(
    v: Emitter,
    window: Window,
    count: ir.Value,
    factor: ir.Value,
    places: ir.Value,
    target: ir.Value,
) -> None:
    """Transposes `count` pixels, a multiple of LANES, times a factor, to a row for each plane."""
    by, scratch = v.splat(factor), window.scratch
    with v.loop(count, LANES) as first, v.loop(window.depth, LANES) as plane:
        pixels = []
        for n in range(LANES):
            start = v.integer(window.numbers, v.add(v.half(places), v.add(first, n)))
            pixels.append(v.times(v.load(scratch, v.add(start, plane)), by))
        to = v.add(target, v.add(v.mul(plane, count), first))
        for n, planes in enumerate(v.transposed(pixels)):
            v.store(planes, scratch, v.add(to, v.mul(count, n)))


def _emit_transposed_out(
    v: Emitter, window: Window, width: ir.Value, planes: ir.Value, query: ir.Value
) -> None:
    """Transposes the results of the block of queries from `query` on back to pixels."""
    scratch, made = window.scratch, window.places.made
    places = v.add(v.half(window.places.result_places), query)
    with v.loop(width) as n, v.loop(planes, LANES) as plane:
        start = v.add(made, v.add(v.mul(plane, BLOCK), v.mul(n, LANES)))
        rows = [v.load(scratch, v.add(start, row * BLOCK)) for row in range(LANES)]
        first, left = v.add(places, v.mul(n, LANES)), v.minus_offset(planes, plane)
        for pixel, values in enumerate(v.transposed(rows)):
            to = v.integer(window.numbers, v.add(first, pixel))
            v.store_first(values, left, scratch, v.add(to, plane))


def _emit_logits(
    v: Emitter,
    window: Window,
    width: ir.Value,
    height: ir.Value,
    key: ir.Value,
    query: ir.Value,
    has_bias: ir.Value,
) -> None:
    """Computes the logits of keys from `key` on with a block of queries from `query` on, and
    updates the highest."""
    scratch, places = window.scratch, window.places
    keys, queries = v.add(places.keys, key), v.add(places.queries, query)
    logits = v.add(places.logits, v.mul(key, BLOCK))
    for w in v.cases(width, _WIDTHS):
        for h in v.cases(height, (BLOCK_HEIGHT, 1)):
            slots = v.accumulators([v.splat(0.0)] * (h * w))
            for _ in v.cases(has_bias, (1,)):
                for m in range(h):
                    number = v.add(v.half(places.bias_places), v.add(key, m))
                    start = v.add(v.integer(window.numbers, number), query)
                    for n in range(w):
                        v.set(slots[m * w + n], v.load(scratch, v.add(start, n * LANES)))
            accumulate_apart(
                *(v, slots, w, v.at(scratch, keys), (1, window.padded_keys)),
                *(v.at(scratch, queries), window.padded, window.depth),
            )
            tops = [v.load(scratch, v.add(places.highest, n * LANES)) for n in range(w)]
            for m in range(h):
                for n in range(w):
                    value = v.get(slots[m * w + n])
                    tops[n] = v.maximum(value, tops[n])
                    v.store(value, scratch, v.add(logits, m * BLOCK + n * LANES))
            for n, top in enumerate(tops):
                v.store(top, scratch, v.add(places.highest, n * LANES))


def _emit_powers(v: Emitter, window: Window, width: ir.Value) -> None:
    """Replaces logits, less the highest of each query, by powers of two, and stores one over each
    query's sum of them."""
    scratch, places = window.scratch, window.places
    for w in v.cases(width, _WIDTHS):
        tops = [v.load(scratch, v.add(places.highest, n * LANES)) for n in range(w)]
        sums = v.accumulators([v.splat(0.0)] * w)
        with v.loop(window.keys) as key:
            row = v.add(places.logits, v.mul(key, BLOCK))
            for n in range(w):
                place = v.add(row, n * LANES)
                power = v.power_of_two(v.minus(v.load(scratch, place), tops[n]))
                v.store(power, scratch, place)
                v.set(sums[n], v.plus(v.get(sums[n]), power))
        for n, slot in enumerate(sums):
            share = v.divided(v.splat(1.0), v.get(slot))
            v.store(share, scratch, v.add(places.shares, n * LANES))


def _emit_weighed(
    v: Emitter, window: Window, width: ir.Value, height: ir.Value, plane: ir.Value
) -> None:
    """Computes planes from `plane` on of a block of queries' results: values weighted by powers."""
    scratch, places = window.scratch, window.places
    values, made = v.add(places.values, plane), v.add(places.made, v.mul(plane, BLOCK))
    for w in v.cases(width, _WIDTHS):
        for h in v.cases(height, _HEIGHTS):
            slots = v.accumulators([v.splat(0.0)] * (h * w))
            accumulate_apart(
                *(v, slots, w, v.at(scratch, values), (1, window.row)),
                *(v.at(scratch, places.logits), BLOCK, window.keys),
            )
            for n in range(w):
                share = v.load(scratch, v.add(places.shares, n * LANES))
                for m in range(h):
                    result = v.times(v.get(slots[m * w + n]), share)
                    v.store(result, scratch, v.add(made, m * BLOCK + n * LANES))


def _emit_filled(
    v: Emitter, count: ir.Value, value: ir.Value, scratch: ir.Value, target: ir.Value
) -> None:
    """Stores a number `count` times: a multiple of LANES."""
    with v.loop(count, LANES) as n:
        v.store(v.splat(value), scratch, v.add(target, n))


put_biases = vector_kernel(_emit_biases)
gather_pixels = vector_kernel(_emit_gathered)
transpose_in = vector_kernel(_emit_transposed_in)
transpose_out = vector_kernel(_emit_transposed_out)
make_logits = vector_kernel(_emit_logits)
make_powers = vector_kernel(_emit_powers)
weigh_values = vector_kernel(_emit_weighed)
fill = vector_kernel(_emit_filled)
