"""3x3 convolution by Winograd's F(6x6, 3x3), fp32: 64 products where the definition has 324.

A cell of 6x6 results needs 8x8 inputs. Both the inputs and the weights are transformed into 64
frequencies; the sum over input planes is then an independent matrix product at each frequency,
and a last transform brings the 64 products back to 6x6 results.

    V[f][cell][in]  = transform of the inputs        64 x CELLS x in_planes
    U[chunk][f][block][in][out of block]             the weights, transformed once
    M[f][block][cell][out of block] = V[f] U[f][block]   64 x CELLS x chunk of out_planes
    result = transform of M, plus bias, leaky ReLU

The transforms interpolate at the points of `waifu2x.backends.winograd`; `integers` uses them, too.
They go through memory between their columns and their rows: 64 values fit no register file. They
access maps a pixel apart, where no hardware prefetches, so they prefetch by themselves: a third
less time for inputs, a sixth for results.

Bound: fp32 multiply-adds; the transforms add from a sixth (128 planes) to a half (32). U streams
through once for each group of cells, V once for each chunk of output planes: 6 % less time on Zen 3
than with chunks of a single block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import (
    KernelJob,
    advance,
    block_at,
    chunk_width,
    locate_results,
    locate_source,
    record,
)
from waifu2x.backends.cpu.kernels.register_tiles import Epilogue, accumulate
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import (
    CELL,
    LINE_FLOATS,
    RESIDUAL_ROWS,
    SOURCE_ROWS,
    TARGET_ROWS,
)
from waifu2x.backends.cpu.pack.shapes import CHUNK, FLAT, FREQUENCIES, LANES, WIDTHS, tile_height

_tile_height = native(tile_height)
SIDE = CELL + 2
"""The side of a cell's inputs in pixels, and of its frequencies."""


class Products(NamedTuple):
    """One vector of planes of a cell's products, to be transformed to its 6x6 results."""

    place: Any
    """The place of the products."""
    stride: Any
    """The stride between frequencies."""
    plane: Any
    """The first plane among all of the task."""
    row: Any
    """The first located row of the results; further ones are every `depth_to_space`th."""
    target: Any
    """The offset of the cell's pixels along those rows."""
    residual: Any
    """The offset of their residuals."""


def _transform_input(v: Emitter, d: list[ir.Value]) -> list[ir.Value]:
    """Transforms eight neighbouring inputs to eight frequencies (B^T d, those at ±2 doubled)."""
    even_a, odd_a = (v.fma(d[n], 4.0, v.fma(d[n + 2], -5.0, d[n + 4])) for n in (2, 1))
    even_b, odd_b = (v.fma(d[n + 2], -4.25, v.plus(d[n], d[n + 4])) for n in (2, 1))
    even_c = v.fma(d[6], 2.0, v.fma(d[4], -2.5, v.times(d[2], 0.5)))
    odd_c = v.fma(d[5], 4.0, v.fma(d[3], -5.0, d[1]))
    return [
        v.fma(v.minus(d[4], d[2]), -5.25, v.minus(d[6], d[0])),
        v.fma(odd_a, 0.5, even_a),
        v.fma(odd_a, -0.5, even_a),
        v.plus(even_b, odd_b),
        v.minus(even_b, odd_b),
        v.plus(even_c, odd_c),
        v.minus(even_c, odd_c),
        v.fma(v.minus(d[5], d[3]), -5.25, v.minus(d[7], d[1])),
    ]


def _transform_output(v: Emitter, m: list[ir.Value]) -> list[ir.Value]:
    """Transforms eight frequencies to six neighbouring results (A^T m)."""
    (sum_a, off_a), (sum_b, off_b), (sum_c, off_c) = (
        (v.plus(m[n], m[n + 1]), v.minus(m[n], m[n + 1])) for n in (1, 3, 5)
    )
    return [
        v.plus(v.plus(m[0], sum_a), v.plus(sum_b, sum_c)),
        v.fma(off_c, 2.0, v.fma(off_a, 0.5, off_b)),
        v.fma(sum_c, 4.0, v.fma(sum_a, 0.25, sum_b)),
        v.fma(off_c, 8.0, v.fma(off_a, 0.125, off_b)),
        v.fma(sum_c, 16.0, v.fma(sum_a, 0.0625, sum_b)),
        v.fma(off_c, 32.0, v.fma(off_a, 0.03125, v.plus(off_b, m[7]))),
    ]


