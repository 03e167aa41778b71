"""What turns steps into tasks: the program, its maps and arrays while they are made."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from waifu2x.backends.cpu.arithmetic import PLANE_UNIT, Arithmetic
from waifu2x.backends.cpu.pack.arrays import Arrays
from waifu2x.backends.cpu.pack.maps import ProgramMaps
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import RowWindow
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Packing:
    """What the tasks of all steps of a program share."""

    program: Program
    arithmetic: Arithmetic
    maps: ProgramMaps
    arrays: Arrays

    @cached_property
    def vector_starts(self) -> list[int]:
        """Where each vector begins among all of them, and how long they are together.

        As long as the planes of a map, padding included: kernels read and add whole pixels.
        """
        unit = max(LANES, PLANE_UNIT[self.arithmetic])
        sizes = [round_up(size, unit) for size in self.program.vectors]
        for step in self.program.steps:
            # Two integers for each; those of products are added by whole vectors from any place on.
            if isinstance(step, GlobalAvgPool):
                sizes[step.vector] *= 2
            elif isinstance(step, CrossSums):
                sizes[step.vector] = round_up(2 * self.program.vectors[step.vector], unit) + unit
        starts: list[int] = np.cumsum([0, *sizes]).tolist()
        return starts

    def residual_window(self, view: View, up: int = 1) -> RowWindow:
        """The rows of an addition for rows of a task each of which makes `up`."""
        unit = self.maps.layouts[view.value].space_to_depth
        return RowWindow(view.value, up=up, offset=view.offset, unit=unit, first=view.first)
