"""The last layer on AMX tiles: 3x3 convolution, bf16 in two terms, few planes out.

A tile of weights has room for 16 outputs, and this layer has 3. So the columns of a tile are the
outputs under each of the three taps of a kernel row, 9 of 16, and a pixel is read once for all
three. What comes out belongs to three neighbouring results; it is added up in a second pass:

    P[x, kx * outs + o] = sum over ky and in of pixel[y + ky - 1, x] * w[o, in, ky, kx]
    result[x, o] = P[x - 1, o] + P[x, outs + o] + P[x + 1, 2 * outs + o] + bias[o]

Two rows of results are made together: each of the four rows of pixels behind them is read once.
Nothing behind this layer evens out a rounding error, so pixels come as two bf16 terms, the value
rounded and what is left of it; both are multiplied with the same tile of weights, which are rounded
with error feedback as in `tiles`. Against a last layer in fp32 that costs 0.2 dB at most.

    pixels   bf16 (row, column, 2 terms, in_planes), less the layer's centre
    weights  bf16 (3 rows, in_planes / 32, 16 pairs, 16 columns, 2)

Bound: the tile unit, 24 products of 16 cycles for 16 results; a third of them read their pixels,
from L2, alone.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import ring_row
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.shapes import BLOCK, COLUMNS, TILE_FLOATS


def _emit_sums(
    v: Emitter,
    height: ir.Value,
    scratch: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    row_3: ir.Value,
    pixel_floats: ir.Value,
    steps: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    sums_0: ir.Value,
    sums_1: ir.Value,
) -> None:
    """P of `height` (1 or 2) tiles of pixels in two rows, to (pixel, COLUMNS) floats each."""
    if not VECTOR.tiles:
        return
    stride, term_floats = v.mul(pixel_floats, 4), v.mul(steps, BLOCK // 2)
    for pixels in v.cases(height, (2, 1)):
        sums = [[y * 2 + m for m in range(pixels)] for y in range(2)]
        for tile in sums[0] + sums[1]:
            v.tile("tilezero", tile)
        for r, row in enumerate((row_0, row_1, row_2, row_3)):
            results = [y for y in range(2) if 0 <= r - y < 3]
            with v.loop(steps) as step:
                for y in results:
                    place = v.mul(v.add(v.mul(steps, r - y), step), TILE_FLOATS)
                    v.tile("tileloadd64", 6 + y, v.at(weights, v.add(block, place)), v.index(64))
                for term in range(2):
                    first = v.add(row, v.add(v.mul(step, BLOCK // 2), v.mul(term_floats, term)))
                    for m in range(pixels):
                        place = v.add(first, v.mul(pixel_floats, m * COLUMNS))
                        v.tile("tileloadd64", 4 + m, v.at(scratch, place), stride)
                        for y in results:
                            v.tile("tdpbf16ps", sums[y][m], 4 + m, 6 + y)
        for y, target in enumerate((sums_0, sums_1)):
            for m in range(pixels):
                place = v.at(scratch, v.add(target, m * TILE_FLOATS))
                v.tile("tilestored64", sums[y][m], place, v.index(COLUMNS * 4))


def _emit_results(
    v: Emitter,
    count: ir.Value,
    scratch: ir.Value,
    sums: ir.Value,
    outputs: ir.Value,
    biases: ir.Value,
    bias: ir.Value,
    slope: ir.Value,
    target: ir.Value,
) -> None:
    """Results of `count` pixels from their P: the first `outputs` lanes of each sum.

    The other lanes are stored as well, where the results of the next pixels overwrite them, or in
    the spare room at the end of the row.
    """
    slopes, bias_vector = v.splat(slope), v.load(biases, bias)
    with v.loop(count) as x:
        left = v.add(sums, v.mul(x, COLUMNS))
        middle = v.add(left, v.add(outputs, COLUMNS))
        right = v.add(middle, v.add(outputs, COLUMNS))
        total = v.plus(v.load(scratch, left), v.load(scratch, middle))
        total = v.plus(v.plus(total, v.load(scratch, right)), bias_vector)
        v.store(v.leaky(total, slopes), scratch, v.add(target, v.mul(x, outputs)))


_sums = vector_kernel(_emit_sums)
_results = vector_kernel(_emit_results)


@native
def convolve_few_tiles(layer, source, scratch, weights, biases):  # type: ignore[no-untyped-def]
    """The next two rows of a layer, from the rows of the layer before it."""
    row, pixel = layer.next_row, source.pixel_floats
    s0 = ring_row(source, row - 1)
    s1 = ring_row(source, row)
    s2 = ring_row(source, row + 1)
    s3 = ring_row(source, row + 2)
    steps = layer.in_planes // BLOCK
    # Sums are needed one pixel beyond the results on both sides; the last tile may run past them.
    tiles = -(-(layer.columns + 2) // COLUMNS)
    row_sums = tiles * TILE_FLOATS
    for tile in range(0, tiles, 2):
        p = tile * COLUMNS * pixel
        sums = layer.products + tile * TILE_FLOATS
        _sums(
            min(2, tiles - tile),
            scratch,
            s0 + p,
            s1 + p,
            s2 + p,
            s3 + p,
            pixel,
            steps,
            weights,
            layer.weight,
            sums,
            sums + row_sums,
        )
    for y in range(2):
        _results(
            layer.columns,
            scratch,
            layer.products + y * row_sums,
            layer.out_planes,
            biases,
            layer.bias,
            np.float32(layer.slope),
            ring_row(layer, row + y),
        )