def input_columns(v: Emitter, starts: list[ir.Value], pixel: ir.Value, side: ir.Value) -> ir.Value:
    """Transforms one vector of planes of a cell's 8x8 pixels, in rows that begin at `starts`,
    vertically; returns memory of (column, frequency)."""
    to, stacked = v.stack_vectors(FREQUENCIES)
    with v.loop(side) as x:
        along, place = v.mul(pixel, x), v.mul(x, SIDE * LANES)
        column = [v.load(start, along) for start in starts]
        for start in starts:
            v.prefetch(start, v.add(along, LINE_FLOATS))
        for y, value in enumerate(_transform_input(v, column)):
            v.store(value, to, v.add(place, y * LANES))
    return stacked


def input_row(v: Emitter, stacked: ir.Value, y: ir.Value) -> list[ir.Value]:
    """Returns the eight horizontal frequencies for the vertical frequency `y`."""
    across = v.at(stacked, v.mul(y, LANES))
    return _transform_input(v, [v.load(across, x * SIDE * LANES) for x in range(SIDE)])


def emit_output(
    v: Emitter, job: KernelJob, products: Products, factors: ir.Value | None = None
) -> None:
    """Transforms products, and stores their results.

    Products are multiplied by `factors`, vectors (64, LANES), except FLAT, which adds the same to
    every result, and so carries the bias.
    """
    places, scratch, stride = job.places, job.scratch, products.stride
    target, residual = products.target, products.residual
    row_step = v.field(job.task, "depth_to_space")
    epilogue = Epilogue(v, job, products.plane)
    to, stacked = v.stack_vectors(SIDE * CELL)
    at_flat = v.opaque(scratch, v.add(products.place, v.mul(stride, FLAT)))
    v.store(v.plus(v.load(at_flat), epilogue.bias(0)), at_flat)
    down = v.mul(stride, SIDE)
    tops = [v.opaque(scratch, v.add(products.place, v.mul(down, y))) for y in range(SIDE)]
    numbers = [v.add(products.row, v.mul(row_step, y)) for y in range(CELL)]
    to_rows = [v.add(v.integer(places, v.add(n, TARGET_ROWS)), target) for n in numbers]
    from_rows = [v.add(v.integer(places, v.add(n, RESIDUAL_ROWS)), residual) for n in numbers]
    with v.loop(v.opaque_number(SIDE)) as x:
        along = v.mul(stride, x)
        column = [v.load(top, along) for top in tops]
        epilogue.prefetch_column(x, to_rows, from_rows)
        if factors is not None:
            by = v.at(factors, v.mul(x, LANES))
            column = [
                v.times(value, v.load(by, y * SIDE * LANES)) for y, value in enumerate(column)
            ]
        place = v.mul(x, CELL * LANES)
        for y, value in enumerate(_transform_output(v, column)):
            v.store(value, to, v.add(place, y * LANES))
    with v.loop(v.opaque_number(CELL)) as y:
        across = v.at(stacked, v.mul(y, LANES))
        rows = [v.load(across, x * CELL * LANES) for x in range(SIDE)]
        row = v.add(products.row, v.mul(row_step, y))
        epilogue.store(
            _transform_output(v, rows),
            0,
            v.add(v.integer(places, v.add(row, TARGET_ROWS)), target),
            v.add(v.integer(places, v.add(row, RESIDUAL_ROWS)), residual),
        )


