"""3x3 convolution on AMX tiles: bf16 inputs and weights, fp32 sums.

A tile register holds 16 rows of 64 bytes. `tdpbf16ps` multiplies a tile of 16 pixels x 32 planes by
a tile of 32 planes x 16 outputs. Rows of the feature map are interleaved, so 16 neighbouring pixels
load straight from it with the pixel's size as the stride, and the three taps of a kernel row are
3 * in_planes values that follow each other: no im2col. Two tiles of pixels times two of outputs
share their loads, four tiles hold the sums, which start as the biases.

    pixels   bf16 (row, column, in_planes), less the layer's centre
    weights  bf16 (block of 32 outputs, 3 rows, 3 in_planes / 32, 2 tiles, 16 pairs, 16 outputs, 2)

Two things make plain bf16 keep 60 dB. Weights are rounded with error feedback: the taps of a kernel
in order of falling size, each handing its rounding error to the next, so that the kernel's sum, all
that a flat area sees, stays right. And what is stored of a feature map is its difference from its
value under mid grey, its centre: differences are smaller than values, and so is their rounding
error. A valid convolution never meets padding zeros, so the next layer's bias makes up for the
centre exactly. Together they are worth 14 dB, at no cost while it runs.

Bound: the tile unit, 16 cycles for 8192 multiply-adds; the loads of a step take about 32 of its 64
cycles from L1, more from L2, where the weights of 128 > 128 have to stay. Best measured: 3924
GFLOP/s on two cores, 61 % of what the same loop reaches on data in L1.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import ring_row
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.shapes import BLOCK, LANES, STAGE_FLOATS, TILE_FLOATS, TILE_ROWS


def _emit_configure(v: Emitter, weights: ir.Value) -> None:
    if VECTOR.tiles:
        v.tile("ldtilecfg", weights)


def _emit_release(v: Emitter) -> None:
    if VECTOR.tiles:
        v.tile("tilerelease")


def _emit_block(
    v: Emitter,
    height: ir.Value,
    scratch: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    pixel_floats: ir.Value,
    steps: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    biases: ir.Value,
    bias: ir.Value,
    stage: ir.Value,
    late_count: ir.Value,
    late_per_step: ir.Value,
    late_stage: ir.Value,
    centre: ir.Value,
    slope: ir.Value,
    bfloats: ir.Value,
    target: ir.Value,
    target_floats: ir.Value,
) -> None:
    """Sums of `height` (1 or 2) tiles of pixels and BLOCK outputs, to (pixel, output) floats.

    Meanwhile the vector units finish the block before, `late_per_step` pixels a step.
    """
    if not VECTOR.tiles:
        return
    stride = v.mul(pixel_floats, 4)
    slopes, centres = v.splat(slope), _load_centres(v, biases, centre)
    last = v.add(late_count, -1)
    for pixels in v.cases(height, (2, 1)):
        sums = [[m * 2 + n for n in range(2)] for m in range(pixels)]
        for m in range(pixels):
            for n in range(2):
                # Stride 0: every pixel starts with the same biases.
                v.tile("tileloadd64", sums[m][n], v.at(biases, v.add(bias, n * 16)), v.index(0))
        for y, row in enumerate((row_0, row_1, row_2)):
            with v.loop(steps) as step:
                index = v.add(step, v.mul(steps, y))
                place = v.add(block, v.mul(index, 2 * TILE_FLOATS))
                for n in range(2):
                    tile = v.at(weights, v.add(place, n * TILE_FLOATS))
                    v.tile("tileloadd64", 6 + n, tile, v.index(64))
                for m in range(pixels):
                    first = v.add(row, v.add(v.mul(step, 16), v.mul(pixel_floats, m * TILE_ROWS)))
                    v.tile("tileloadd64", 4 + m, v.at(scratch, first), stride)
                    for n in range(2):
                        v.tile("tdpbf16ps", sums[m][n], 4 + m, 6 + n)
                with v.loop(late_per_step) as more:
                    # Past the last pixel, the last one once more: it changes nothing.
                    pixel = v.smaller(v.add(v.mul(index, late_per_step), more), last)
                    _finish_pixel(
                        v,
                        scratch,
                        v.add(late_stage, v.mul(pixel, BLOCK)),
                        centres,
                        slopes,
                        bfloats,
                        target,
                        v.mul(pixel, target_floats),
                        target_floats,
                    )
        for m in range(pixels):
            for n in range(2):
                place = v.at(scratch, v.add(stage, m * TILE_ROWS * BLOCK + n * 16))
                v.tile("tilestored64", sums[m][n], place, v.index(BLOCK * 4))


def _load_centres(v: Emitter, biases: ir.Value, centre: ir.Value) -> list[ir.Value]:
    return [v.load(biases, v.add(centre, n)) for n in range(0, BLOCK, LANES)]


def _finish_pixel(
    v: Emitter,
    scratch: ir.Value,
    source: ir.Value,
    centres: list[ir.Value],
    slopes: ir.Value,
    bfloats: ir.Value,
    target: ir.Value,
    offset: ir.Value,
    pixel_floats: ir.Value,
) -> None:
    """BLOCK planes of a pixel: leaky ReLU, less the centre, stored as bf16 terms or floats."""
    for terms in v.cases(bfloats, (1, 2, 0) if VECTOR.tiles else (0,)):
        for n, centre in enumerate(centres):
            value = v.load(scratch, v.add(source, n * LANES))
            result = v.minus(v.leaky(value, slopes), centre)
            place = v.add(target, v.add(v.mul(offset, 2 if terms else 1), n * LANES))
            if not terms:
                v.store(result, scratch, place)
            for _ in range(terms):
                rounded = v.store_bfloats(result, scratch, place)
                # With two terms, the second one is what the first leaves; all of them follow it.
                result, place = v.minus(result, rounded), v.add(place, pixel_floats)


def _emit_finish(
    v: Emitter,
    count: ir.Value,
    scratch: ir.Value,
    stage: ir.Value,
    stage_stride: ir.Value,
    biases: ir.Value,
    centre: ir.Value,
    slope: ir.Value,
    bfloats: ir.Value,
    target: ir.Value,
    pixel_floats: ir.Value,
) -> None:
    """BLOCK planes of `count` pixels; `target` counts floats, or bf16 values if `bfloats`."""
    slopes, centres = v.splat(slope), _load_centres(v, biases, centre)
    with v.loop(count) as pixel:
        source = v.add(stage, v.mul(pixel, stage_stride))
        offset = v.mul(pixel, pixel_floats)
        _finish_pixel(v, scratch, source, centres, slopes, bfloats, target, offset, pixel_floats)


configure = vector_kernel(_emit_configure)
release = vector_kernel(_emit_release)
product_block = vector_kernel(_emit_block)
finish = vector_kernel(_emit_finish)


@native
def convolve_tiles(layer, source, scratch, weights, biases):  # type: ignore[no-untyped-def]
    """The next `layer.rows` rows of a layer, from the rows of the layer before it."""
    pixel = source.pixel_floats
    steps = 3 * layer.in_planes // BLOCK
    slope = np.float32(layer.slope)
    # Results are finished one block late, while the tile unit is busy with the next one.
    stage, late = layer.products, layer.products + STAGE_FLOATS
    count, goal, late_plane = 0, 0, 0
    blocks = layer.out_planes // BLOCK
    spans = -(-layer.columns // BLOCK)
    # One loop over rows, spans of pixels and blocks of planes, so that "late" crosses all ends.
    for index in range(layer.rows * spans * blocks):
        row = layer.next_row + index // (spans * blocks)
        x = index // blocks % spans * BLOCK
        plane = index % blocks * BLOCK
        p = x * pixel
        r0 = ring_row(source, row - 1)
        r1 = ring_row(source, row)
        r2 = ring_row(source, row + 1)
        # The last tile may run past the columns, into spare room at the end of each row.
        height = 2 if layer.columns - x > TILE_ROWS else 1
        block = layer.weight + plane * 9 * layer.in_planes // 2
        bias = layer.bias + plane
        product_block(
            height,
            scratch,
            r0 + p,
            r1 + p,
            r2 + p,
            pixel,
            steps,
            weights,
            block,
            biases,
            bias,
            stage,
            count,
            -(-count // (3 * steps)),
            late,
            layer.centre + late_plane,
            slope,
            layer.bfloats,
            goal,
            layer.pixel_floats,
        )
        stage, late = late, stage
        count, late_plane = height * TILE_ROWS, plane
        target = ring_row(layer, row) + x * layer.pixel_floats
        goal = target * (2 if layer.bfloats else 1) + plane
    finish(
        count,
        scratch,
        late,
        BLOCK,
        biases,
        layer.centre + late_plane,
        slope,
        layer.bfloats,
        goal,
        layer.pixel_floats,
    )
