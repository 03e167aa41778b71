"""A program as tasks, its weights in the order in which the compiled code reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import CELL_UNIT, Arithmetic
from waifu2x.backends.cpu.pack.attention_tasks import cross_task
from waifu2x.backends.cpu.pack.map_layouts import MapLayouts
from waifu2x.backends.cpu.pack.records import (
    BY_PLANES,
    BY_VALUES,
    CROSS_COLUMNS,
    INTEGER_WINOGRAD,
    WINOGRAD,
)
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import (
    IN_INTEGERS,
    ON_TILES,
    ROWS,
    CpuTask,
    CrossTask,
    KeepTask,
    LoadTask,
    MapTask,
    PoolTask,
    ReadTask,
    RowWindow,
    TaskSchedule,
    TaskSource,
    TaskTarget,
    WindowTask,
)
from waifu2x.backends.winograd import share
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.base import MapStep, PictureSum
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class PackedProgram:
    """Tasks of every step, and the arrays that they point into."""

    program: Program
    """Its weights may be unknown, but for those of linear layers: what computes is packed."""
    arithmetic: Arithmetic
    costs: list[float]
    """Multiply-adds of each step for a pixel of the picture."""
    maps: MapLayouts
    vector_starts: list[int]
    """Where each vector begins among all of them, and how long they are together."""
    tasks: dict[int, list[MapTask]]
    """The tasks of each step that writes a map, in order."""
    unit: tuple[int, int]
    """Rows and columns that steps compute whole multiples of."""
    weights: NDArray[np.float32]
    constants: NDArray[np.float32]

    @cached_property
    def attends(self) -> bool:
        """Whether any step computes attention, whose windows depend on the sizes of maps."""
        return any(isinstance(task, WindowTask) for own in self.tasks.values() for task in own)

    @cached_property
    def on_tiles(self) -> set[int]:
        """The steps that run in bf16."""
        return self._steps_of(ON_TILES)

    @cached_property
    def in_integers(self) -> set[int]:
        """The steps that run in 16-bit integers."""
        return self._steps_of(IN_INTEGERS)

    def phase_tasks(self, phase: Phase) -> list[CpuTask]:
        """Everything that a strip of a phase runs."""
        own = [task for number in phase.steps for task in self.tasks[number]]
        read = {window.map for task in own for window in task.schedule.windows}
        tasks: list[CpuTask] = [self._load(value) for value in phase.given if value]
        tasks += [
            ReadTask(
                schedule=TaskSchedule(0, ROWS, target=map_),
                target=TaskTarget(map_),
                enlarge=enlarge,
            )
            for enlarge, map_ in self.maps.pictures.items()
            if map_ in read
        ]
        tasks += own
        tasks += self._ends(phase)
        return tasks

    def cut(self, value: int) -> int:
        """At multiples of how many rows and columns a value may be cut so that no cell of the step
        that makes it is computed twice."""
        units = [self.program.values[value].space_to_depth]
        for step in self.program.steps:
            if isinstance(step, MapStep) and step.writes == value:
                units.append(self.unit[1] * step.stored_block)
            elif isinstance(step, CrossSums) and step.source.value == value:
                units.append(CROSS_COLUMNS)
        return math.lcm(*units)

    def multiplied(self, number: int) -> float:
        """How many multiply-adds a step does, of those that its convolution has by definition."""
        by_cells = any(task.kind in (WINOGRAD, INTEGER_WINOGRAD) for task in self.tasks[number])
        return share(*CELL_UNIT) if by_cells else 1.0

    def _steps_of(self, kinds: tuple[int, ...]) -> set[int]:
        return {
            number for number, own in self.tasks.items() if any(task.kind in kinds for task in own)
        }

    def _load(self, value: int) -> LoadTask:
        return LoadTask(
            schedule=TaskSchedule(value, ROWS, target=value, part=None),
            target=TaskTarget(value),
            as_integers=int(self.maps.is_kept_as_integers(value)),
        )

    def _ends(self, phase: Phase) -> Iterator[KeepTask | PoolTask | CrossTask]:
        """What keeps maps and adds to the sums of means, by the values that it reads."""
        pooled = []
        for number in phase.averages:
            step = self.program.steps[number]
            assert isinstance(step, PictureSum)
            pooled.append((step.source.value, number))
        for value in sorted({*phase.kept, *(value for value, _ in pooled)}):
            if value in phase.kept:
                yield self._keep(value)
            for _, number in sorted(end for end in pooled if end[0] == value):
                yield self._pool(value, number)

    def _keep(self, value: int) -> KeepTask:
        window = RowWindow(value, parts=len(self.maps.layouts[value].parts))
        return KeepTask(
            schedule=TaskSchedule(value, ROWS, (window,)),
            source=TaskSource(value),
            as_integers=int(self.maps.is_kept_as_integers(value)),
        )

    def _pool(self, value: int, number: int) -> PoolTask | CrossTask:
        layout, step = self.maps.layouts[value], self.program.steps[number]
        if isinstance(step, CrossSums):
            return cross_task(number, step)
        assert isinstance(step, GlobalAvgPool)
        even = layout.space_to_depth == 1 and layout.planes % LANES == 0
        window = RowWindow(value, unit=layout.space_to_depth, parts=len(layout.parts))
        return PoolTask(
            schedule=TaskSchedule(number, ROWS, (window,)),
            method=BY_PLANES if even else BY_VALUES,
            source=TaskSource(value),
            planes=layout.parts[0],
            squared=int(step.squared),
            rest=(self.vector_starts[step.vector + 1] - self.vector_starts[step.vector]) // 2,
        )
