"""The tables of a strip: which part of each map it computes, where the rings lie, in which
order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
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
    TASK,
    TILES,
    WINOGRAD,
    WRITE,
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
    WIDTHS,
    tile_height,
)
from waifu2x.backends.cpu.tasks import Task
from waifu2x.lowering import geometry
from waifu2x.lowering.phases import Phase
from waifu2x.lowering.steps import Move, Product
from waifu2x.model import Size
from waifu2x.tiling import Box

_SPARE_PIXELS = 2 * max(ROW_BLOCK, BLOCK)
"""At the end of each row, for tiles that run past the last column and those that read there."""
_TILES_WIDTH = 256
"""Pixels: about what lets the rings of a strip on tiles stay in the L2 cache, beside weights."""
_MOST_DOWN = 64
_UNEVEN = 0.1
"""The part of a core's last strip for which the others are taken to wait."""
_LEAST_BLOCKS = 3
"""Of ROW_BLOCK cells in integers, for each reading of all weights: no fewer than lets those come
from beyond the L2 cache as fast as they are used."""
_SPAN_FLOATS = 16384
"""Memory of the inputs of a span of 1x1 products in integers: what stays in an L2 cache beside
weights."""
_MOST_STRIPS = 128
"""That are kept for the next picture of the same size; each takes some 10 KiB."""
_EMPTY = Box(0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Strip:
    """What compiled code is handed, but for addresses."""

    tasks: NDArray[Any]
    maps: NDArray[Any]
    order: Order
    floats: int
    """Of scratch memory."""


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
        self._scale: tuple[Fraction, float, float] | None = None
        self._orders: dict[tuple[tuple[int, int], ...], Order] = {}
        # To make one takes about a millisecond, in which no other thread makes any: with sixteen
        # cores, several times as long as they take for a small picture.
        self._strip = lru_cache(_MOST_STRIPS)(self._make)

    def division(self, pictures: int, cores: int) -> tuple[int, int]:
        """Into how many strips, down and across, each picture is best divided.

        Edges that are computed twice, and cells that only fill up register tiles, speak for few
        strips, cores that wait at the end for many.
        """
        if self._scale is None:
            self._scale = self._measure()
        finest, halo, most = self._scale
        values, roots = self.packed.program.values, self.phase.roots(self.packed.program)
        height, width = (
            max(float(self.sizes[v][side] * finest / values[v].resolution) for v in roots)
            for side in range(2)
        )
        least = max(1, round(width / most))
        unit = self.packed.unit[1]
        if not self.packed.on_tiles:
            unit *= tile_height(WIDTHS[0]) // (2 if self.packed.in_integers else 1)
        best: tuple[float, int, int] | None = None
        for across in range(least, 4 * least + 1):
            computed = round_up(math.ceil(width / across + halo), unit) * across
            for down in range(1, max(1, min(_MOST_DOWN, int(height) // 8)) + 1):
                count = pictures * down * across
                turns = -(-count // cores)
                waste = turns * cores / count * (1 + _UNEVEN * (1 - 1 / cores) / turns)
                waste *= (1 + halo * down / height) * computed / width
                if best is None or waste < best[0]:
                    best = (waste, down, across)
        assert best is not None
        return best[1:]

    def _measure(self) -> tuple[Fraction, float, float]:
        """The resolution at which most of the work is done, how many rows, there, are computed
        around a strip on the average, and how wide a strip should be at most.

        Wide ones have less around them; their rings, which no L2 cache holds anyway, should stay in
        a core's share of the L3 cache.
        """
        program, costs = self.packed.program, self.packed.costs
        side = 256
        roots = {}
        for value in self.phase.roots(program):
            edge = round(side * program.values[value].resolution)
            roots[value] = Box(0, 0, edge, edge)
        work = geometry.work(program, self.phase.steps, roots, self.packed.unit)
        spent: dict[Fraction, float] = {}
        grown = total = 0.0
        for number, box in work.steps.items():
            step = program.steps[number]
            assert isinstance(step, Product | Move)
            resolution = program.values[step.target.value].resolution
            if isinstance(step, Product):
                resolution /= step.shuffle
            spent[resolution] = spent.get(resolution, 0) + costs[number]
            grown += costs[number] * (float(box.height / resolution) - side)
            total += costs[number]
        finest = max(spent, key=lambda resolution: spent[resolution], default=Fraction(1))
        most = float(_TILES_WIDTH)
        if not self.packed.on_tiles:
            most = isa.l3_bytes() * side * float(finest) / (4 * self.strip(roots).floats)
        return finest, float(finest) * grown / max(total, 1.0), most

    def strip(self, roots: Mapping[int, Box]) -> Strip:
        """The strip that makes these boxes of the phase's roots: not to be changed."""
        return self._strip(tuple(roots.items()))

    def _make(self, boxes_of_roots: tuple[tuple[int, Box], ...]) -> Strip:
        roots = dict(boxes_of_roots)
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
            return _stored(roots.get(task.step, _EMPTY), self.packed.forms[task.step].fold)
        if task.kind == AVERAGE:
            return roots.get(task.reaches[0].map, _EMPTY)
        box = work.steps.get(task.step, _EMPTY)
        return Box(*(edge * task.scale for edge in box))

    def _held(self, work: geometry.Work, boxes: Sequence[Box]) -> dict[int, Box]:
        """The part of each map that its ring holds, in pixels of memory."""
        held: dict[int, Box] = {}
        for value, box in work.values.items():
            held[value] = _stored(box, self.packed.forms[value].fold)
        for task, box in zip(self.tasks, boxes, strict=True):
            for reach in task.reaches:
                if reach.map < len(self.packed.program.values) and reach.map:
                    continue
                if not box.height or not box.width:
                    continue
                top, bottom = reach.rows(box.top, box.bottom)
                left, right = reach.rows(box.left, box.right)
                held[reach.map] = _around(
                    Box(top, left, bottom - top, right - left), held.get(reach.map)
                )
        for task, box in zip(self.tasks, boxes, strict=True):
            # What is only between two tasks is as large as what the first of them writes.
            if task.target >= len(self.packed.program.values) and task.kind != READ:
                held[task.target] = _around(box, held.get(task.target))
        return {index: held.get(index, _EMPTY) for index in self._used}

    def _order(self, spans: Sequence[tuple[int, int]]) -> Order:
        key = tuple(spans)
        if key not in self._orders:
            self._orders[key] = order(self.tasks, spans)
        return self._orders[key]


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


def _stored(box: Box, fold: int) -> Box:
    """A box of single pixels in pixels of memory."""
    top, left = box.top // fold, box.left // fold
    return Box(top, left, -(-box.bottom // fold) - top, -(-box.right // fold) - left)


def _around(box: Box, other: Box | None) -> Box:
    """The smallest box around both."""
    if other is None:
        return box
    top, left = min(box.top, other.top), min(box.left, other.left)
    bottom, right = max(box.bottom, other.bottom), max(box.right, other.right)
    return Box(top, left, bottom - top, right - left)
