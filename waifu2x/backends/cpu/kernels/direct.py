"""Convolution as the definition has it, fp32: few planes on one side, and 1x1.

`convolve_few_inputs` (the first layer: 1 or 3 planes in) keeps a tile of pixels and output planes
in registers; in interleaved rows, the inputs of a kernel row are neighbours, so each kernel row is
one inner product of depth taps * in_planes.

`convolve_pointwise` (1x1, also over maps stored by space-to-depth: all inputs of a pixel are
neighbours) is the same with one row. A span of pixels stays in the L1 or L2 cache while all weights
stream by.

`convolve_few_outputs` (the last layer: 1 or 3 planes out) would waste the lanes of a vector on
outputs; its vectors run along the input planes, with one accumulator for each pixel and output, and
the lanes are summed at the end. Each loaded pixel serves the three taps of its kernel row.

Bound: fp32 multiply-adds; together they hold 1.5 % of the arithmetic of vgg_7. Best measured:
78 and 82 % of the FMA peak on Zen 4, 58 and 60 % on Sapphire Rapids.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import (
    KernelJob,
    Tile,
    locate_results,
    locate_source,
    moved,
    record,
    tile_at,
)
from waifu2x.backends.cpu.kernels.register_tiles import Epilogue, accumulate
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import SOURCE_ROWS, TARGET_ROWS
from waifu2x.backends.cpu.pack.shapes import LANES, ROW_BLOCK, WIDTHS, tile_height

_RUN = 4 if VECTOR.registers >= 32 else 3
"""Neighbouring pixels that share the loads of a few-outputs tile."""
_OUTPUTS = (3, 1)
"""Output planes of a few-outputs tile."""
_SPAN_FLOATS = 16384
"""The inputs of a span of 1x1 convolutions, which should stay in a cache."""


def _emit_rows(
    v: Emitter,
    job: KernelJob,
    tile: Tile,
    count: ir.Value,
    row: Callable[[ir.Value], ir.Value],
    pixel: ir.Value,
    depth: ir.Value,
    unroll: int,
) -> None:
    """Computes a tile from `count` rows: `depth` inputs of each for each pixel. Pixels are `pixel`
    floats apart; `row` returns the place of a row."""
    weights = v.at(job.weights, tile.block)
    for width in v.cases(tile.width, WIDTHS):
        height = tile_height(width)
        epilogue = Epilogue(v, job, tile.plane)
        epilogue.prefetch(height, width, tile.target, tile.residual)
        slots = v.accumulators([epilogue.bias(n) for n in range(width)] * height)
        with v.loop(count) as y:
            vectors = v.at(weights, v.mul(v.mul(depth, y), width * LANES))
            accumulate(v, slots, width, v.at(job.scratch, row(y)), pixel, vectors, depth, unroll)
        for n in range(width):
            sums = [v.get(slots[m * width + n]) for m in range(height)]
            epilogue.store(sums, n, tile.target, tile.residual)


def _emit_few_inputs(
    v: Emitter, job: KernelJob, tile: Tile, row: ir.Value, offset: ir.Value, pixel: ir.Value
) -> None:
    """Computes a tile of a convolution of any taps, whose inputs begin `offset` floats along the
    located row `row`."""
    taps = v.field(job.task, "taps")

    def located(y: ir.Value) -> ir.Value:
        return v.add(v.integer(job.places, v.add(v.add(row, y), SOURCE_ROWS)), offset)

    _emit_rows(v, job, tile, taps, located, pixel, v.mul(pixel, taps), 1)


def _emit_pointwise(
    v: Emitter, job: KernelJob, tile: Tile, source: ir.Value, pixel: ir.Value
) -> None:
    """Computes a tile of a 1x1 convolution of pixels `pixel` floats apart from `source` on."""
    depth = v.field(job.task, "depth")
    _emit_rows(v, job, tile, v.index(1), lambda y: source, pixel, depth, 4)


def _emit_few_outputs(
    v: Emitter,
    job: KernelJob,
    outputs: ir.Value,
    row: ir.Value,
    x: ir.Value,
    pixel: ir.Value,
    plane: ir.Value,
) -> None:
    """Computes `outputs` results of each pixel of a run of a row."""
    task, places, scratch = job.task, job.places, job.scratch
    depth, planes = v.field(task, "depth"), v.field(task, "planes")
    block = v.add(v.field(task, "weight"), v.mul(v.mul(depth, plane), 9))
    target = v.integer(places, v.add(row, TARGET_ROWS))
    target = v.add(v.add(target, v.mul(x, planes)), plane)
    bias = v.add(v.field(task, "bias"), plane)
    slope = v.add(v.field(task, "slopes"), plane)
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
                        factors = v.load(job.weights, v.add(block, v.add(kernel, k)))
                        for m in range(_RUN):
                            slot = slots[m * count + o]
                            v.set(slot, v.fma(pixels[m + tap], factors, v.get(slot)))
        for m in range(_RUN):
            for o in range(count):
                total = v.total(v.get(slots[m * count + o]))
                result = v.plus(total, v.load_float(job.constants, v.add(bias, o)))
                result = v.leaky(result, v.load_float(job.constants, v.add(slope, o)))
                v.store_float(result, scratch, v.add(target, v.add(v.mul(planes, m), o)))


_few_inputs = vector_kernel(_emit_few_inputs)
_pointwise = vector_kernel(_emit_pointwise)
_few_outputs = vector_kernel(_emit_few_outputs)
_tile_height = native(tile_height)


@native
def convolve_few_inputs(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a convolution that reads all planes of its pixels."""
    task = job.task
    taps, pixel = task.taps, task.depth
    locate_source(job, record(job.maps, task.source), task.rows + taps - 1)
    locate_results(job)
    for row in range(task.rows):
        block, plane = task.weight, 0
        while plane < task.planes:
            tile = tile_at(job, row, plane, block)
            # The last tile may go past the columns, into the spare pixels of each row.
            for x in range(0, task.columns, _tile_height(tile.width)):
                _few_inputs(job, moved(task, tile, x), row, x * pixel, pixel)
            block += taps * taps * pixel * tile.width * LANES
            plane += tile.width * LANES


@native
def convolve_pointwise(job):  # type: ignore[no-untyped-def]
    """Computes the next row of a 1x1 convolution."""
    task, places = job.task, job.places
    source = record(job.maps, task.source)
    locate_source(job, source, task.rows)
    locate_results(job)
    pixel = source.pixel_floats
    span = max(1, _SPAN_FLOATS // (task.depth * ROW_BLOCK)) * ROW_BLOCK
    for index in range(task.rows * -(-task.columns // span)):
        row, first = index % task.rows, index // task.rows * span
        end = min(first + span, task.columns)
        block, plane = task.weight, 0
        while plane < task.planes:
            tile = tile_at(job, row, plane, block)
            for x in range(first, end, _tile_height(tile.width)):
                start = places[SOURCE_ROWS + row] + x * pixel
                _pointwise(job, moved(task, tile, x), start, pixel)
            block += task.depth * tile.width * LANES
            plane += tile.width * LANES


@native
def convolve_few_outputs(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a 3x3 convolution into a plain map of few planes."""
    task = job.task
    source = record(job.maps, task.source)
    locate_source(job, source, task.rows + 2)
    locate_results(job)
    for row in range(task.rows):
        for x in range(0, task.columns, _RUN):
            plane = 0
            while plane < task.planes:
                outputs = _OUTPUTS[0] if task.planes - plane >= _OUTPUTS[0] else _OUTPUTS[1]
                _few_outputs(job, outputs, row, x, source.pixel_floats, plane)
                plane += outputs
