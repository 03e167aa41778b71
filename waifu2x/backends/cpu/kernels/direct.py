"""Convolution as the definition has it, fp32: few planes on one side, and 1x1.

`convolve_few_inputs` (the first layer: 1 or 3 planes in) keeps a tile of pixels and output planes
in registers; interleaved rows make the taps of one kernel row neighbours in memory, so each of the
rows is one inner product of depth taps * in_planes.

`convolve_pointwise` (1x1, also over maps stored by space-to-depth: all that is read of a pixel are
neighbours) is the same with one row. A span of pixels stays in the L1 or L2 cache while all weights
stream by.

`convolve_few_outputs` (the last layer: 1 or 3 planes out) would waste the lanes of a vector on
outputs; its vectors run along the input planes, one accumulator for each pixel and output, and the
lanes are added up at the end. Each loaded pixel serves the three taps of its kernel row.

Bound: fp32 multiply-adds; together they hold 1.5 % of the arithmetic of vgg_7. Best measured:
78 and 82 % of the FMA peak on Zen 4, 58 and 60 % on Sapphire Rapids.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.accumulate import accumulate
from waifu2x.backends.cpu.kernels.epilogue import Epilogue
from waifu2x.backends.cpu.kernels.memory import block_at, locate_results, locate_source, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import RESIDUAL_ROWS, SOURCE_ROWS, TARGET_ROWS, TASK
from waifu2x.backends.cpu.pack.shapes import LANES, ROW_BLOCK, WIDTHS, tile_height

_RUN = 4 if VECTOR.registers >= 32 else 3
"""Neighbouring pixels that share the loads of a few-outputs tile."""
_OUTPUTS = (3, 1)
"""Output planes of a few-outputs tile."""
_SPAN_FLOATS = 16384
"""Inputs of a span of 1x1 convolutions that is meant to stay in a cache."""


def _emit_rows(
    v: Emitter,
    width: ir.Value,
    task: ir.Value,
    scratch: ir.Value,
    count: ir.Value,
    row: Callable[[ir.Value], ir.Value],
    pixel: ir.Value,
    depth: ir.Value,
    weights: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
    target: ir.Value,
    residual: ir.Value,
    unroll: int,
) -> None:
    """A tile of results: neighbouring pixels of `width` vectors each, `depth` inputs from each of
    `count` rows, whose places `row` gives."""
    for tile in v.cases(width, WIDTHS):
        height = tile_height(tile)
        epilogue = Epilogue(v, task, scratch, constants, plane)
        epilogue.prefetch(height, tile, target, residual)
        slots = v.accumulators([epilogue.bias(n) for n in range(tile)] * height)
        with v.loop(count) as y:
            vectors = v.at(weights, v.mul(v.mul(depth, y), tile * LANES))
            accumulate(v, slots, tile, v.at(scratch, row(y)), pixel, vectors, depth, unroll)
        for n in range(tile):
            sums = [v.get(slots[m * tile + n]) for m in range(height)]
            epilogue.store(sums, n, target, residual)


def _emit_few_inputs(
    v: Emitter,
    width: ir.Value,
    task: ir.Value,
    places: ir.Value,
    row: ir.Value,
    offset: ir.Value,
    pixel: ir.Value,
    scratch: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
    target: ir.Value,
    residual: ir.Value,
) -> None:
    """Any taps: a tile of row `row` of those that are located, its inputs `offset` floats along."""
    taps = v.field(task, TASK, "taps")
    depth, vectors = v.mul(pixel, taps), v.at(weights, block)

    def located(y: ir.Value) -> ir.Value:
        return v.add(v.integer(places, v.add(v.add(row, y), SOURCE_ROWS)), offset)

    _emit_rows(
        *(v, width, task, scratch, taps, located, pixel, depth, vectors, constants),
        *(plane, target, residual, 1),
    )


def _emit_pointwise(
    v: Emitter,
    width: ir.Value,
    task: ir.Value,
    source: ir.Value,
    pixel: ir.Value,
    scratch: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
    target: ir.Value,
    residual: ir.Value,
) -> None:
    """1x1: a tile of pixels, the first at `source`, `pixel` floats apart."""
    depth, vectors = v.field(task, TASK, "depth"), v.at(weights, block)
    _emit_rows(
        *(v, width, task, scratch, v.index(1), lambda y: source, pixel, depth, vectors, constants),
        *(plane, target, residual, 4),
    )


def _emit_few_outputs(
    v: Emitter,
    outputs: ir.Value,
    task: ir.Value,
    places: ir.Value,
    row: ir.Value,
    x: ir.Value,
    pixel: ir.Value,
    scratch: ir.Value,
    weights: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
) -> None:
    """A run of neighbouring pixels of a row, `outputs` results of each."""
    depth, planes = v.field(task, TASK, "depth"), v.field(task, TASK, "planes")
    block = v.add(v.field(task, TASK, "weight"), v.mul(v.mul(depth, plane), 9))
    target = v.integer(places, v.add(row, TARGET_ROWS))
    target = v.add(v.add(target, v.mul(x, planes)), plane)
    bias = v.add(v.field(task, TASK, "bias"), plane)
    slope = v.add(v.field(task, TASK, "slopes"), plane)
    for count in v.cases(outputs, _OUTPUTS):
        slots = v.accumulators([v.splat(0.0)] * (_RUN * count))
        for y in range(3):
            first = v.add(v.integer(places, v.add(row, SOURCE_ROWS + y)), v.mul(pixel, x))
            with v.loop(depth, LANES) as k:
                pixels = [
                    v.load(scratch, v.add(first, v.add(v.mul(pixel, m), k)))
                    for m in range(_RUN + 2)
                ]
                for tap in range(3):
                    for o in range(count):
                        kernel = v.mul(depth, (o * 3 + y) * 3 + tap)
                        factors = v.load(weights, v.add(block, v.add(kernel, k)))
                        for m in range(_RUN):
                            slot = slots[m * count + o]
                            v.set(slot, v.fma(pixels[m + tap], factors, v.get(slot)))
        for m in range(_RUN):
            for o in range(count):
                total = v.total(v.get(slots[m * count + o]))
                result = v.plus(total, v.load_float(constants, v.add(bias, o)))
                result = v.leaky(result, v.load_float(constants, v.add(slope, o)))
                v.store_float(result, scratch, v.add(target, v.add(v.mul(planes, m), o)))


_few_inputs = vector_kernel(_emit_few_inputs)
_pointwise = vector_kernel(_emit_pointwise)
_few_outputs = vector_kernel(_emit_few_outputs)
_tile_height = native(tile_height)


@native
def convolve_few_inputs(task, maps, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
    """The next rows of a convolution over a map whose pixels are all read."""
    taps = task.taps
    locate_source(task, record(maps, task.source), places, task.rows + taps - 1)
    locate_results(task, maps, places)
    pixel = task.depth
    for row in range(task.rows):
        block, plane = task.weight, 0
        while plane < task.planes:
            dy, dx, inner, width = block_at(task, plane)
            target = (
                places[TARGET_ROWS + row * task.depth_to_space + dy]
                + dx * task.target_block
                + inner
            )
            residual = (
                places[RESIDUAL_ROWS + row * task.depth_to_space + dy]
                + dx * task.residual_block
                + inner
            )
            # The last tile may run past the columns, into spare room at the end of each row.
            for x in range(0, task.columns, _tile_height(width)):
                _few_inputs(
                    width,
                    task,
                    places,
                    row,
                    x * pixel,
                    pixel,
                    scratch,
                    weights,
                    block,
                    constants,
                    plane,
                    target + x // 2 * task.target_pair,
                    residual + x // 2 * task.residual_pair,
                )
            block += taps * taps * pixel * width * LANES
            plane += width * LANES


@native
def convolve_pointwise(task, maps, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
    """The next row of a 1x1 convolution."""
    source = record(maps, task.source)
    locate_source(task, source, places, task.rows)
    locate_results(task, maps, places)
    pixel = source.pixel_floats
    span = max(1, _SPAN_FLOATS // (task.depth * ROW_BLOCK)) * ROW_BLOCK
    for index in range(task.rows * -(-task.columns // span)):
        row, first = index % task.rows, index // task.rows * span
        end = min(first + span, task.columns)
        block, plane = task.weight, 0
        while plane < task.planes:
            dy, dx, inner, width = block_at(task, plane)
            target = (
                places[TARGET_ROWS + row * task.depth_to_space + dy]
                + dx * task.target_block
                + inner
            )
            residual = (
                places[RESIDUAL_ROWS + row * task.depth_to_space + dy]
                + dx * task.residual_block
                + inner
            )
            for x in range(first, end, _tile_height(width)):
                _pointwise(
                    width,
                    task,
                    places[SOURCE_ROWS + row] + x * pixel,
                    pixel,
                    scratch,
                    weights,
                    block,
                    constants,
                    plane,
                    target + x // 2 * task.target_pair,
                    residual + x // 2 * task.residual_pair,
                )
            block += task.depth * width * LANES
            plane += width * LANES


@native
def convolve_few_outputs(task, maps, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
    """The next rows of a 3x3 convolution into a plain map of few planes."""
    source = record(maps, task.source)
    locate_source(task, source, places, task.rows + 2)
    locate_results(task, maps, places)
    for row in range(task.rows):
        for x in range(0, task.columns, _RUN):
            plane = 0
            while plane < task.planes:
                outputs = _OUTPUTS[0] if task.planes - plane >= _OUTPUTS[0] else _OUTPUTS[1]
                _few_outputs(
                    outputs,
                    task,
                    places,
                    row,
                    x,
                    source.pixel_floats,
                    scratch,
                    weights,
                    constants,
                    plane,
                )
                plane += outputs
