"""Sizes the scratch memory of the tasks of a strip, besides the rings of its maps."""

from __future__ import annotations

from typing import NamedTuple

from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.attention_shapes import attention_places
from waifu2x.backends.cpu.pack.shapes import (
    BLOCK,
    CHUNK,
    COLUMNS,
    FREQUENCIES,
    LANES,
    PART_PAIRS,
    ROW_BLOCK,
    SUM_FLOATS,
    TILE_ROWS,
    WIDTHS,
)
from waifu2x.backends.cpu.pack.tasks import CpuTask
from waifu2x.lowering.plan.box import round_up

SPARE_PIXELS = 2 * max(ROW_BLOCK, BLOCK)
"""The spare pixels at the end of each row, for tiles that write or read past the last column."""
_LEAST_BLOCKS = 2
"""The fewest blocks of ROW_BLOCK cells in integers for each pass over all weights, unless those are
of a single vector of planes: enough for weights to arrive from beyond the L2 cache as fast as they
are used."""
_INTEGER_SHARE = 1 / 4
"""For integers, the fraction of the cache for cells in floats, which the maps and weights that also
pass through it must not evict. From 24 to 60 cells of 64 planes at a time, transforms took a sixth
longer with 2 MiB."""
_SPAN_FLOATS = 16384
"""The floats of memory of the inputs of a span of 1x1 convolutions in integers, which then stay in
an L2 cache beside weights."""
_MOST_TAPS = 6
"""The columns that a bicubic interpolation reads of its source beyond those below its results."""


class Scratch(NamedTuple):
    """The scratch memory that a task needs, and the work that it does at a time."""

    inputs: int = 0
    """The floats of transformed or rounded inputs."""
    products: int = 0
    """The floats of sums."""
    staging: int = 0
    """The floats of inputs that are not quantized yet."""
    cells: int = 0
    """The Winograd cells computed at a time."""
    span: int = 0
    """The pixels computed at a time, of 1x1 convolutions in integers."""


def scratch(task: CpuTask, width: int, cache_bytes: int) -> Scratch:
    """Returns the scratch memory of a task for rows of `width` columns and an L2 cache."""
    kind, fields = task.kind, task.fields
    if kind in (records.WINOGRAD, records.INTEGER_WINOGRAD):
        return _winograd_scratch(task, width, cache_bytes)
    if kind == records.INTEGER_POINTWISE:
        depth = fields["depth"]
        span = max(1, _SPAN_FLOATS * 2 // (depth * ROW_BLOCK)) * ROW_BLOCK
        return Scratch(
            inputs=span * depth // 2,
            products=ROW_BLOCK * WIDTHS[0] * LANES,
            staging=-(-depth // (2 * PART_PAIRS)) * span * LANES,
            span=span,
        )
    if kind in (records.TILES, records.PIXEL_TILES):
        staging = (width + 2 + TILE_ROWS) * fields["depth"] + COLUMNS + LANES
        staging *= task.schedule.rows + 2 if kind == records.PIXEL_TILES else 0
        table = 2 * fields["taps"] * fields["across"] * fields["k_blocks"]
        return Scratch(products=2 * SUM_FLOATS + round_up(table, LANES), staging=staging)
    if kind == records.FEW_TILES:
        return Scratch(products=task.schedule.rows * (width + SPARE_PIXELS) * COLUMNS)
    if kind in (records.PLANEWISE, records.WRITE):
        planes, up = fields["planes"], fields["up"]
        products = width * planes + LANES if kind == records.WRITE else 0
        columns = -(-width * fields["down"] // up) + _MOST_TAPS if up else 0
        inputs = columns * planes + LANES if columns else 0
        return Scratch(round_up(inputs, LANES), round_up(products, LANES))
    if kind == records.ATTENTION:
        return Scratch(inputs=_attention_floats(task))
    if kind == records.PLANE_ATTENTION:
        # Weights by key, and the norms of both.
        row = round_up(fields["depth"] + fields["padding"], LANES)
        return Scratch(inputs=(fields["depth"] + 2) * row + LANES)
    return Scratch()


def _attention_floats(task: CpuTask) -> int:
    fields = task.fields
    overlap, cell = fields["overlap"], fields["cell"]
    sides = fields["window_rows"], fields["window_columns"]
    rows, columns = ((side + 2 * overlap) // cell for side in sides)
    queries = sides[0] * sides[1]
    places = attention_places(0, queries, rows * columns, fields["depth"], fields["padding"])
    return places.end


def _winograd_scratch(task: CpuTask, width: int, cache_bytes: int) -> Scratch:
    depth, planes = task.fields["depth"], task.fields["planes"]
    cells = round_up(width // records.CELL, ROW_BLOCK)
    if task.kind == records.WINOGRAD:
        cells = min(cells, group_size(depth, CHUNK, cache_bytes))
        return Scratch(*winograd_floats(depth, cells), cells=cells)
    made = min(planes, WIDTHS[0] * LANES)
    least = _LEAST_BLOCKS if made < planes or made > LANES else 1
    share = int(cache_bytes * _INTEGER_SHARE)
    cells = min(cells, group_size(depth // 2, made, share, least))
    return Scratch(*_integer_winograd_floats(depth, cells), cells=cells)


def group_size(of_inputs: int, of_products: int, cache_bytes: int, least: int = 1) -> int:
    """Returns the number of cells whose V and M, of those floats for each frequency, take at most
    three quarters of a cache: a multiple of ROW_BLOCK, at least `least` times that."""
    floats = FREQUENCIES * (of_inputs + of_products)
    return max(least, cache_bytes * 3 // 4 // (4 * floats * ROW_BLOCK)) * ROW_BLOCK


def winograd_floats(in_planes: int, cells: int) -> tuple[int, int]:
    """Returns the floats of V and of M for a group of cells; one spare vector follows each
    frequency.

    Without it, frequencies would be a multiple of 4 KiB apart, in the same few sets of the L1
    cache.
    """
    return (
        FREQUENCIES * (cells * in_planes + LANES),
        FREQUENCIES * (cells * CHUNK + LANES),
    )


def _integer_winograd_floats(in_planes: int, cells: int) -> tuple[int, int, int]:
    """Returns the floats of V, with the frequency that stays in floats; of M; and of the staging of
    a part of a cell, followed by the scales of all cells."""
    part = 2 * PART_PAIRS
    return (
        FREQUENCIES * (cells * in_planes // 2 + LANES) + cells * in_planes,
        FREQUENCIES * (cells * WIDTHS[0] * LANES + LANES),
        FREQUENCIES * part + -(-in_planes // part) * cells * LANES,
    )
