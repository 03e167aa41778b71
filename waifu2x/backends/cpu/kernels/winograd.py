"""3x3 convolution by Winograd's F(4x4, 3x3), fp32: 36 products where the definition has 144.

A cell of 4x4 results needs 6x6 inputs. Both the inputs and the weights are transformed into 36
frequencies; the sum over input planes is then an independent matrix product at each frequency,
and a last transform brings the 36 products back to 4x4 results.

    V[f][cell][in]  = transform of the inputs        36 x CELLS x in_planes
    U[block][f][in][out of block]                    the weights, transformed once
    M[f][cell][out of block] = V[f] U[block][f]      36 x CELLS x block of out_planes
    result = transform of M, plus bias, leaky ReLU

The transforms interpolate at the points of `waifu2x.backends.winograd`, which explains them.

Bound: fp32 multiply-adds; the transforms add from a tenth (128 planes) to a third (32). A group of
cells is as large as lets V and M stay in L2 while U streams through. Best measured, two cores,
counted as direct multiply-adds: 1067 GFLOP/s on Sapphire Rapids (2.2 times the FMA peak), 748 on
Zen 4 (3.2 times).
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.epilogue import Epilogue
from waifu2x.backends.cpu.kernels.memory import block_at, locate_results, locate_source, record
from waifu2x.backends.cpu.kernels.product import accumulate
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.layout import (
    CELL,
    LINE_FLOATS,
    RESIDUAL_ROWS,
    SOURCE_ROWS,
    TARGET_ROWS,
    TASK,
)
from waifu2x.backends.cpu.shapes import (
    FREQUENCIES,
    LANES,
    WIDTHS,
    tile_height,
)

_tile_height = native(tile_height)
_A, _B = 0.75, 1.5


def _transform_input(v: Emitter, d: list[ir.Value]) -> list[ir.Value]:
    """Six neighbouring inputs -> six frequencies (B^T d), 12 fused operations."""
    aa, bb = _A * _A, _B * _B
    even_a, even_b = v.fma(d[2], -bb, d[4]), v.fma(d[2], -aa, d[4])
    odd_a, odd_b = v.fma(d[1], -bb, d[3]), v.fma(d[1], -aa, d[3])
    return [
        v.fma(d[0], aa * bb, v.fma(d[2], -(aa + bb), d[4])),
        v.fma(odd_a, _A, even_a),
        v.fma(odd_a, -_A, even_a),
        v.fma(odd_b, _B, even_b),
        v.fma(odd_b, -_B, even_b),
        v.fma(d[1], aa * bb, v.fma(d[3], -(aa + bb), d[5])),
    ]


def _transform_output(v: Emitter, m: list[ir.Value]) -> list[ir.Value]:
    """Six frequencies -> four neighbouring results (A^T m)."""
    sum_a, sum_b = v.plus(m[1], m[2]), v.plus(m[3], m[4])
    difference_a, difference_b = v.minus(m[1], m[2]), v.minus(m[3], m[4])
    return [
        v.plus(m[0], v.plus(sum_a, sum_b)),
        v.fma(difference_b, _B, v.times(difference_a, _A)),
        v.fma(sum_b, _B**2, v.times(sum_a, _A**2)),
        v.plus(m[5], v.fma(difference_b, _B**3, v.times(difference_a, _A**3))),
    ]


def _emit_input(
    v: Emitter,
    depth: ir.Value,
    pixel: ir.Value,
    places: ir.Value,
    offset: ir.Value,
    scratch: ir.Value,
    inputs: ir.Value,
    stride: ir.Value,
) -> None:
    """`depth` planes of one cell: 6x6 pixels -> 36 frequencies, `stride` floats apart."""
    rows = [v.add(v.integer(places, SOURCE_ROWS + y), offset) for y in range(6)]
    with v.loop(depth, LANES) as plane:
        starts = [v.fix(scratch, v.add(row, plane)) for row in rows]
        columns = []
        for x in range(6):
            along = v.mul(pixel, x)
            columns.append(_transform_input(v, [v.load(start, along) for start in starts]))
            for start in starts:
                v.prefetch(start, v.add(along, LINE_FLOATS))
        target = v.at(scratch, v.add(inputs, plane))
        for y in range(6):
            target = v.fix(target, v.mul(stride, 6 if y else 0))
            for x, value in enumerate(_transform_input(v, [column[y] for column in columns])):
                v.store(value, target, v.mul(stride, x))


def _emit_output(
    v: Emitter,
    width: ir.Value,
    task: ir.Value,
    places: ir.Value,
    first: ir.Value,
    target: ir.Value,
    residual: ir.Value,
    scratch: ir.Value,
    products: ir.Value,
    stride: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
) -> None:
    """One cell, `width` vectors of planes: 36 products -> 4x4 results.

    Its rows are those at `first`, and then every `shuffle`th; `target` and `residual` are the
    offsets of its pixels along them.
    """
    shuffle = v.field(task, TASK, "shuffle")
    for vectors in v.cases(width, WIDTHS):
        epilogue = Epilogue(v, task, scratch, constants, plane)
        rows = [v.add(first, v.mul(shuffle, y)) for y in range(CELL)]
        targets = [v.add(v.integer(places, v.add(r, TARGET_ROWS)), target) for r in rows]
        residuals = [v.add(v.integer(places, v.add(r, RESIDUAL_ROWS)), residual) for r in rows]
        for y in range(CELL):
            epilogue.prefetch(CELL, vectors, targets[y], residuals[y])
        for n in range(vectors):
            to, shelf = v.shelf(6 * CELL)
            for x in range(6):
                top = v.fix(scratch, v.add(products, v.add(v.mul(stride, x), n * LANES)))
                column = [v.load(top, v.mul(stride, 6 * y)) for y in range(6)]
                for y, value in enumerate(_transform_output(v, column)):
                    v.store(value, to, (y * 6 + x) * LANES)
            bias = epilogue.bias(n)
            for y in range(CELL):
                across = [v.load(shelf, (y * 6 + x) * LANES) for x in range(6)]
                results = _transform_output(v, across)
                sums = [v.plus(value, bias) for value in results]
                epilogue.store(sums, n, targets[y], residuals[y])


def _emit_product(
    v: Emitter,
    width: ir.Value,
    scratch: ir.Value,
    inputs: ir.Value,
    depth: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    products: ir.Value,
) -> None:
    """A tile of M = V U: (height, depth) times (depth, width vectors)."""
    pixels, vectors = v.at(scratch, inputs), v.at(weights, block)
    for tile in v.cases(width, WIDTHS):
        slots = v.accumulators([v.splat(0.0)] * (tile_height(tile) * tile))
        accumulate(v, slots, tile, pixels, depth, vectors, depth, unroll=4)
        for n, slot in enumerate(slots):
            v.store(v.get(slot), scratch, v.add(products, n * LANES))


_input_cell = vector_kernel(_emit_input)
product = vector_kernel(_emit_product)
_output_cell = vector_kernel(_emit_output)


@native
def convolve(task, maps, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
    """The next rows of a 3x3 product: one of cells."""
    source = record(maps, task.source)
    locate_source(task, source, places, CELL + 2)
    locate_results(task, maps, places)
    depth, group, pixel = task.depth, task.group, source.pixel_floats
    stride = group * depth + LANES
    cells = task.columns // CELL
    for index in range(-(-cells // group)):
        first = index * group
        count = min(group, cells - first)
        for cell in range(count):
            x = (first + cell) * CELL * pixel
            _input_cell(depth, pixel, places, x, scratch, task.inputs + cell * depth, stride)
        block, plane = task.weight, 0
        while plane < task.planes:
            dy, dx, inner, width = block_at(task, plane)
            block_planes = width * LANES
            product_stride = group * block_planes + LANES
            for frequency in range(FREQUENCIES):
                u = block + frequency * depth * block_planes
                # The last tile may run past `count` into stale cells: theirs are rows of their own.
                for cell in range(0, count, _tile_height(width)):
                    v = task.inputs + frequency * stride + cell * depth
                    m = task.products + frequency * product_stride + cell * block_planes
                    product(width, scratch, v, depth, weights, u, m)
            for cell in range(count):
                pair = (first + cell) * (CELL // 2)
                _output_cell(
                    width,
                    task,
                    places,
                    dy,
                    pair * task.target_pair + dx * task.target_block + inner,
                    pair * task.residual_pair + dx * task.residual_block + inner,
                    scratch,
                    task.products + cell * block_planes,
                    product_stride,
                    constants,
                    plane,
                )
            block += FREQUENCIES * depth * block_planes
            plane += block_planes
