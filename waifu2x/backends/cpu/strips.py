"""The tables of strips: which part of each map they compute, where the rings lie, in which order;
and into how many strips a picture is cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu import isa
from waifu2x.backends.cpu.forms import round_up
from waifu2x.backends.cpu.layout import (
    AVERAGE,
    CELL,
    FEW_TILES,
    INTEGER_POINTWISE,
    INTEGER_WINOGRAD,
    KEEP,
    LOAD,
    MAP,
    READ,
    STRIP,
    TASK,
    TILES,
    WINOGRAD,
    WRITE,
    addresses,
)
from waifu2x.backends.cpu.pack import PackedProgram
from waifu2x.backends.cpu.schedule import Order, order
from waifu2x.backends.cpu.shapes import (
    BLOCK,
    CHUNK,
    COLUMNS,
    FREQUENCIES,
    LANES,
    PART_PAIRS,
    ROW_BLOCK,
    STAGE_FLOATS,
    TILE_ROWS,
    WIDTHS,
    tile_height,
)
from waifu2x.backends.cpu.tasks import Task
from waifu2x.lowering import geometry
from waifu2x.lowering.box import Box
from waifu2x.lowering.phases import Phase
from waifu2x.lowering.steps import Conv, MapStep
from waifu2x.networks.model import Size

_SPARE_PIXELS = 2 * max(ROW_BLOCK, BLOCK)
"""At the end of each row, for tiles that run past the last column and those that read there."""
_TILES_WIDTH = 256
"""Pixels: about what lets the rings of a strip on tiles stay in the L2 cache, beside weights."""
_MOST_DOWN = 64
_UNEVEN = 0.05
"""The part of a strip for which cores are taken to wait at the end, for each doubling of their
number: for the slowest of all. Virtual ones may be three times as slow as others."""
_LEAST_BLOCKS = 3
"""Of ROW_BLOCK cells in integers, for each reading of all weights: no fewer than lets those come
from beyond the L2 cache as fast as they are used."""
_SPAN_FLOATS = 16384
"""Memory of the inputs of a span of 1x1 products in integers: what stays in an L2 cache beside
weights."""
_TOGETHER = 64
"""Strips whose tables are made before any of them runs."""
_MOST_BATCHES = 2
"""That are kept for the next picture of the same size; each strip takes some 10 KiB."""
_EMPTY = Box(0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Strip:
    """What compiled code is handed, but for addresses."""

    tasks: NDArray[Any]
    maps: NDArray[Any]
    order: Order
    floats: int
    """Of scratch memory."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some strips of a phase: not to be changed."""

    tasks: NDArray[Any]
    """(strips, tasks)."""
    records: NDArray[Any]
    """(strips,) of layout.STRIP, where these say what no picture decides,"""
    arrays: tuple[NDArray[Any], ...]
    """and what they know the address of."""
    floats: int
    """Of scratch memory, for each strip that runs at the same time."""


