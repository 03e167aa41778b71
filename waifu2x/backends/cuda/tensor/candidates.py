"""Lists the shapes of a convolution on matrix units that a chip can run, the default first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from waifu2x.backends.cuda.tensor.shape import (
    COLUMNS,
    ROWS_WIDTH,
    MmaShape,
    RollingShape,
    RowsShape,
    Shape,
    TensorJob,
    WgmmaShape,
    depth,
)
from waifu2x.backends.cuda.tensor.units import Units, is_sm75
from waifu2x.lowering.plan.symbols import least

MOST_ROWS = 8
"""The most rows of a tile of any kernel."""
_HALO_COST = 0.4
"""The relative cost of halos for a tile of one row; it falls with the rows of a tile."""
_COPIED_COST = 1.15
"""The factor of the cost of weights that do not stay in shared memory."""
_NARROW_COST = 1.4
"""The factor of the cost of narrow tiles with two terms: their weights do not stay in shared
memory, and more blocks read them more often."""
_RESERVED_BYTES = 1 << 10
"""The bytes of shared memory of each block that the driver reserves."""
_MOST_HELD = 576
"""The most weights of an output plane that a warpgroup can hold in registers."""


def candidates(
    job: TensorJob, units: Units, capability: tuple[int, int], shared_bytes: int
) -> list[Shape]:
    """Returns the shapes that fit a block's shared memory, the default for large pictures first."""
    shapes: list[Shape]
    if units == "wgmma":
        shapes = list(_row_by_row(job, shared_bytes))
        if not job.own_gate:
            shapes += _wgmma_shapes(job)
    elif is_sm75(capability):
        shapes = [
            MmaShape(rows, blocks, (32, 64), min(3 if job.taps > 1 else 2, job.steps), is_sm75=True)
            for rows, blocks in ((4, 2), (4, 1), (2, 2), (2, 1))
        ]
    else:
        shapes = list(_mma_shapes(job))
    fitting = [
        shape
        for shape in shapes
        if (shape.shared(job) + _RESERVED_BYTES) * shape.blocks <= shared_bytes + _RESERVED_BYTES
    ]
    rolling: list[Shape] = [shape for shape in fitting if isinstance(shape, RollingShape)]
    # Rolling sums several groups in another order than tiles: so it must serve all sizes.
    return rolling if rolling and job.inputs > job.group else fitting


def _row_by_row(job: TensorJob, shared_bytes: int) -> Iterator[RowsShape | RollingShape]:
    """Yields shapes that go down a picture row by row: those with all weights of 64 output planes
    in the registers of a warpgroup, or else of 32 in shared memory."""
    if job.terms == 2 or job.side == 1 or job.last:
        return
    each = job.outputs // job.sparse_taps
    if job.inputs * job.taps <= _MOST_HELD and each % ROWS_WIDTH == 0:
        # Otherwise tiles are faster: for several input groups, or scattered stores.
        is_faster = job.group == 64 or (job.inputs == 32 and not job.folds)
        # It checks the range of stored values, other kernels that of their sums.
        if is_faster and not (job.scales or job.hides):
            yield RowsShape(9 if job.own_gate else 11 if job.inputs > 32 else 16)
    elif job.group == 32 and job.side == 3 and job.sparse_taps == 1:
        for warpgroups in (3, 2):
            rings = (RollingShape(warpgroups, ring) for ring in range(10, 4, -1))
            # The largest ring of groups that fits.
            fitting = (each for each in rings if each.shared(job) <= shared_bytes)
            yield from itertools.islice(fitting, 1)


