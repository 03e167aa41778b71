"""Makes the tables of strips: the box of each map, the places of rings, the order of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.records import (
    CROSS,
    KEEP,
    LOAD,
    MAP,
    POOL,
    READ,
    STRIP,
    TASK,
    WRITE,
    addresses,
)
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import CpuTask
from waifu2x.backends.cpu.run import kernels
from waifu2x.backends.cpu.run.division import LayerCosts, best_division, layer_costs
from waifu2x.backends.cpu.run.schedule import RunOrder, order
from waifu2x.backends.cpu.run.scratch import SPARE_PIXELS, Scratch, scratch
from waifu2x.lowering.ops.base import PictureSum
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box, divided, hull
from waifu2x.lowering.plan.phases import Phase
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass

_TOGETHER = 64
"""The strips whose tables are made before any of them runs."""
_FEWEST_TOGETHER = 8
_MOST_SUM_BYTES = 32 << 20
"""The most bytes of sums of such strips, where each has sums of many products."""
_MOST_BATCHES = 2
"""The batches cached for the next picture of the same size; each strip takes some 10 KiB."""
_MOST_DIVISIONS = 16
_EMPTY = Box(0, 0, 0, 0)
_LAYERS: WeakKeyDictionary[PackedProgram, dict[Any, LayerCosts]] = WeakKeyDictionary()
"""The figures of programs' phases, by their steps, and the values that they read and keep."""


@dataclass(frozen=True, eq=False)
class Strip:
    """The tables of a strip for compiled code, without addresses."""

    tasks: NDArray[Any]
    """(tasks,) of records.TASK."""
    maps: NDArray[Any]
    """(maps,) of records.MAP."""
    order: RunOrder
    floats: int
    """The floats of scratch memory."""


@dataclass(frozen=True, eq=False)
class StripBatch:
    """The tables of several strips of a phase; immutable, since pictures share them."""

    tasks: NDArray[Any]
    """(strips, tasks)."""
    records: NDArray[Any]
    """(strips,) of records.STRIP, with the fields that do not depend on a picture."""
    arrays: tuple[NDArray[Any], ...]
    """The arrays whose addresses the records hold."""
    floats: int
    """The floats of scratch memory of each thread."""