class PhaseStrips:
    """Makes the strips of a phase of a program, for pictures of one size."""

    def __init__(self, packed: PackedProgram, phase: Phase, sizes: Sequence[Size]) -> None:
        self.packed, self.phase, self.sizes = packed, phase, sizes
        self.tasks = packed.phase_tasks(phase)
        self._cache_bytes = isa.l2_bytes()
        self._tasks = np.zeros(len(self.tasks), TASK)
        for record, task in zip(self._tasks, self.tasks, strict=True):
            record["kind"], record["rows"] = task.kind, task.rows
            for name, value in task.fields.items():
                record[name] = value
        used = {reach.map for task in self.tasks for reach in task.reaches}
        self._used = sorted(used | {task.target for task in self.tasks if task.target >= 0})
        self._maps = np.zeros(len(packed.forms), MAP)
        for index in self._used:
            record, form = self._maps[index], packed.forms[index]
            record["pixel_floats"], record["planes"] = form.pixel_floats, form.planes
            record["fold"], record["terms"] = form.fold, form.terms
            record["zero_point"] = form.zero_offset
            if index < len(packed.program.values):
                record["rows"], record["columns"] = sizes[index]
                record["is_zero_outside"] = packed.program.values[index].zero_outside
        self._orders: dict[tuple[tuple[int, int], ...], Order] = {}
        self._layers: _Layers | None = None
        self.division = lru_cache(16)(self._division)
        # The tables of a strip take about a millisecond, in which no other thread makes any: with
        # sixteen cores, several times as long as they take for a small picture.
        self._batch = lru_cache(_MOST_BATCHES)(self._make_batch)

    def _division(self, pictures: int, cores: int) -> tuple[int, int]:
        """Into how many strips, down and across, each picture is best divided.

        Edges that are computed twice, and pixels and cells that only fill up register tiles, speak
        for few strips, cores that wait at the end for many.
        """
        if self._layers is None:
            self._layers = self._measure()
        layers = self._layers
        roots = self.phase.roots(self.packed.program)
        height, width = (
            max(
                float(self.sizes[v][side] / self.packed.program.values[v].resolution) for v in roots
            )
            for side in range(2)
        )
        least = max(1, round(width * layers.finest / layers.most))
        across = np.arange(least, 4 * least + 1)
        down = np.arange(1, max(1, min(_MOST_DOWN, int(height * layers.finest) // 8)) + 1)
        # Of each layer, the rows of all strips and the columns, in pixels of the picture.
        halos, scales = layers.halos[:, np.newaxis], layers.scales[:, np.newaxis]
        rows = height + halos * down
        units = np.ceil((width / across + halos) * scales / layers.unit)
        columns = units * layers.unit * across / scales
        computed = np.einsum("l,ld,la->da", layers.costs, rows, columns) / (height * width)
        count = pictures * down[:, np.newaxis] * across
        turns = -(-count // cores)
        waste = turns * cores / count * (1 + _UNEVEN * math.log2(cores) / turns)
        best = np.unravel_index(np.argmin(computed * waste), computed.shape)
        return int(down[best[0]]), int(across[best[1]])

    def _measure(self) -> _Layers:
        """What products do, and the moves between them, from a strip of 256 x 256 pixels."""
        program, costs = self.packed.program, self.packed.costs
        side = 256
        roots = {}
        for value in self.phase.roots(program):
            edge = round(side * program.values[value].resolution)
            roots[value] = Box(0, 0, edge, edge)
        work = geometry.work(program, self.phase.steps, roots, self.packed.unit)
        spent: dict[float, float] = {}
        found = []
        for number, box in work.steps.items():
            step = program.steps[number]
            assert isinstance(step, MapStep)
            resolution = float(program.values[step.target.value].resolution)
            if isinstance(step, Conv):
                resolution /= step.depth_to_space
            spent[resolution] = spent.get(resolution, 0) + costs[number]
            found.append((costs[number], box.height / resolution - side, resolution))
        layer_costs, halos, scales = np.array(found or [(1.0, 0.0, 1.0)]).T
        finest = max(spent, key=lambda resolution: spent[resolution], default=1.0)
        unit, most = float(TILE_ROWS), float(_TILES_WIDTH)
        if not self.packed.on_tiles:
            unit = self.packed.unit[1] * tile_height(WIDTHS[0])
            unit /= 2 if self.packed.in_integers else 1
            most = isa.l3_bytes() * side * finest / (4 * self.strip(roots).floats)
        total = max(layer_costs.sum(), 1.0)
        return _Layers(layer_costs / total, halos, scales, unit, finest, most)

    def batches(self, down: int, across: int) -> Iterator[Batch]:
        """All strips of a picture that is divided so."""
        for number in range(-(-down * across // _TOGETHER)):
            batch = self._batch(down, across, number)
            if len(batch.records):
                yield batch

    def _make_batch(self, down: int, across: int, number: int) -> Batch:
        """Some of them, as long as all that came before are of full number."""
        program = self.packed.program
        roots = self.phase.roots(program)
        divided = [geometry.tiles(self.sizes[v], down, across, self.packed.cut(v)) for v in roots]
        strips = []
        for boxes in islice(
            zip(*divided, strict=True), number * _TOGETHER, (number + 1) * _TOGETHER
        ):
            found = {
                v: b for v, b in zip(roots, boxes, strict=True) if b.height > 0 and b.width > 0
            }
            if found:
                strips.append(self.strip(found))
        maps = np.array([strip.maps for strip in strips], MAP)
        orders = tuple(strip.order.turns for strip in strips)
        records = np.zeros(len(strips), STRIP)
        records["maps"] = addresses(maps, 1)
        records["order"] = [order.ctypes.data for order in orders]
        records["count"] = [len(order) for order in orders]
        return Batch(
            np.array([strip.tasks for strip in strips], TASK),
            records,
            (maps, *orders),
            max((strip.floats for strip in strips), default=0),
        )

    def strip(self, roots: Mapping[int, Box]) -> Strip:
        """The strip that makes these boxes of the phase's roots."""
        work = geometry.work(self.packed.program, self.phase.steps, roots, self.packed.unit)
        boxes = [self._box(task, work, roots) for task in self.tasks]
        held = self._held(work, boxes)
        for n, task in enumerate(self.tasks):
            if task.kind in (READ, LOAD):
                boxes[n] = held[task.target]
        spans = [(box.top, box.bottom if box.width > 0 else box.top) for box in boxes]
        found = self._order(spans)
        tasks, maps = self._tasks.copy(), self._maps.copy()
        tasks["next_row"], tasks["end_row"] = np.array(spans).T
        tasks["column"] = [box.left for box in boxes]
        tasks["columns"] = [box.width for box in boxes]
        floats = 0
        for index in self._used:
            box, record = held[index], maps[index]
            pixel = self.packed.forms[index].pixel_floats
            row_floats = (-(-(box.width + _SPARE_PIXELS) * pixel // LANES) + 1) * LANES
            rows = found.rings.get(index, 1)
            record["ring"], record["mask"], record["row_floats"] = floats, rows - 1, row_floats
            record["column"] = box.left
            floats += rows * row_floats
        inputs = products = stage = 0
        for n, task in enumerate(self.tasks):
            if task.kind in (WINOGRAD, INTEGER_WINOGRAD):
                depth = int(task.fields["depth"])
                cells = round_up(boxes[n].width // CELL, ROW_BLOCK)
                if task.kind == WINOGRAD:
                    group = min(cells, group_size(depth, CHUNK, self._cache_bytes))
                    of_inputs, of_products = scratch_floats(depth, group)
                else:
                    sizes = (depth // 2, WIDTHS[0] * LANES)
                    group = min(cells, group_size(*sizes, self._cache_bytes, _LEAST_BLOCKS))
                    of_inputs, of_products, of_stage = integer_scratch_floats(depth, group)
                    stage = max(stage, of_stage)
                tasks[n]["group"] = group
                inputs, products = max(inputs, of_inputs), max(products, of_products)
            elif task.kind == INTEGER_POINTWISE:
                depth = int(task.fields["depth"])
                span = max(1, _SPAN_FLOATS * 2 // (depth * ROW_BLOCK)) * ROW_BLOCK
                tasks[n]["group"] = span
                inputs = max(inputs, span * depth // 2)
                products = max(products, ROW_BLOCK * WIDTHS[0] * LANES)
                stage = max(stage, -(-depth // (2 * PART_PAIRS)) * span * LANES)
            elif task.kind == TILES:
                products = max(products, 2 * STAGE_FLOATS)
            elif task.kind == FEW_TILES:
                pixels = boxes[n].width + _SPARE_PIXELS
                products = max(products, task.rows * pixels * COLUMNS)
            elif task.kind == WRITE:
                products = max(products, boxes[n].width * int(task.fields["planes"]))
        tasks["inputs"] = floats
        tasks["products"] = floats + inputs
        tasks["stage"] = floats + inputs + products
        return Strip(tasks, maps, found, floats + inputs + products + stage)

    def _box(self, task: Task, work: geometry.Work, roots: Mapping[int, Box]) -> Box:
        """The rows and columns that a task computes."""
        program = self.packed.program
        if task.kind in (READ, LOAD):
            return _EMPTY
        if task.kind == WRITE:
            return roots.get(program.result, _EMPTY)
        if task.kind == KEEP:
            return geometry.divided(roots.get(task.step, _EMPTY), self.packed.forms[task.step].fold)
        if task.kind == AVERAGE:
            return roots.get(task.reaches[0].map, _EMPTY)
        box = work.steps.get(task.step, _EMPTY)
        return Box(*(edge * task.scale for edge in box))

    def _held(self, work: geometry.Work, boxes: Sequence[Box]) -> dict[int, Box]:
        """The part of each map that its ring holds, in pixels of memory."""
        held: dict[int, Box] = {}
        for value, box in work.values.items():
            held[value] = geometry.divided(box, self.packed.forms[value].fold)
        for task, box in zip(self.tasks, boxes, strict=True):
            for reach in task.reaches:
                if reach.map < len(self.packed.program.values) and reach.map:
                    continue
                if not box.height or not box.width:
                    continue
                top, bottom = reach.rows(box.top, box.bottom)
                left, right = reach.rows(box.left, box.right)
                held[reach.map] = geometry.hull(
                    Box(top, left, bottom - top, right - left), held.get(reach.map)
                )
        for task, box in zip(self.tasks, boxes, strict=True):
            # What is only between two tasks is as large as what the first of them writes.
            if task.target >= len(self.packed.program.values) and task.kind != READ:
                held[task.target] = geometry.hull(box, held.get(task.target))
        return {index: held.get(index, _EMPTY) for index in self._used}

    def _order(self, spans: Sequence[tuple[int, int]]) -> Order:
        key = tuple(spans)
        if key not in self._orders:
            self._orders[key] = order(self.tasks, spans)
        return self._orders[key]


@dataclass(frozen=True, eq=False)
class _Layers:
    """What decides how a phase is best cut, of each of its steps."""

    costs: NDArray[np.float64]
    """Shares of the whole work."""
    halos: NDArray[np.float64]
    """Rows and columns that are computed around a strip, both sides together, in pixels of the
    picture."""
    scales: NDArray[np.float64]
    """Of its pixels to those of the picture."""
    unit: float
    """Pixels of a row that cost the same in part: a register tile."""
    finest: float
    """The scale at which most of the work is done,"""
    most: float
    """and how many pixels wide a strip should be there at most. Wide ones have less around them;
    their rings, which no L2 cache holds anyway, should stay in a core's share of the L3 cache."""


def group_size(of_inputs: int, of_products: int, cache_bytes: int, least: int = 1) -> int:
    """Cells whose V and M, of so many floats for each frequency, take at most three quarters of a
    cache: a multiple of ROW_BLOCK, `least` times that at least."""
    floats = FREQUENCIES * (of_inputs + of_products)
    return max(least, cache_bytes * 3 // 4 // (4 * floats * ROW_BLOCK)) * ROW_BLOCK


def scratch_floats(in_planes: int, group: int) -> tuple[int, int]:
    """Floats of V and of M for a group of cells; each frequency is followed by one spare vector.

    Without the spare vector the frequencies would lie a multiple of 4 KiB apart, in the same few
    sets of the L1 cache.
    """
    return (
        FREQUENCIES * (group * in_planes + LANES),
        FREQUENCIES * (group * CHUNK + LANES),
    )


def integer_scratch_floats(in_planes: int, group: int) -> tuple[int, int, int]:
    """The same in integers, V with the frequency that stays in floats, and of a part of a cell that
    is not integers yet, with the scales of all cells behind it."""
    part = 2 * PART_PAIRS
    return (
        FREQUENCIES * (group * in_planes // 2 + LANES) + group * in_planes,
        FREQUENCIES * (group * WIDTHS[0] * LANES + LANES),
        FREQUENCIES * part + -(-in_planes // part) * group * LANES,
    )
