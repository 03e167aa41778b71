"""Sums of global average pooling over maps of matrix units, by `kernels/tensor_avg_pool.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor import vectors
from waifu2x.backends.cuda.tensor.cells import CellStep, within
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.step import Range, Task
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import larger
from waifu2x.lowering.program import Program

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_BLOCKS = 8
"""Blocks that make a sum, for each multiprocessor."""


class AvgPoolArguments(NamedTuple):
    """`AvgPool` in `kernels/tensor_avg_pool.cu`."""

    source: Address
    sums: Address
    flags: Address
    source_map: MapArguments
    part: Range
    each: int
    across: int
    lines: int
    beyond: int


class TensorAvgPoolStep(CellStep):
    """Adds the pixels of a map to the sums of a mean over the picture."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        sums_place: int,
    ) -> None:
        super().__init__(runtime, program, number, layouts)
        step = program.steps[number]
        assert isinstance(step, GlobalAvgPool)
        self._value = step.source.value
        self._layout = self.layout(self._value)
        self._sums_place = sums_place

    def launch(self, task: Task, box: Box) -> Launch:
        """The launch for the sums of a box."""
        layout, held, grid = self._layout, task.places[self._value].box, task.grid
        chosen: Macros = {
            "THREADS": vectors.THREADS,
            "GROUP": layout.group,
            "STORED": layout.stored,
            "S2D": layout.space_to_depth,
            "EACH": layout.parts[0],
            "PLANES": self.program.values[self._value].planes,
            "TERMS": layout.terms,
            "UNIT": vectors.UNIT,
        }
        part = within(box, held)
        groups = layout.stored // layout.group
        first, last = part.top // layout.space_to_depth, -(-part.bottom // layout.space_to_depth)
        wanted = _BLOCKS * self.runtime.limits.compute_units
        lines = larger(1, (last - first) * groups * grid.pictures // wanted)
        arguments = AvgPoolArguments(
            task.address(self._value),
            Address(task.vectors.sums + 8 * self._sums_place),
            task.check.flags,
            layout.arguments(held, grid, 0, 0),
            part,
            task.vectors.sums_each,
            grid.across,
            lines,
            task.check.beyond,
        )
        blocks = (-(-(last - first) // lines), groups, grid.pictures)
        kernel = ("tensor_avg_pool", chosen)
        return self.launch_of(kernel, vectors.THREADS, 0, blocks, lambda: structs(arguments))