def _emit_input(
    v: Emitter,
    job: KernelJob,
    rows: ir.Value,
    offset: ir.Value,
    pixel: ir.Value,
    depth: ir.Value,
    inputs: ir.Value,
    stride: ir.Value,
) -> None:
    """Transforms `depth` planes of one cell of 8x8 pixels, `offset` floats along the rows at
    `rows`, to 64 frequencies, `stride` floats apart."""
    scratch = job.scratch
    starts_of_rows = [v.add(v.integer(rows, SOURCE_ROWS + y), offset) for y in range(SIDE)]
    side = v.opaque_number(SIDE)
    with v.loop(depth, LANES) as plane:
        starts = [v.opaque(scratch, v.add(row, plane)) for row in starts_of_rows]
        stacked = input_columns(v, starts, pixel, side)
        target, down = v.opaque(scratch, v.add(inputs, plane)), v.mul(stride, SIDE)
        with v.loop(side) as y:
            row = v.at(target, v.mul(down, y))
            for x, value in enumerate(input_row(v, stacked, y)):
                v.store(value, row, v.mul(stride, x))


def _emit_product(
    v: Emitter,
    job: KernelJob,
    width: ir.Value,
    inputs: ir.Value,
    depth: ir.Value,
    block: ir.Value,
    products: ir.Value,
) -> None:
    """Emits a tile of a product, height x `width` vectors: inputs, height x `depth`, times weights,
    `depth` x `width` vectors."""
    pixels, vectors = v.at(job.scratch, inputs), v.at(job.weights, block)
    for tile in v.cases(width, WIDTHS):
        slots = v.accumulators([v.splat(0.0)] * (tile_height(tile) * tile))
        accumulate(v, slots, tile, pixels, depth, vectors, depth, unroll=4)
        for n, slot in enumerate(slots):
            v.store(v.get(slot), job.scratch, v.add(products, n * LANES))


def _emit_output(v: Emitter, job: KernelJob, products: Products) -> None:
    """Computes `emit_output` without factors."""
    emit_output(v, job, products)


_input_cell = vector_kernel(_emit_input)
product = vector_kernel(_emit_product)
_output_cell = vector_kernel(_emit_output)


@native
def convolve(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a convolution of 3x3 taps, or several: one row of cells."""
    task = job.task
    source = record(job.maps, task.source)
    threes = task.taps // 3
    locate_source(job, source, CELL + 3 * threes - 1)
    locate_results(job)
    depth, group, pixel = task.depth, task.cells, source.pixel_floats
    own = depth // threes**2
    stride = group * depth + LANES
    cells = task.columns // CELL
    for index in range(-(-cells // group)):
        first = index * group
        count = min(group, cells - first)
        for cell in range(count):
            x, v = (first + cell) * CELL * pixel, task.inputs + cell * depth
            for part in range(threes**2):
                rows = advance(job.places, part // threes * 3)
                along = x + part % threes * 3 * pixel
                _input_cell(job, rows, along, pixel, own, v, stride)
                v += own
        u, plane = task.weight, 0
        product_stride = group * CHUNK + LANES
        while plane < task.planes:
            begin = plane
            for frequency in range(FREQUENCIES):
                v = task.inputs + frequency * stride
                m, plane = task.products + frequency * product_stride, begin
                width = chunk_width(task, begin, plane)
                while width:
                    # The last tile may go past `count` into stale cells, with rows of their own.
                    for cell in range(0, count, _tile_height(width)):
                        at = m + cell * width * LANES
                        product(job, width, v + cell * depth, depth, u, at)
                    u += depth * width * LANES
                    m += group * width * LANES
                    plane += width * LANES
                    width = chunk_width(task, begin, plane)
            m, plane = task.products, begin
            width = chunk_width(task, begin, plane)
            while width:
                dy, dx, inner, _ = block_at(task, plane)
                for cell in range(count):
                    pair, at = (first + cell) * (CELL // 2), m + cell * width * LANES
                    target = pair * task.target_pair + dx * task.target_block + inner
                    added = pair * task.residual_pair + dx * task.residual_block + inner
                    for n in range(0, width * LANES, LANES):
                        _output_cell(
                            job,
                            Products(at + n, product_stride, plane + n, dy, target + n, added + n),
                        )
                m += group * width * LANES
                plane += width * LANES
                width = chunk_width(task, begin, plane)