def _wgmma_shapes(job: TensorJob) -> list[WgmmaShape]:
    """Returns the shapes of `wgmma`, as measured on an H200 (see benchmarks/results). Weights stay
    in shared memory where they fit."""
    all_of_them = job.steps
    order: tuple[tuple[int, int], ...]
    if job.last:
        # Tiles below read halo rows again: more rows save more than weights that stay.
        # With few input planes, the epilogue takes most of the time: more warps share it.
        many = (
            ((8, 1, 112, 4, 2), (4, 1, 112, 4, 2)) if job.tap_columns and job.inputs <= 64 else ()
        )
        if job.side > 3:
            # Partial sums, since those of all rows of larger tiles do not fit.
            return [
                WgmmaShape(rows, 1, 232, all_of_them, 2, a_stages, partial_rows=1)
                for rows, a_stages in ((4, 2), (4, 1), (2, 2))
            ]
        return [
            WgmmaShape(rows, blocks, registers, stages, warpgroups, a_stages)
            for rows, blocks, registers, warpgroups, a_stages in (
                *many,
                (8, 1, 232, 2, 2),
                (4, 1, 232, 2, 2),
                (4, 2, 104, 2, 1),
                (2, 2, 104, 2, 2),
                (2, 1, 232, 2, 2),
            )
            for stages in dict.fromkeys((all_of_them, 4, 6))
            # The next K-block of a tile is copied while the last one is still in use.
            if stages <= all_of_them and (a_stages > 1 or job.steps == job.taps)
        ]
    if job.side == 1:
        return list(_single_tap_shapes(job))
    if job.width == 32:
        order = ((4, 2), (8, 1), (6, 1), (4, 1))
    elif job.width == 64:
        order = ((8, 1), (6, 1), (4, 1)) if job.group == 32 else ((6, 1), (4, 1))
    else:
        order = ((4, 1),)
    # K-blocks of few planes are short: two of them are prefetched.
    shapes = [
        WgmmaShape(rows, 1, 232, all_of_them, a_stages=3)
        for rows in (8, 6, 4)
        if job.width == 32 == job.group < job.inputs
    ]
    shapes += [
        WgmmaShape(rows, blocks, 104 if blocks == 2 else 232, stages)
        for stages in dict.fromkeys((all_of_them, 4, 6, 9))
        if stages <= all_of_them
        for rows, blocks in dict.fromkeys((*order, (2, 1)))
    ]
    # Shapes for small pictures: more blocks with fewer planes each.
    narrow = [
        WgmmaShape(2, 1, 232, stages, most_width=width)
        for width in (64, 32)
        if width < job.width
        for stages in dict.fromkeys((all_of_them, 9))
        if stages <= all_of_them
    ]
    return shapes + narrow


def _single_tap_shapes(job: TensorJob) -> Iterator[WgmmaShape]:
    """Yields the shapes of 1x1 convolutions, which device memory bounds: more tiles under way, and
    two resident blocks where they fit."""
    usual = 2 if job.outputs > job.inputs else 4
    for rows, blocks, a_stages, width in (
        (2, 2, usual, 64),
        (2, 1, usual, 128),
        (2, 2, 6 - usual, 64),
        (2, 2, usual, 32),
        (4, 1, 4, 128),
        (4, 1, 2, 128),
    ):
        if blocks == 2 and job.terms == 2:
            # Two terms of a residual take more registers than two resident blocks leave.
            continue
        registers = 104 if blocks == 2 else 232
        for stages in dict.fromkeys((job.steps, 4)):
            if stages <= job.steps:
                yield WgmmaShape(
                    rows, blocks, registers, stages, a_stages=a_stages, most_width=width
                )


