"""3x3 convolution as the definition has it, fp32, for the layers that have few planes on one side.

`convolve_few_inputs` (the first layer: 1 or 3 planes in) keeps a tile of pixels and output planes
in registers; interleaved rows make the taps of one kernel row neighbours in memory, so each of the
three rows is one product of depth 3 * in_planes.

`convolve_few_outputs` (the last layer: 1 or 3 planes out) would waste the lanes of a vector on
outputs; its vectors run along the input planes, one accumulator for each pixel and output, and the
lanes are added up at the end. Each loaded pixel serves the three taps of its kernel row.

Bound: fp32 multiply-adds; together they hold 1.5 % of the arithmetic of vgg_7. Best measured:
78 and 82 % of the FMA peak on Zen 4, 58 and 60 % on Sapphire Rapids.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import ring_row
from waifu2x.backends.cpu.kernels.product import accumulate
from waifu2x.backends.cpu.kernels.tiles import finish
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.shapes import BLOCK, LANES, WIDTHS, tile_height, tile_width

_RUN = 4 if VECTOR.registers >= 32 else 2
"""Neighbouring pixels that share the loads of a few-outputs tile."""
_OUTPUTS = (3, 1)
"""Output planes of a few-outputs tile."""


def _emit_few_inputs(
    v: Emitter,
    width: ir.Value,
    scratch: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    stride: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    biases: ir.Value,
    bias: ir.Value,
    slope: ir.Value,
    target: ir.Value,
    planes: ir.Value,
) -> None:
    """A tile of results: neighbouring pixels, `planes` floats apart, of `width` vectors each."""
    slopes, depth = v.splat(slope), v.mul(stride, 3)
    for tile in v.cases(width, WIDTHS):
        height = tile_height(tile)
        bias_vectors = [v.load(biases, v.add(bias, n * LANES)) for n in range(tile)]
        slots = v.accumulators(bias_vectors * height)
        for y, row in enumerate((row_0, row_1, row_2)):
            vectors = v.at(weights, v.add(block, v.mul(depth, y * tile * LANES)))
            accumulate(v, slots, tile, v.at(scratch, row), stride, vectors, depth, unroll=1)
        for m in range(height):
            for n in range(tile):
                place = v.add(target, v.add(v.mul(planes, m), n * LANES))
                v.store(v.leaky(v.get(slots[m * tile + n]), slopes), scratch, place)


def _emit_few_outputs(
    v: Emitter,
    outputs: ir.Value,
    scratch: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    depth: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    biases: ir.Value,
    bias: ir.Value,
    slope: ir.Value,
    target: ir.Value,
    planes: ir.Value,
) -> None:
    """A run of neighbouring pixels, `planes` floats apart, `outputs` results of each."""
    for count in v.cases(outputs, _OUTPUTS):
        slots = v.accumulators([v.splat(0.0)] * (_RUN * count))
        for y, row in enumerate((row_0, row_1, row_2)):
            with v.loop(depth, LANES) as plane:
                pixels = [
                    v.load(scratch, v.add(row, v.add(v.mul(depth, x), plane)))
                    for x in range(_RUN + 2)
                ]
                for tap in range(3):
                    for o in range(count):
                        kernel = v.mul(depth, (o * 3 + y) * 3 + tap)
                        factors = v.load(weights, v.add(block, v.add(kernel, plane)))
                        for x in range(_RUN):
                            slot = slots[x * count + o]
                            v.set(slot, v.fma(pixels[x + tap], factors, v.get(slot)))
        for x in range(_RUN):
            for o in range(count):
                total = v.total(v.get(slots[x * count + o]))
                result = v.leaky(v.plus(total, v.load_float(biases, v.add(bias, o))), slope)
                v.store_float(result, scratch, v.add(target, v.add(v.mul(planes, x), o)))


_few_inputs = vector_kernel(_emit_few_inputs)
_few_outputs = vector_kernel(_emit_few_outputs)
_tile_height = native(tile_height)
_tile_width = native(tile_width)


@native
def convolve_few_inputs(layer, source, scratch, weights, biases):  # type: ignore[no-untyped-def]
    """The next `layer.rows` rows of a layer, from the rows of the layer before it."""
    stride, planes = layer.in_planes, layer.out_planes
    slope = np.float32(layer.slope)
    for row in range(layer.next_row, layer.next_row + layer.rows):
        r0 = ring_row(source, row - 1)
        r1 = ring_row(source, row)
        r2 = ring_row(source, row + 1)
        home = ring_row(layer, row)
        target = layer.products if layer.bfloats else home
        block, plane = layer.weight, 0
        while plane < planes:
            width = _tile_width((planes - plane) // LANES)
            # The last tile may run past the columns, into spare room at the end of each row.
            for x in range(0, layer.columns, _tile_height(width)):
                _few_inputs(
                    width,
                    scratch,
                    r0 + x * stride,
                    r1 + x * stride,
                    r2 + x * stride,
                    stride,
                    weights,
                    block,
                    biases,
                    layer.bias + plane,
                    slope,
                    target + x * planes + plane,
                    planes,
                )
            block += 9 * stride * width * LANES
            plane += width * LANES
        if layer.bfloats:
            for plane in range(0, planes, BLOCK):
                finish(
                    layer.columns,
                    scratch,
                    target + plane,
                    planes,
                    biases,
                    layer.centre + plane,
                    np.float32(1),  # the slope has been applied
                    layer.bfloats,
                    2 * home + plane,
                    layer.pixel_floats,
                )


@native
def convolve_few_outputs(layer, source, scratch, weights, biases):  # type: ignore[no-untyped-def]
    """The next `layer.rows` rows of a layer, from the rows of the layer before it."""
    depth, planes = layer.in_planes, layer.out_planes
    slope = np.float32(layer.slope)
    for row in range(layer.next_row, layer.next_row + layer.rows):
        r0 = ring_row(source, row - 1)
        r1 = ring_row(source, row)
        r2 = ring_row(source, row + 1)
        target = ring_row(layer, row)
        for x in range(0, layer.columns, _RUN):
            plane = 0
            while plane < planes:
                outputs = _OUTPUTS[0] if planes - plane >= _OUTPUTS[0] else _OUTPUTS[1]
                _few_outputs(
                    outputs,
                    scratch,
                    r0 + x * depth,
                    r1 + x * depth,
                    r2 + x * depth,
                    depth,
                    weights,
                    layer.weight + plane * 9 * depth,
                    biases,
                    layer.bias + plane,
                    slope,
                    target + x * planes + plane,
                    planes,
                )
                plane += outputs
