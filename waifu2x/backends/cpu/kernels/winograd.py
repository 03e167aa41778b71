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

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import ring_row
from waifu2x.backends.cpu.kernels.product import accumulate
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.layout import CELL
from waifu2x.backends.cpu.shapes import (
    FREQUENCIES,
    LANES,
    WIDTHS,
    tile_height,
    tile_width,
)

_tile_height = native(tile_height)
_tile_width = native(tile_width)
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
    scratch: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    row_3: ir.Value,
    row_4: ir.Value,
    row_5: ir.Value,
    stride: ir.Value,
    inputs: ir.Value,
    spread: ir.Value,
) -> None:
    """All planes of one cell: 6x6 pixels -> 36 frequencies, `spread` floats apart."""
    rows = (row_0, row_1, row_2, row_3, row_4, row_5)
    with v.loop(stride, LANES) as plane:
        columns = []
        for x in range(6):
            place = v.add(v.mul(stride, x), plane)
            columns.append(_transform_input(v, [v.load(scratch, v.add(r, place)) for r in rows]))
        for y in range(6):
            for x, value in enumerate(_transform_input(v, [column[y] for column in columns])):
                place = v.add(v.mul(spread, y * 6 + x), v.add(inputs, plane))
                v.store(value, scratch, place)


def _emit_output(
    v: Emitter,
    width: ir.Value,
    scratch: ir.Value,
    products: ir.Value,
    spread: ir.Value,
    biases: ir.Value,
    bias: ir.Value,
    slope: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    row_3: ir.Value,
    stride: ir.Value,
) -> None:
    """One cell, `width` vectors of planes: 36 products -> 4x4 results."""
    slopes = v.splat(slope)
    for vectors in v.cases(width, WIDTHS):
        for plane in range(0, vectors * LANES, LANES):
            columns = []
            for x in range(6):
                place = v.add(products, v.add(v.mul(spread, x), plane))
                step = v.mul(spread, 6)
                column = [v.load(scratch, v.add(place, v.mul(step, y))) for y in range(6)]
                columns.append(_transform_output(v, column))
            bias_vector = v.load(biases, v.add(bias, plane))
            for y, row in enumerate((row_0, row_1, row_2, row_3)):
                results = _transform_output(v, [column[y] for column in columns])
                for x, value in enumerate(results):
                    place = v.add(v.add(row, plane), v.mul(stride, x))
                    v.store(v.leaky(v.plus(value, bias_vector), slopes), scratch, place)


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
def convolve(layer, source, scratch, weights, biases):  # type: ignore[no-untyped-def]
    """The next `layer.rows` rows of a layer, from the rows of the layer before it."""
    depth, planes, group = layer.in_planes, layer.out_planes, layer.group
    spread = group * depth + LANES
    row = layer.next_row
    s0 = ring_row(source, row - 1)
    s1 = ring_row(source, row)
    s2 = ring_row(source, row + 1)
    s3 = ring_row(source, row + 2)
    s4 = ring_row(source, row + 3)
    s5 = ring_row(source, row + 4)
    t0 = ring_row(layer, row)
    t1 = ring_row(layer, row + 1)
    t2 = ring_row(layer, row + 2)
    t3 = ring_row(layer, row + 3)
    slope = np.float32(layer.slope)
    cells = layer.columns // CELL
    for index in range(-(-cells // group)):
        first = index * group
        count = min(group, cells - first)
        for cell in range(count):
            x = (first + cell) * CELL * depth
            v = layer.inputs + cell * depth
            _input_cell(scratch, s0 + x, s1 + x, s2 + x, s3 + x, s4 + x, s5 + x, depth, v, spread)
        block, plane = layer.weight, 0
        while plane < planes:
            width = _tile_width((planes - plane) // LANES)
            block_planes = width * LANES
            product_spread = group * block_planes + LANES
            for frequency in range(FREQUENCIES):
                u = block + frequency * depth * block_planes
                # The last tile may run past `count` into stale cells: theirs are rows of their own.
                for cell in range(0, count, _tile_height(width)):
                    v = layer.inputs + frequency * spread + cell * depth
                    m = layer.products + frequency * product_spread + cell * block_planes
                    product(width, scratch, v, depth, weights, u, m)
            for cell in range(count):
                m = layer.products + cell * block_planes
                x = (first + cell) * CELL * planes + plane
                _output_cell(
                    width,
                    scratch,
                    m,
                    product_spread,
                    biases,
                    layer.bias + plane,
                    slope,
                    t0 + x,
                    t1 + x,
                    t2 + x,
                    t3 + x,
                    planes,
                )
            block += FREQUENCIES * depth * block_planes
            plane += block_planes