def _mma_shapes(job: TensorJob) -> Iterator[MmaShape]:
    """Yields the shapes for chips with asynchronous copies: for much shared memory, as measured on
    an H200, then for 163 and for 99 KiB. Chips with as little have slower matrix units, which
    smaller tiles keep busy."""
    whole, half, quarter = (64, 64), (32, 64), (32, 32)
    all_of_them = job.steps
    shapes: tuple[MmaShape, ...]
    if job.last:
        few = (MmaShape(8, 2, whole, all_of_them), MmaShape(4, 3, whole, 4))
        shapes = (
            *(few if job.width == 16 else ()),
            MmaShape(4, 2, whole, 4),
            MmaShape(2, 2, half, 3),
            MmaShape(2, 1, half, 3),
            # For a single tap of many planes: only the weights of the next one are prefetched.
            *((MmaShape(4, 2, whole, 2), MmaShape(2, 1, half, 2)) if job.side == 1 else ()),
        )
    elif job.side == 1:
        shapes = (
            MmaShape(4, 2, whole, all_of_them, prefetched=4),
            MmaShape(4, 1, whole, all_of_them, prefetched=4, most_width=128),
            MmaShape(4, 2, whole, 2, prefetched=4),
            MmaShape(2, 2, half, 2, prefetched=2),
            MmaShape(2, 1, half, 2, prefetched=2),
        )
    elif job.group == 32:
        blocks, whole_block = 3 if job.width == 32 else 2, 4 + job.side - 1
        alone = MmaShape(4, blocks, whole, all_of_them, prefetched=whole_block)
        shapes = (
            *((alone,) if job.width == 32 and job.terms == 1 else ()),
            MmaShape(4, 1, whole, all_of_them, prefetched=whole_block, consumers=blocks),
            alone,
            MmaShape(4, 1, whole, all_of_them, prefetched=4, consumers=blocks),
            MmaShape(4, blocks, whole, 4, prefetched=whole_block),
            MmaShape(4, 2, whole, 4, prefetched=whole_block),
            MmaShape(4, 1, whole, all_of_them, prefetched=4, consumers=2),
            MmaShape(4, 1, half, all_of_them, prefetched=4),
            MmaShape(2, 2, half, 3, prefetched=2),
            MmaShape(2, 2, quarter, 4, prefetched=2, most_width=32),
        )
    else:
        shapes = (
            MmaShape(4, 1, whole, all_of_them, prefetched=4, consumers=2),
            MmaShape(8, 1, whole, 3, prefetched=8, decoupled=True),
            MmaShape(4, 2, whole, 3),
            MmaShape(4, 1, half, 3, prefetched=4),
            MmaShape(2, 2, quarter, 4),
            MmaShape(2, 1, quarter, 3, prefetched=2),
        )
    for shape in dict.fromkeys(shapes):
        stages = min(shape.b_stages, all_of_them)
        most = job.side if 0 < shape.prefetched < shape.rows + job.side - 1 else job.taps
        if shape.decoupled or stages == all_of_them or stages - 1 <= most:
            yield replace(shape, b_stages=stages)


def ranked(
    job: TensorJob, shapes: list[Shape], rows: int, columns: int, multiprocessors: int
) -> tuple[list[Shape], str]:
    """Returns the shapes, the default first, and the class of sizes that share a measured choice.

    A small picture takes the shape that keeps more of the chip busy. With few tiles for each
    multiprocessor, the last one may be a large part of the time, so another number of rows than the
    default saves a tenth and more. For shapes bound by device memory, or fed by warps, the rows of
    a tile do not decide alone.
    """

    def rounds(shape: Shape, each: int) -> int:
        """Returns the rows of COLUMNS that the busiest multiprocessor computes, for `each` tiles of
        output planes."""
        across = -(-columns // shape.columns)
        tiles = -(-across * -(-rows // shape.rows) * each // shape.consumers)
        found = -(-tiles // multiprocessors) * shape.rows * shape.consumers
        if isinstance(shape, RowsShape):
            # Two warpgroups take turns; the last turn is one's alone.
            return (found + 1) * (shape.columns // COLUMNS)
        if isinstance(shape, RollingShape):
            # The halo rows above and below are multiplied, too.
            return (found + job.side - 1) * (shape.columns // COLUMNS)
        return found

    def clocks(shape: Shape) -> float:
        """Estimates the clocks of the busiest multiprocessor, bound by multiplication or by loads
        from shared memory."""
        width = shape.width(job)
        reads = width // 2 if isinstance(shape, RollingShape) else 16 + width // 4
        found = rounds(shape, depth(job, shape)) * max(width // 2, reads)
        return found * _NARROW_COST if job.terms == 2 and width < job.width else found

    def cost(shape: WgmmaShape) -> float:
        """Estimates the clocks with the other costs of more than one round."""
        copied = 1 if shape.b_stages == job.steps else _COPIED_COST
        return clocks(shape) * (1 + _HALO_COST / shape.rows) * copied

    usual, first = rounds(shapes[0], 1), shapes[0]
    if usual <= 2 * MOST_ROWS:
        return _first(shapes[least(list(map(clocks, shapes)))], shapes), "small"
    if usual <= 4 * MOST_ROWS and isinstance(first, WgmmaShape) and job.taps > 1:
        tiles = (shape for shape in shapes if isinstance(shape, WgmmaShape))
        alike = [shape for shape in tiles if shape.width(job) == first.width(job)]
        found = alike[least(list(map(cost, alike)))]
        if cost(found) < 0.9 * cost(first):
            return _first(found, shapes), "middle"
    return shapes, "large"


def _first(shape: Shape, shapes: list[Shape]) -> list[Shape]:
    """Returns the shapes with `shape` moved to the front."""
    return [shape, *(other for other in shapes if other is not shape)]
