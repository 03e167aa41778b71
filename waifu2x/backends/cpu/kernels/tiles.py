"""Convolution on AMX tiles, 3x3 and 1x1: bf16 inputs and weights, fp32 sums.

A tile register holds 16 rows of 64 bytes. `tdpbf16ps` multiplies a tile of 16 pixels x 32 planes by
a tile of 32 planes x 16 outputs. Rows of the feature map are interleaved, so 16 neighbouring pixels
load straight from it with the pixel's size as the stride, and a tap further along is a pixel
further along: no im2col. Two tiles of pixels times two of outputs share their loads, four tiles
hold the sums, which start as the biases.

    pixels   bf16 (row, column, terms, planes), less the map's zero point
    weights  bf16 (block of 32 outputs, taps, taps, in_planes / 32, 2 tiles, 16 pairs, 16 outputs,
    2)

Two things make plain bf16 keep 60 dB. Weights are rounded with error feedback: the taps of a kernel
in order of falling size, each handing its rounding error to the next, so that the kernel's sum, all
that a flat area sees, stays right. And what is stored of a feature map is its difference from its
value under mid grey, its zero point: differences are smaller than values, and so is their rounding
error. The bias of the next convolution makes up for it exactly. Together they are worth 14 dB, at
no cost while it runs. Where that is not enough, a map has two terms, the value rounded and what is
left of it, and both are multiplied with the same tile of weights.

Bound: the tile unit, 16 cycles for 8192 multiply-adds; the loads of a step take about 32 of its 64
cycles from L1, more from L2, where the weights of 128 > 128 have to stay. Best measured: 3924
GFLOP/s on two cores, 61 % of what the same loop reaches on data in L1.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import (
    advance,
    block_at,
    locate_results,
    locate_source,
    record,
)
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.records import (
    PENDING_PLACES,
    PLACES,
    RESIDUAL_ROWS,
    SOURCE_ROWS,
    TARGET_ROWS,
    TASK,
)
from waifu2x.backends.cpu.shapes import BLOCK, LANES, SUM_FLOATS, TILE_FLOATS, TILE_ROWS


def _emit_configure(v: Emitter, weights: ir.Value) -> None:
    if VECTOR.tiles:
        v.tile("ldtilecfg", weights)


def _emit_release(v: Emitter) -> None:
    if VECTOR.tiles:
        v.tile("tilerelease")


def _emit_block(
    v: Emitter,
    height: ir.Value,
    taps: ir.Value,
    task: ir.Value,
    pixel: ir.Value,
    places: ir.Value,
    row: ir.Value,
    offset: ir.Value,
    scratch: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
    sums_at: ir.Value,
    pending: ir.Value,
) -> None:
    """Sums of `height` (1 or 2) tiles of pixels and BLOCK outputs, to (pixel, output) floats.

    Inputs lie `offset` floats along the located rows from `row` on, pixels `pixel` floats apart.
    Meanwhile the vector units finish the pending block, some pixels a step.
    """
    if not VECTOR.tiles:
        return
    stride = v.mul(pixel, 4)
    k_blocks, terms = v.field(task, TASK, "k_blocks"), v.field(task, TASK, "source_terms")
    bias = v.add(v.field(task, TASK, "bias"), plane)
    count, per_step, pending_sums, finish_at = _pending(v, pending)
    last = v.add(count, -1)
    epilogue = _TileEpilogue(v, task, scratch, constants, finish_at)
    for pixels in v.cases(height, (2, 1)):
        sums = [[m * 2 + n for n in range(2)] for m in range(pixels)]
        for m in range(pixels):
            for n in range(2):
                # Stride 0: every pixel starts with the same biases.
                start = v.at(constants, v.add(bias, n * 16))
                v.tile("tileloadd64", sums[m][n], start, v.index(0))
        with v.loop(taps) as y, v.loop(taps) as x:
            first = v.add(v.integer(places, v.add(row, v.add(y, SOURCE_ROWS))), offset)
            first = v.add(first, v.mul(pixel, x))
            start = v.mul(v.add(v.mul(taps, y), x), k_blocks)
            with v.loop(k_blocks) as k_block:
                index = v.add(start, k_block)
                place = v.add(block, v.mul(index, 2 * TILE_FLOATS))
                for n in range(2):
                    tile = v.at(weights, v.add(place, n * TILE_FLOATS))
                    v.tile("tileloadd64", 6 + n, tile, v.index(64))
                with v.loop(terms) as term:
                    # A second term follows all values of the first.
                    inputs = v.add(first, v.mul(v.half(pixel), term))
                    for m in range(pixels):
                        inner = v.add(v.mul(k_block, 16), v.mul(pixel, m * TILE_ROWS))
                        v.tile("tileloadd64", 4 + m, v.at(scratch, v.add(inputs, inner)), stride)
                        for n in range(2):
                            v.tile("tdpbf16ps", sums[m][n], 4 + m, 6 + n)
                with v.loop(per_step) as more:
                    # Past the last pixel, the last one once more: it changes nothing.
                    epilogue.finish(
                        v.smaller(v.add(v.mul(index, per_step), more), last), pending_sums
                    )
        for m in range(pixels):
            for n in range(2):
                place = v.at(scratch, v.add(sums_at, m * TILE_ROWS * BLOCK + n * 16))
                v.tile("tilestored64", sums[m][n], place, v.index(BLOCK * 4))


_PIXELS, _EACH_STEP, _SUMS, _PLANE, _TARGET, _RESIDUAL = range(6)
"""What describes a pending block, whose sums are not results yet, by its place there."""


def _pending(v: Emitter, pending: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, list[ir.Value]]:
    """The pixels of the pending block, those to finish in each step, its sums, and what else a
    _TileEpilogue takes."""
    count, per_step, sums, *at = (
        v.integer(pending, n) for n in (_PIXELS, _EACH_STEP, _SUMS, _PLANE, _TARGET, _RESIDUAL)
    )
    return count, per_step, sums, at


class _TileEpilogue:
    """BLOCK planes of pixels: leaky ReLU, an addition, less the zero point, stored."""

    def __init__(
        self,
        v: Emitter,
        task: ir.Value,
        scratch: ir.Value,
        constants: ir.Value,
        at: list[ir.Value],
    ) -> None:
        """`at` are the first plane, and where the first pixel goes, and what is added to it is, in
        values of their maps."""
        self._v, self._scratch = v, scratch
        plane, self._target, self._residual = at
        self._vectors = range(0, BLOCK, LANES)

        def constant(name: str, offset: ir.Value) -> list[ir.Value]:
            first = v.add(v.field(task, TASK, name), offset)
            return [v.load(constants, v.add(first, n)) for n in self._vectors]

        inner = v.remainder(plane, v.field(task, TASK, "group_planes"))
        self._slopes = constant("slopes", plane)
        self._zero_points = constant("target_zero", inner)
        self._added_zero_points = constant("residual_zero", inner)
        self._factor = v.splat(v.narrow(v.field(task, TASK, "factor")))
        names = ("terms", "lo", "pixel", "pair")
        self._to = [v.field(task, TASK, f"target_{name}") for name in names]
        self._from = [v.field(task, TASK, f"residual_{name}") for name in names]
        self._has_residual = v.at_least(v.field(task, TASK, "residual"), 0)

    def finish(self, pixel: ir.Value, sums_at: ir.Value) -> None:
        """A pixel of those whose sums begin at `sums_at`."""
        v, scratch = self._v, self._scratch
        source = v.add(sums_at, v.mul(pixel, BLOCK))
        sums = [v.load(scratch, v.add(source, n)) for n in self._vectors]
        slots = v.accumulators(
            [v.leaky(s, slope) for s, slope in zip(sums, self._slopes, strict=True)]
        )
        for _ in v.cases(self._has_residual, (1,)):
            terms_stored, lo, *strides = self._from
            place = v.add(self._residual, v.pixel(strides, pixel))
            for terms in v.cases(terms_stored, (0, 1, 2)):
                for n, slot in zip(self._vectors, slots, strict=True):
                    added = v.load_terms(scratch, v.add(place, n), terms, lo)
                    if terms:
                        added = v.plus(added, self._added_zero_points[n // LANES])
                    v.set(slot, v.fma(v.get(slot), self._factor, added))
        terms_stored, lo, *strides = self._to
        place = v.add(self._target, v.pixel(strides, pixel))
        for terms in v.cases(terms_stored, (1, 2, 0)):
            for n, slot in zip(self._vectors, slots, strict=True):
                result = v.get(slot)
                if terms:
                    result = v.minus(result, self._zero_points[n // LANES])
                v.store_terms(result, scratch, v.add(place, n), terms, lo)


def _emit_finish(
    v: Emitter, task: ir.Value, scratch: ir.Value, constants: ir.Value, pending: ir.Value
) -> None:
    """The last block."""
    if not VECTOR.tiles:
        return
    count, _, sums_at, at = _pending(v, pending)
    epilogue = _TileEpilogue(v, task, scratch, constants, at)
    with v.loop(count) as pixel:
        epilogue.finish(pixel, sums_at)


configure = vector_kernel(_emit_configure)
release = vector_kernel(_emit_release)
product_block = vector_kernel(_emit_block)
_finish = vector_kernel(_emit_finish)


@native
def convolve_tiles(task, maps, places, scratch, weights, constants, taps):  # type: ignore[no-untyped-def]
    """The next rows of a convolution."""
    source = record(maps, task.source)
    locate_source(task, source, places, task.rows + taps - 1)
    locate_results(task, maps, places)
    pixel, side = source.pixel_floats, task.depth_to_space
    steps = taps * taps * task.k_blocks
    # Results are finished one block behind, while the tile unit is busy with the next one.
    sums_at, pending_sums = task.products, task.products + SUM_FLOATS
    pending = advance(places, PLACES - PENDING_PLACES)
    pending[_PIXELS] = pending[_EACH_STEP] = pending[_PLANE] = pending[_TARGET] = pending[
        _RESIDUAL
    ] = 0
    pending[_SUMS] = pending_sums
    blocks = task.planes // BLOCK
    spans = -(-task.columns // BLOCK)
    # One loop over rows, spans of pixels and blocks of planes, so that blocks pend across all ends.
    for index in range(task.rows * spans * blocks):
        row = index // (spans * blocks)
        x = index // blocks % spans * BLOCK
        plane = index % blocks * BLOCK
        dy, dx, inner, _ = block_at(task, plane)
        # The last tile may run past the columns, into spare room at the end of each row.
        height = 2 if task.columns - x > TILE_ROWS else 1
        product_block(
            height,
            taps,
            task,
            pixel,
            places,
            row,
            x * pixel,
            scratch,
            weights,
            task.weight + plane * taps * taps * task.depth // 2,
            constants,
            plane,
            sums_at,
            pending,
        )
        sums_at, pending_sums = pending_sums, sums_at
        pending[_PIXELS] = height * TILE_ROWS
        pending[_EACH_STEP] = -(-pending[_PIXELS] // steps)
        pending[_SUMS] = pending_sums
        pending[_PLANE] = plane
        pending[_TARGET] = (
            places[TARGET_ROWS + row * side + dy]
            + x // 2 * task.target_pair
            + dx * task.target_block
            + inner
        )
        pending[_RESIDUAL] = (
            places[RESIDUAL_ROWS + row * side + dy]
            + x // 2 * task.residual_pair
            + dx * task.residual_block
            + inner
        )
    _finish(task, scratch, constants, pending)
