"""Steps that go through maps of many planes pixel by pixel: what those share whose kernels include
`kernels/tensor_cells.cuh`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from waifu2x.backends.cuda.tensor.layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.step import LayerExtent, Range, Task, TensorStep
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, View

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime


class WrittenMap(NamedTuple):
    """What a kernel is told of the map that it writes."""

    macros: dict[str, str | int]
    arguments: MapArguments
    extent: LayerExtent
    valid: Range


class CellStep(TensorStep):
    """A step that reads maps of many planes by single pixels."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
    ) -> None:
        """`layouts` are those of all values."""
        super().__init__(runtime, program, number)
        self._layouts = layouts

    def layout(self, value: int) -> MapLayout:
        """The layout of a value of many planes."""
        layout = self._layouts[value]
        assert isinstance(layout, MapLayout)
        return layout

    def seen(self, task: Task, view: View) -> MapArguments:
        """A map that a view reads, from the first pixel on that the step makes."""
        box, held = task.boxes[self.number], task.places[view.value].box
        top = box.top + view.offset - held.top * view.enlarge
        left = box.left + view.offset - held.left * view.enlarge
        return self.layout(view.value).arguments(held, task.grid, top, left)

    def written(self, task: Task, target: Target) -> WrittenMap:
        """The map that the step writes, which adds no other on its way."""
        box, held, grid = task.boxes[self.number], task.places[target.value].box, task.grid
        rows, columns = task.batch.sizes[target.value]
        layout = self.layout(target.value)
        macros: dict[str, str | int] = {
            "OUT_GROUP": layout.group,
            "OUT_STORED": layout.stored,
            "EACH": layout.parts[target.part],
            "PART": layout.start(target.part) + target.plane,
            "S2D": layout.space_to_depth,
            "RESIDUAL": 0,
            "ZERO": int(self.reaches_out(target.value, box, task)),
        }
        return WrittenMap(
            macros,
            layout.arguments(held, grid, box.top - held.top, box.left - held.left),
            LayerExtent(box.height, box.width, across=grid.across, pictures=grid.pictures),
            Range(-box.top, -box.left, rows - box.top, columns - box.left),
        )


def within(box: Box, held: Box) -> Range:
    """A box by places in a map that holds another."""
    return Range(
        box.top - held.top, box.left - held.left, box.bottom - held.top, box.right - held.left
    )


def residual_macros(layout: MapLayout, view: View) -> dict[str, str | int]:
    """The macros of a map of many planes that a kernel adds."""
    return {
        "RESIDUAL_GROUP": layout.group,
        "RESIDUAL_STORED": layout.stored,
        "RESIDUAL_EACH": layout.parts[view.first],
        "RESIDUAL_S2D": layout.space_to_depth,
        "RESIDUAL_PART": layout.start(view.first),
    }
