"""Defines packed programs: tasks, and weights in the order in which compiled code reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import CELL_UNIT, Arithmetic
from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.layouts import MapLayouts
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import (
    IN_INTEGERS,
    OF_WINDOWS,
    ON_TILES,
    ROWS,
    CpuTask,
    RowWindow,
    TaskSchedule,
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
    """The tasks of every step of a program, and the arrays that they point into."""

    program: Program
    """The program; its weights may be unknown except in linear layers: kernels read packed ones."""
    arithmetic: Arithmetic
    costs: list[float]
    """The multiply-adds of each step for a pixel of the picture."""
    maps: MapLayouts
    vector_starts: list[int]
    """The offset of each vector among all of them, then their total length."""
    tasks: dict[int, list[CpuTask]]
    """The tasks of each step that writes a map, in order."""
    unit: tuple[int, int]
    """The rows and columns to whose multiples steps round their results."""
    weights: NDArray[np.float32]
    constants: NDArray[np.float32]
    passed_over: Mapping[Arithmetic, float]
    """Faster arithmetics that are too inexact for this model, with their PSNR in dB."""

    @cached_property
    def attends(self) -> bool:
        """Whether any step is attention, whose windows depend on the sizes of maps."""
        return bool(self._steps_of(OF_WINDOWS))

    @cached_property
    def on_tiles(self) -> set[int]:
        """The steps that run in bf16."""
        return self._steps_of(ON_TILES)

    @cached_property
    def in_integers(self) -> set[int]:
        """The steps that run in 16-bit integers."""
        return self._steps_of(IN_INTEGERS)

    def phase_tasks(self, phase: Phase) -> list[CpuTask]:
        """Returns all tasks of a strip of a phase."""
        own = [task for number in phase.steps for task in self.tasks[number]]
        read = {window.map for task in own for window in task.schedule.windows}
        tasks = [self._load(value) for value in phase.given if value]
        for enlarge, map_ in self.maps.pictures.items():
            if map_ in read:
                fields = {"target": map_, "enlarge": enlarge}
                tasks.append(CpuTask(TaskSchedule(0, ROWS, target=map_), records.READ, fields))
        return [*tasks, *own, *self._ends(phase)]

    def cut(self, value: int) -> int:
        """Returns the unit, in rows and columns, at whose multiples a value can be cut without
        computing a cell of its step twice."""
        units = [self.program.values[value].space_to_depth]
        for step in self.program.steps:
            if isinstance(step, MapStep) and step.writes == value:
                units.append(self.unit[1] * step.stored_block)
            elif isinstance(step, CrossSums) and step.source.value == value:
                units.append(records.CROSS_COLUMNS)
        return math.lcm(*units)

    def multiplied(self, number: int) -> float:
        """Returns the multiply-adds that a step does, divided by those of the definition of its
        convolution."""
        by_cells = any(
            task.kind in (records.WINOGRAD, records.INTEGER_WINOGRAD) for task in self.tasks[number]
        )
        return share(*CELL_UNIT) if by_cells else 1.0

    def _steps_of(self, kinds: tuple[int, ...]) -> set[int]:
        return {
            number for number, own in self.tasks.items() if any(task.kind in kinds for task in own)
        }

    def _load(self, value: int) -> CpuTask:
        """Packs the load of a map that an earlier phase has kept whole, into its ring."""
        fields = {"target": value, "as_integers": int(self.maps.is_kept_as_integers(value))}
        return CpuTask(TaskSchedule(value, ROWS, target=value, part=None), records.LOAD, fields)

    def _ends(self, phase: Phase) -> Iterator[CpuTask]:
        """Yields the tasks that keep maps and that add to sums over them, in order of values."""
        pooled = []
        for number in phase.averages:
            step = self.program.steps[number]
            assert isinstance(step, PictureSum)
            pooled.append((step.source.value, number))
        for value in sorted({*phase.kept, *(value for value, _ in pooled)}):
            if value in phase.kept:
                yield self._keep(value)
            for _, number in sorted(end for end in pooled if end[0] == value):
                yield self._sum(value, number)

    def _keep(self, value: int) -> CpuTask:
        window = RowWindow(value, parts=len(self.maps.layouts[value].parts))
        fields = {"source": value, "as_integers": int(self.maps.is_kept_as_integers(value))}
        return CpuTask(TaskSchedule(value, ROWS, (window,)), records.KEEP, fields)

    def _sum(self, value: int, number: int) -> CpuTask:
        """Packs the summation of a map's planes, of their squares, or of products of planes."""
        layout, step = self.maps.layouts[value], self.program.steps[number]
        if isinstance(step, CrossSums):
            fields = {
                "source": value,
                "source_plane": step.first[0],
                "keys_plane": step.first[1],
                "planes": step.planes,
                "heads": step.heads,
                "depth": step.planes // step.heads,
                "period": step.period,
            }
            return CpuTask(TaskSchedule(number, ROWS, (RowWindow(value),)), records.CROSS, fields)
        assert isinstance(step, GlobalAvgPool)
        even = layout.space_to_depth == 1 and layout.planes % LANES == 0
        window = RowWindow(value, unit=layout.space_to_depth, parts=len(layout.parts))
        fields = {
            "method": records.BY_PLANES if even else records.BY_VALUES,
            "source": value,
            "planes": layout.parts[0],
            "squared": int(step.squared),
            "rest": (self.vector_starts[step.vector + 1] - self.vector_starts[step.vector]) // 2,
        }
        return CpuTask(TaskSchedule(number, ROWS, (window,)), records.POOL, fields)
