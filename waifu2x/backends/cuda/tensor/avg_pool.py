"""Runs the sums of global average pooling, by `kernels/tensor_avg_pool.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from waifu2x.backends.cuda.arguments import Address
from waifu2x.backends.cuda.tensor import vectors
from waifu2x.backends.cuda.tensor.step import TensorStep, TensorTask, within
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, LaunchMaker
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.symbols import larger

_BLOCKS = 8
"""The blocks that sum on each multiprocessor."""

_Sum = TypeVar("_Sum", bound=GlobalAvgPool | CrossSums)


class TensorSumStep(TensorStep[_Sum]):
    """Adds the pixels of a box of a map to sums over the picture."""

    def launches(self, task: TensorTask) -> Sequence[LaunchMaker]:
        box = task.sums[self.number]
        return [partial(self.launch, task)] if box.height and box.width else []

    def launch_lines(
        self, task: TensorTask, spec: KernelSpec, parts: int, rows: int, beyond: int
    ) -> Launch:
        """Returns the launch for `rows` stored rows, each divided among `parts` blocks."""
        value, grid = self.step.source.value, task.grid
        wanted = _BLOCKS * self.runtime.limits.compute_units
        lines = larger(1, rows * parts * grid.pictures // wanted)
        held = task.places[value].box
        fields = {
            "in": task.address(value),
            "sums": Address(task.vectors.sums + 8 * self.context.vectors.sum_places[self.number]),
            "flags": task.check.flags,
            "from": self.layout(value).arguments(held, grid, 0, 0),
            "part": within(task.sums[self.number], held),
            "each": task.vectors.sums_each,
            "across": grid.across,
            "lines": lines,
            "beyond": beyond,
        }
        return self.launch_with(spec, (-(-rows // lines), parts, grid.pictures), fields)


class TensorAvgPoolStep(TensorSumStep[GlobalAvgPool]):
    """Adds the pixels of a box to the sums of a mean over the picture."""

    def launch(self, task: TensorTask) -> Launch:
        value = self.step.source.value
        layout, held = self.layout(value), task.places[value].box
        macros = {
            "THREADS": vectors.THREADS,
            "GROUP": layout.group,
            "STORED": layout.stored,
            "S2D": layout.space_to_depth,
            "EACH": layout.parts[0],
            "PLANES": self.program.values[value].planes,
            "TERMS": layout.terms,
            "UNIT": vectors.UNIT,
        }
        part, s2d = within(task.sums[self.number], held), layout.space_to_depth
        rows = -(-part.bottom // s2d) - part.top // s2d
        spec = KernelSpec("tensor_avg_pool", macros, vectors.THREADS)
        return self.launch_lines(task, spec, layout.stored // layout.group, rows, task.check.beyond)
