"""Convolution on AMX tiles, 3x3 and 1x1: bf16 inputs and weights, fp32 sums.

A tile register holds 16 rows of 64 bytes. `tdpbf16ps` multiplies a tile of 16 pixels x 32 planes by
a tile of 32 planes x 16 outputs. Rows of the feature map are interleaved, so a tile of 16
neighbouring pixels is loaded directly from it with the pixel's size as the stride, and the next tap
is the next pixel: no im2col. Two tiles of pixels times two of outputs share their loads; four tiles
hold the sums, which start as the biases.

    pixels   bf16 (row, column, terms, planes), less the map's zero point
    weights  bf16 (block of 32 outputs, taps, taps, in_planes / 32, 2 tiles, 16 pairs, 16 outputs,
    2)

Two methods make plain bf16 keep 60 dB. Weights are rounded with error feedback: the taps of a
kernel are rounded in order of falling size, and each passes its rounding error to the remaining
ones, most to the nearest, which compensates best where neighbouring pixels are alike. And a feature
map stores the difference from its value for a mid-grey picture, its zero point: differences are
smaller than values, and so are their rounding errors. The bias of the next convolution compensates
for it exactly. Together they gain 14 dB, at no cost at run time. Where that is not enough, a map
has two terms, the rounded value and its remainder, and both are multiplied by the same tile of
weights.

Bound: the tile unit, 16 cycles for 8192 multiply-adds; the loads of a step take about 32 of its 64
cycles from L1, more from L2, where the weights of 128 > 128 planes must stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import (
    KernelJob,
    advance,
    locate_results,
    locate_source,
    record,
)
from waifu2x.backends.cpu.kernels.tile_epilogue import (
    INNER,
    PAIRS,
    PER_STEP,
    PLANE,
    RESIDUAL,
    SUMS,
    TARGET,
    WIDTH,
    TileEpilogue,
    Variant,
)
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import (
    PENDING_PLACES,
    PIXEL_TILES,
    PLACES,
    RESIDUAL_ROWS,
    SOURCE_ROWS,
    TARGET_ROWS,
)
from waifu2x.backends.cpu.pack.shapes import (
    BLOCK,
    COLUMNS,
    LANES,
    SUM_FLOATS,
    TILE_FLOATS,
    TILE_ROWS,
)


class TileBlock(NamedTuple):
    """A block of results: two tiles of pixels times two of outputs at most."""

    height: Any
    """The tiles of pixels."""
    width: Any
    """The tiles of outputs."""
    offset: Any
    """The offset in floats of its inputs from the places in the table of steps."""
    pixel: Any
    """The stride between pixels, in floats."""
    steps: Any
    """The place of that table."""
    weights: Any
    """The place of its weights."""
    plane: Any
    """Its first plane."""
    sums: Any
    """The place of its sums, (pixel, BLOCK outputs) floats."""


def _emit_configure(v: Emitter, weights: ir.Value) -> None:
    if VECTOR.tiles:
        v.tile("ldtilecfg", weights)


def _emit_release(v: Emitter) -> None:
    if VECTOR.tiles:
        v.tile("tilerelease")


def _emit_block(v: Emitter, job: KernelJob, block: TileBlock, pending: ir.Value) -> None:
    """Computes the sums of a block. Meanwhile the vector units finish the pending block, a few
    pixels in each step."""
    if not VECTOR.tiles:
        return
    task, height, width = job.task, block.height, block.width
    for pixels, outputs in (
        (m, n) for m in v.cases(height, (2, 1)) for n in v.cases(width, (2, 1))
    ):
        sums = [[m * 2 + n for n in range(outputs)] for m in range(pixels)]
        for own in sums:
            for n, tile in enumerate(own):
                # With stride 0, every pixel starts with the same biases.
                bias = v.add(v.field(task, "bias"), v.add(block.plane, n * COLUMNS))
                v.tile("tileloadd64", tile, v.at(job.constants, bias), v.index(0))
        for terms in v.cases(v.field(task, "source_terms"), (1, 2)):
            # Common epilogues have code of their own, without a branch for each pixel. Only maps of
            # floats end with half a block.
            for variant in _variants(v, task) if outputs == 2 else [Variant(adds=False, terms=0)]:
                epilogue = TileEpilogue(v, job, pending, variant)
                _emit_products(v, job, block, sums, terms, epilogue)
        for m, own in enumerate(sums):
            for n, tile in enumerate(own):
                place = v.at(job.scratch, v.add(block.sums, m * TILE_ROWS * BLOCK + n * COLUMNS))
                v.tile("tilestored64", tile, place, v.index(BLOCK * 4))


def _variants(v: Emitter, task: ir.Value) -> Iterator[Variant]:
    """Yields each variant of epilogue; code emitted in the meantime runs for tasks of that one."""
    terms = v.field(task, "target_terms")
    has_residual = v.at_least(v.field(task, "residual"), 0)
    for added in v.cases(has_residual, (0, 1)):
        for stored in v.cases(terms, (1, 2, 0)):
            yield Variant(bool(added), stored)


def _emit_products(
    v: Emitter,
    job: KernelJob,
    block: TileBlock,
    sums: list[list[int]],
    terms: int,
    epilogue: TileEpilogue,
) -> None:
    """Adds all products of a block to tiles `sums`."""
    pixel = block.pixel
    stride = v.mul(pixel, 4)
    count = v.mul(v.field(job.task, "taps"), v.field(job.task, "across"))
    count = v.mul(count, v.field(job.task, "k_blocks"))
    table, start = v.integers_at(job.scratch, block.steps), v.at(job.scratch, block.offset)
    (due,) = v.accumulators([epilogue.pairs])
    with v.loop(v.opaque_number(count)) as step:
        inputs, place = v.integer(table, step), v.add(block.weights, v.mul(step, 2 * TILE_FLOATS))
        for n in range(len(sums[0])):
            tile = v.at(job.weights, v.add(place, n * TILE_FLOATS))
            v.tile("tileloadd64", 6 + n, tile, v.index(64))
        for term in range(terms):
            if term:  # second terms follow all first terms
                inputs = v.add(inputs, v.half(pixel))
            for m, own in enumerate(sums):
                first = v.add(inputs, v.mul(pixel, m * TILE_ROWS))
                v.tile("tileloadd64", 4 + m, v.at(start, first), stride)
                for n, tile in enumerate(own):
                    v.tile("tdpbf16ps", tile, 4 + m, 6 + n)
        now = v.smaller(v.get(due), epilogue.per_step)
        with v.loop(v.opaque_number(now)):
            epilogue.finish_pair()
        v.set(due, v.minus_offset(v.get(due), now))


def _emit_steps(
    v: Emitter, job: KernelJob, pixel: ir.Value, row: ir.Value, steps: ir.Value
) -> None:
    """Writes the table of the places of the inputs of each step, for a row of results."""
    rows, across, k_blocks, k_step = (
        v.field(job.task, name) for name in ("taps", "across", "k_blocks", "k_step")
    )
    table = v.integers_at(job.scratch, steps)
    (step,) = v.accumulators([v.index(0)])
    with v.loop(rows) as y:
        start = v.integer(job.places, v.add(row, v.add(y, SOURCE_ROWS)))
        with v.loop(across) as x, v.loop(k_blocks) as k:
            place = v.add(start, v.add(v.mul(pixel, x), v.mul(k_step, k)))
            v.store_integer(place, table, v.get(step))
            v.set(step, v.add(v.get(step), 1))


def _emit_finish(v: Emitter, job: KernelJob, pending: ir.Value) -> None:
    """Finishes the last block."""
    if not VECTOR.tiles:
        return
    for variant in _variants(v, job.task):
        epilogue = TileEpilogue(v, job, pending, variant)
        with v.loop(epilogue.pairs):
            epilogue.finish_pair()


def _emit_pairs(
    v: Emitter,
    count: ir.Value,
    room: ir.Value,
    scratch: ir.Value,
    source: ir.Value,
    target: ir.Value,
) -> None:
    """Copies `count` floats as pairs of two bf16 terms, padded with zeros to `room` pairs."""
    if not VECTOR.tiles:
        return
    with v.loop(room, LANES) as n:
        value = v.first_lanes(v.load(scratch, v.add(source, n)), v.minus_offset(count, n))
        v.store(v.term_pairs(value), scratch, v.add(target, n))


configure = vector_kernel(_emit_configure)
release = vector_kernel(_emit_release)
product_block = vector_kernel(_emit_block)
_finish = vector_kernel(_emit_finish)
_pairs = vector_kernel(_emit_pairs)
_steps = vector_kernel(_emit_steps)


@native
def convolve_tiles(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a convolution."""
    task, places, scratch = job.task, job.places, job.scratch
    source = record(job.maps, task.source)
    locate_source(job, source, task.rows + task.taps - 1)
    locate_results(job)
    pixel, side, group = source.pixel_floats, task.depth_to_space, task.group_planes
    if task.kind == PIXEL_TILES:
        # Tiles read past the last pixel: by their width and some pixels more.
        count = (task.columns + 2) * pixel
        room = count + TILE_ROWS * pixel + COLUMNS
        room += -room % LANES
        for row in range(task.rows + 2):
            copy = task.staging + row * room
            _pairs(count, room, scratch, places[SOURCE_ROWS + row], copy)
            places[SOURCE_ROWS + row] = copy
    steps = task.taps * task.across * task.k_blocks
    # Results are finished one block later, while the tile unit computes the next one, also across
    # the ends of rows and of spans of pixels.
    sums_at, pending_sums = task.products, task.products + SUM_FLOATS
    pending = advance(places, PLACES - PENDING_PLACES)
    for n in range(PENDING_PLACES):
        pending[n] = 0
    table = task.products + 2 * SUM_FLOATS
    for row in range(task.rows):
        _steps(job, pixel, row, table)
        for x in range(0, task.columns, BLOCK):
            # The last tile may go past the columns, into the spare pixels of each row.
            height = 2 if task.columns - x > TILE_ROWS else 1
            pairs = height * TILE_ROWS // 2
            dy = dx = inner = 0
            weights = task.weight
            for plane in range(0, task.planes, BLOCK):
                width = 2 if task.planes - plane > COLUMNS else 1
                block = TileBlock(height, width, x * pixel, pixel, table, weights, plane, sums_at)
                product_block(job, block, pending)
                sums_at, pending_sums = pending_sums, sums_at
                pending[PAIRS] = pairs
                pending[PER_STEP] = -(-pairs // steps)
                pending[SUMS] = pending_sums
                pending[PLANE] = plane
                pending[INNER] = inner
                pending[WIDTH] = width
                pending[TARGET] = (
                    places[TARGET_ROWS + row * side + dy]
                    + x // 2 * task.target_pair
                    + dx * task.target_block
                    + inner
                )
                pending[RESIDUAL] = (
                    places[RESIDUAL_ROWS + row * side + dy]
                    + x // 2 * task.residual_pair
                    + dx * task.residual_block
                    + inner
                )
                weights += steps * 2 * TILE_FLOATS
                inner += BLOCK
                if inner >= group:
                    inner, dx = 0, dx + 1
                    if dx == side:
                        dx, dy = 0, dy + 1
    _finish(job, pending)
