"""What attention in windows is made of, on vector registers: see `attention`."""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.kernels.accumulate import accumulate_apart
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.attention_shapes import BLOCK, BLOCK_HEIGHT, BLOCK_WIDTH
from waifu2x.backends.cpu.pack.shapes import LANES

_WIDTHS = tuple(range(BLOCK_WIDTH, 0, -1))
_HEIGHTS = tuple(range(1, BLOCK_HEIGHT + 1))


def _emit_biases(
    v: Emitter,
    rows: ir.Value,
    columns: ir.Value,
    constants: ir.Value,
    table: ir.Value,
    step: ir.Value,
    scratch: ir.Value,
    target: ir.Value,
) -> None:
    """The biases of a key for all queries of a window; the table has a row for each of theirs, the
    last one first, `step` floats apart."""
    with v.loop(rows) as y:
        start, to = v.minus_offset(table, v.mul(y, step)), v.add(target, v.mul(y, columns))
        with v.loop(columns, LANES) as x:
            v.store(v.load(constants, v.add(start, x)), scratch, v.add(to, x))


def _emit_gathered(
    v: Emitter,
    count: ir.Value,
    depth: ir.Value,
    numbers: ir.Value,
    places: ir.Value,
    scratch: ir.Value,
    target: ir.Value,
    step: ir.Value,
) -> None:
    """Pixels, `depth` planes of each, to rows `step` floats apart."""
    with v.loop(count) as n:
        start, to = v.integer(numbers, v.add(places, n)), v.add(target, v.mul(n, step))
        with v.loop(depth, LANES) as plane:
            v.store(v.load(scratch, v.add(start, plane)), scratch, v.add(to, plane))


def _emit_transposed_in(
    v: Emitter,
    count: ir.Value,
    depth: ir.Value,
    factor: ir.Value,
    numbers: ir.Value,
    places: ir.Value,
    scratch: ir.Value,
    target: ir.Value,
) -> None:
    """Pixels, a multiple of LANES, to rows of one plane of all of them, times a factor."""
    by = v.splat(factor)
    with v.loop(count, LANES) as first, v.loop(depth, LANES) as plane:
        pixels = []
        for n in range(LANES):
            start = v.integer(numbers, v.add(places, v.add(first, n)))
            pixels.append(v.times(v.load(scratch, v.add(start, plane)), by))
        to = v.add(target, v.add(v.mul(plane, count), first))
        for n, planes in enumerate(v.transposed(pixels)):
            v.store(planes, scratch, v.add(to, v.mul(count, n)))


def _emit_transposed_out(
    v: Emitter,
    width: ir.Value,
    planes: ir.Value,
    numbers: ir.Value,
    places: ir.Value,
    scratch: ir.Value,
    made: ir.Value,
) -> None:
    """The results of a block, plane by plane, to pixels."""
    with v.loop(width) as n, v.loop(planes, LANES) as plane:
        start = v.add(made, v.add(v.mul(plane, BLOCK), v.mul(n, LANES)))
        rows = [v.load(scratch, v.add(start, row * BLOCK)) for row in range(LANES)]
        first, left = v.add(places, v.mul(n, LANES)), v.minus_offset(planes, plane)
        for pixel, values in enumerate(v.transposed(rows)):
            to = v.integer(numbers, v.add(first, pixel))
            v.store_first(values, left, scratch, v.add(to, plane))


def _emit_logits(
    v: Emitter,
    width: ir.Value,
    height: ir.Value,
    depth: ir.Value,
    scratch: ir.Value,
    keys: ir.Value,
    key_step: ir.Value,
    queries: ir.Value,
    query_step: ir.Value,
    numbers: ir.Value,
    biases: ir.Value,
    column: ir.Value,
    logits: ir.Value,
    highest: ir.Value,
) -> None:
    """The logits of some keys with a block of queries, and the highest so far. `biases` says where
    the place of the first key's biases stands, -1 for none; `column` which query comes first. Keys
    and queries lie plane by plane."""
    for w in v.cases(width, _WIDTHS):
        for h in v.cases(height, (BLOCK_HEIGHT, 1)):
            slots = v.accumulators([v.splat(0.0)] * (h * w))
            for slot in slots:
                v.set(slot, v.splat(0.0))
            for _ in v.cases(v.at_least(biases, 0), (1,)):
                for m in range(h):
                    start = v.add(v.integer(numbers, v.add(biases, m)), column)
                    for n in range(w):
                        v.set(slots[m * w + n], v.load(scratch, v.add(start, n * LANES)))
            accumulate_apart(
                *(v, slots, w, v.at(scratch, keys), (1, key_step)),
                *(v.at(scratch, queries), query_step, depth),
            )
            tops = [v.load(scratch, v.add(highest, n * LANES)) for n in range(w)]
            for m in range(h):
                for n in range(w):
                    value = v.get(slots[m * w + n])
                    tops[n] = v.maximum(value, tops[n])
                    v.store(value, scratch, v.add(logits, m * BLOCK + n * LANES))
            for n, top in enumerate(tops):
                v.store(top, scratch, v.add(highest, n * LANES))


def _emit_powers(
    v: Emitter,
    width: ir.Value,
    count: ir.Value,
    scratch: ir.Value,
    logits: ir.Value,
    highest: ir.Value,
    shares: ir.Value,
) -> None:
    """Logits, less the highest of each query, to powers of two, and one over their sums."""
    for w in v.cases(width, _WIDTHS):
        tops = [v.load(scratch, v.add(highest, n * LANES)) for n in range(w)]
        sums = v.accumulators([v.splat(0.0)] * w)
        for slot in sums:
            v.set(slot, v.splat(0.0))
        with v.loop(count) as key:
            row = v.add(logits, v.mul(key, BLOCK))
            for n in range(w):
                place = v.add(row, n * LANES)
                power = v.power_of_two(v.minus(v.load(scratch, place), tops[n]))
                v.store(power, scratch, place)
                v.set(sums[n], v.plus(v.get(sums[n]), power))
        for n, slot in enumerate(sums):
            share = v.divided(v.splat(1.0), v.get(slot))
            v.store(share, scratch, v.add(shares, n * LANES))


def _emit_weighed(
    v: Emitter,
    width: ir.Value,
    height: ir.Value,
    count: ir.Value,
    scratch: ir.Value,
    values: ir.Value,
    value_step: ir.Value,
    powers: ir.Value,
    shares: ir.Value,
    made: ir.Value,
) -> None:
    """Some planes of the results of a block of queries: values weighed by powers."""
    for w in v.cases(width, _WIDTHS):
        for h in v.cases(height, _HEIGHTS):
            slots = v.accumulators([v.splat(0.0)] * (h * w))
            for slot in slots:
                v.set(slot, v.splat(0.0))
            accumulate_apart(
                *(v, slots, w, v.at(scratch, values), (1, value_step)),
                *(v.at(scratch, powers), BLOCK, count),
            )
            for n in range(w):
                share = v.load(scratch, v.add(shares, n * LANES))
                for m in range(h):
                    result = v.times(v.get(slots[m * w + n]), share)
                    v.store(result, scratch, v.add(made, m * BLOCK + n * LANES))


def _emit_filled(
    v: Emitter, count: ir.Value, value: ir.Value, scratch: ir.Value, target: ir.Value
) -> None:
    """A number, as often as is said: a multiple of LANES."""
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