class PhaseStrips:
    """Makes the strips of a phase, for pictures of one size."""

    def __init__(
        self,
        packed: PackedProgram,
        phase: Phase,
        sizes: Sequence[Size],
        extents: Mapping[int, Box],
    ) -> None:
        """`extents` are the boxes of the phase's roots to make."""
        self.packed, self.phase, self.sizes = packed, phase, sizes
        self._extents = extents
        self.tasks = packed.phase_tasks(phase)
        self._cache_bytes = isa.l2_bytes()
        self._tasks = np.zeros(len(self.tasks), TASK)
        for record, task in zip(self._tasks, self.tasks, strict=True):
            task.fill(record)
            record["kernel"] = kernels.address(task)
        schedules = [task.schedule for task in self.tasks]
        used = {window.map for schedule in schedules for window in schedule.windows}
        used |= {schedule.target for schedule in schedules if schedule.target >= 0}
        self._used = sorted(used)
        self._maps = self._map_records()
        self.sums = self._find_sums()
        """The range of elements of vectors that covers those that it adds to."""
        most = _MOST_SUM_BYTES // (8 * max(1, len(self.sums)))
        self._together = min(_TOGETHER, max(_FEWEST_TOGETHER, most))
        self._orders: dict[tuple[tuple[int, int], ...], RunOrder] = {}
        self.division = lru_cache(_MOST_DIVISIONS)(self._division)
        # The tables of a strip take about a millisecond, and only one thread makes them: with
        # sixteen cores, several times as long as a small picture.
        self._batch = lru_cache(_MOST_BATCHES)(self._make_batch)

    def batches(self, down: int, across: int) -> Iterator[StripBatch]:
        """Yields the batches of all `down` x `across` strips of a picture."""
        for number in range(-(-down * across // self._together)):
            batch = self._batch(down, across, number)
            if len(batch.records):
                yield batch

    def strip(self, roots: Mapping[int, Box]) -> Strip:
        """Returns the strip that makes these boxes of the phase's roots."""
        sizes = self.sizes if self.packed.attends else None
        work = geometry.work(self.packed.program, self.phase.steps, roots, self.packed.unit, sizes)
        boxes = [self._box(task, work, roots) for task in self.tasks]
        held = self._held(work, boxes)
        for n, task in enumerate(self.tasks):
            if task.kind in (READ, LOAD):
                boxes[n] = held[task.schedule.target]
        spans = [(box.top, box.bottom if box.width > 0 else box.top) for box in boxes]
        found = self._order(spans)
        maps, floats = self._rings(held, found)
        needs = [
            scratch(task, box.width, self._cache_bytes)
            for task, box in zip(self.tasks, boxes, strict=True)
        ]
        most = Scratch(*(max(column, default=0) for column in zip(*needs, strict=True)))
        tasks = self._tasks.copy()
        tasks["next_row"], tasks["end_row"] = np.array(spans).T
        tasks["column"] = [box.left for box in boxes]
        tasks["columns"] = [box.width for box in boxes]
        tasks["cells"] = [need.cells for need in needs]
        tasks["span"] = [need.span for need in needs]
        tasks["inputs"] = floats
        tasks["products"] = floats + most.inputs
        tasks["staging"] = floats + most.inputs + most.products
        return Strip(tasks, maps, found, floats + most.inputs + most.products + most.staging)

    @cached_property
    def _layers(self) -> LayerCosts:
        """The figures of the phase; they take longer than the tables of a small picture, and
        without attention they are the same for all sizes."""

        def made() -> LayerCosts:
            return layer_costs(self.packed, self.phase, lambda roots: self.strip(roots).floats)

        if self.packed.attends:
            return made()
        known = _LAYERS.setdefault(self.packed, {})
        key = self.phase.steps, self.phase.given, self.phase.kept
        if key not in known:
            known[key] = made()
        return known[key]

    def _division(self, pictures: int, cores: int) -> tuple[int, int]:
        """Returns the best number of strips of each picture, down and across."""
        values = self.packed.program.values
        height, width = (
            max(
                (float(box[2 + side] / values[v].resolution) for v, box in self._extents.items()),
                default=1.0,
            )
            for side in range(2)
        )
        return best_division(self._layers, height, width, pictures, cores)

    def _make_batch(self, down: int, across: int, number: int) -> StripBatch:
        """Makes batch `number` of the strips; all earlier batches are full."""
        roots = self._extents
        divided = [_tiles(box, down, across, self.packed.cut(v)) for v, box in roots.items()]
        first = number * self._together
        strips = []
        for boxes in islice(zip(*divided, strict=True), first, first + self._together):
            found = {
                v: b for v, b in zip(roots, boxes, strict=True) if b.height > 0 and b.width > 0
            }
            if found:
                strips.append(self.strip(found))
        maps = np.array([strip.maps for strip in strips], MAP)
        orders = tuple(strip.order.runs for strip in strips)
        records = np.zeros(len(strips), STRIP)
        records["maps"] = addresses(maps, 1)
        records["order"] = [order.ctypes.data for order in orders]
        records["count"] = [len(order) for order in orders]
        return StripBatch(
            np.array([strip.tasks for strip in strips], TASK),
            records,
            (maps, *orders),
            max((strip.floats for strip in strips), default=0),
        )

    def _find_sums(self) -> range:
        steps, starts = self.packed.program.steps, self.packed.vector_starts
        vectors = [
            step.vector
            for step in map(steps.__getitem__, self.phase.averages)
            if isinstance(step, PictureSum)
        ]
        return range(starts[min(vectors)], starts[max(vectors) + 1]) if vectors else range(0)

    def _map_records(self) -> NDArray[Any]:
        """Returns the records of maps, with the fields that are the same for all strips."""
        program, layouts = self.packed.program, self.packed.maps.layouts
        maps = np.zeros(len(layouts), MAP)
        for index in self._used:
            record, layout = maps[index], layouts[index]
            record["pixel_floats"], record["planes"] = layout.pixel_floats, layout.planes
            record["space_to_depth"], record["terms"] = layout.space_to_depth, layout.terms
            record["zero_point"] = layout.zero_offset
            if index < len(program.values):
                record["rows"], record["columns"] = self.sizes[index]
                record["is_zero_outside"] = program.values[index].zero_outside
        return maps

    def _rings(self, held: Mapping[int, Box], found: RunOrder) -> tuple[NDArray[Any], int]:
        """Returns the records of maps with their rings placed one after the other, and the floats
        of all rings."""
        maps, floats = self._maps.copy(), 0
        for index in self._used:
            box, record = held[index], maps[index]
            pixel = self.packed.maps.layouts[index].pixel_floats
            row_floats = (-(-(box.width + SPARE_PIXELS) * pixel // LANES) + 1) * LANES
            rows = found.rings.get(index, 1)
            record["ring"], record["mask"], record["row_floats"] = floats, rows - 1, row_floats
            record["column"] = box.left
            floats += rows * row_floats
        return maps, floats

    def _box(self, task: CpuTask, work: geometry.Work, roots: Mapping[int, Box]) -> Box:
        """Returns the rows and columns that a task computes."""
        schedule = task.schedule
        if task.kind in (READ, LOAD):
            return _EMPTY
        if task.kind == KEEP:
            side = self.packed.maps.layouts[schedule.step].space_to_depth
            return divided(roots.get(schedule.step, _EMPTY), side)
        if task.kind in (POOL, CROSS):
            return roots.get(task.fields["source"], _EMPTY)
        if task.kind == WRITE:
            return roots.get(self.packed.program.result, _EMPTY)
        box = work.steps.get(schedule.step, _EMPTY)
        return Box(*(edge * schedule.scale for edge in box))

    def _held(self, work: geometry.Work, boxes: Sequence[Box]) -> dict[int, Box]:
        """Returns the box of each map that its ring holds, in stored pixels."""
        values = len(self.packed.program.values)
        held: dict[int, Box] = {}
        for value, box in work.values.items():
            held[value] = divided(box, self.packed.maps.layouts[value].space_to_depth)
        for task, box in zip(self.tasks, boxes, strict=True):
            if not box.height or not box.width:
                continue
            for window in task.schedule.windows:
                if window.map < values and window.map:
                    continue
                top, bottom = window.rows(box.top, box.bottom)
                left, right = window.rows(box.left, box.right)
                read = Box(top, left, bottom - top, right - left)
                held[window.map] = hull(read, held.get(window.map))
        for task, box in zip(self.tasks, boxes, strict=True):
            # A map that lies only between two tasks is as large as the first of them writes it.
            target = task.schedule.target
            if target >= values and task.kind != READ:
                held[target] = hull(box, held.get(target))
        return {index: held.get(index, _EMPTY) for index in self._used}

    def _order(self, spans: Sequence[tuple[int, int]]) -> RunOrder:
        key = tuple(spans)
        if key not in self._orders:
            self._orders[key] = order([task.schedule for task in self.tasks], spans)
        return self._orders[key]


def _tiles(box: Box, down: int, across: int, unit: int) -> Iterator[Box]:
    """Divides a box of a value, from a multiple of a unit on, as `geometry.tiles` a whole one."""
    top, left = box.top // unit * unit, box.left // unit * unit
    for tile in geometry.tiles((box.bottom - top, box.right - left), down, across, unit):
        yield tile._replace(top=tile.top + top, left=tile.left + left)
