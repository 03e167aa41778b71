"""Runs planewise steps that cannot move whole vectors, by `kernels/tensor_gather.cu`."""

from __future__ import annotations

from typing import Any

from waifu2x.backends.cuda.tensor.activation import join_macro
from waifu2x.backends.cuda.tensor.layout import MapArguments, MapLayout, few_map
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.planewise import written_planes
from waifu2x.backends.cuda.tensor.step import (
    BORDERS,
    LayerExtent,
    Range,
    SourceArguments,
    TensorStep,
    TensorTask,
    residual_macros,
)
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.backends.gpu.planewise import source_value_macros
from waifu2x.lowering.ops.planewise import PlanewiseStep
from waifu2x.lowering.values import View

_THREADS = 256


class GatherStep(TensorStep[PlanewiseStep]):
    """A planewise step of any kind, computed value by value."""

    def launch(self, task: TensorTask) -> Launch:
        step, box, grid = self.step, task.boxes[self.number], task.grid
        view = step.residual
        target = self._layout(step.target.value)
        planes, written = written_planes(self.program, step)
        if target is None:
            values = written = planes
        else:
            values = VECTOR_VALUES if (step.target.plane | written) % VECTOR_VALUES == 0 else 1
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "VALUES": values,
            "PLANES": planes,
            "WRITTEN": written,
            **source_value_macros(self.program, step),
            "FACTORS": len(step.vectors_read),
            "TERMS": self.context.terms,
            "ADDED": int(view is not None),
            "ZERO": int(self.reaches_out(step.target.value, box, task)),
            **self._source_macros(task),
            **join_macro(step.join, 2),
        }
        is_result = step.target.value == self.program.result
        if target is None:
            chosen["PIXEL"] = 8 * task.batch.target.dtype.itemsize if is_result else 0
            chosen["OUT_PLANES"] = self.program.values[step.target.value].planes
            chosen["PART"] = step.target.plane
        else:
            chosen["OUT_GROUP"] = target.group
            chosen["OUT_STORED"] = target.stored
            chosen["EACH"] = target.parts[step.target.part]
            chosen["PART"] = target.start(step.target.part) + step.target.plane
            chosen["S2D"] = target.space_to_depth
        layout = None if view is None else self._layout(view.value)
        if view is not None and layout is not None:
            chosen |= residual_macros(layout, view)
        rows, columns = task.batch.sizes[step.source.value]
        fields = {
            **self._source(task),
            **self._target(task),
            "residual": None if view is None else task.address(view.value),
            "added": None if view is None else self._map(task, view),
            "factors": self.vector(task, next(iter(step.vectors_read), None)),
            "factors_each": task.vectors.vectors_each,
            "factor": step.factor,
            "flags": task.check.flags,
            "beyond": task.check.beyond,
            "extent": LayerExtent(
                box.height, box.width, across=grid.across, pictures=grid.pictures
            ),
            "rows": rows,
            "columns": columns,
            "top": box.top,
            "left": box.left,
            "offset": step.source.offset,
            "added_offset": view.offset if view else 0,
        }
        blocks = (-(-box.width * (written // values) // _THREADS), box.height, grid.pictures)
        return self.launch_with(KernelSpec("tensor_gather", chosen, _THREADS), blocks, fields)

    def _layout(self, value: int) -> MapLayout | None:
        """Returns a value's layout if it is a map of many planes."""
        layout = self.layouts[value]
        is_map = 0 < value < self.program.result and isinstance(layout, MapLayout)
        return layout if is_map and isinstance(layout, MapLayout) else None

    def _source_macros(self, task: TensorTask) -> dict[str, str | int]:
        view = self.step.source
        layout = self._layout(view.value)
        if layout is not None:
            return {
                "IN_PIXEL": 0,
                "IN_GROUP": layout.group,
                "IN_STORED": layout.stored,
                "IN_EACH": layout.parts[view.first],
                "IN_S2D": layout.space_to_depth,
                "IN_PART": layout.start(view.first),
            }
        is_picture = view.value == 0
        return {
            "IN_PIXEL": 8 * task.batch.source.dtype.itemsize if is_picture else 0,
            "IN_PLANES": self.program.values[view.value].planes,
            "BORDER": BORDERS[self.program.model.border] if is_picture else 0,
        }

    def _source(self, task: TensorTask) -> dict[str, Any]:
        """Returns the fields of its source: pixels, or a map."""
        view = self.step.source
        if view.value == 0:
            source = task.batch.source
            pixels = SourceArguments(*source.shape[1:3], 0, 0, self.program.model.padding)
            return {"in": source.buffer, "source": pixels, "from": None}
        held = task.places[view.value].box
        pixels = SourceArguments(held.height, held.width, held.top, held.left, 0)
        return {"in": task.address(view.value), "source": pixels, "from": self._map(task, view)}

    def _map(self, task: TensorTask, view: View) -> MapArguments:
        """Returns the arguments of the map that a view reads."""
        held, layout = task.places[view.value].box, self._layout(view.value)
        if layout is not None:
            return layout.arguments(held, task.grid, held.top, held.left)
        return few_map(held)

    def _target(self, task: TensorTask) -> dict[str, Any]:
        """Returns the fields of its target."""
        value, batch = self.step.target.value, task.batch
        rows, columns = batch.sizes[value]
        if value == self.program.result:
            held, wanted = batch.target_box, batch.tile
            size = batch.target.shape[1:3]
            place = {
                "out": batch.target.buffer,
                "to": MapArguments(size[1], 0, held.top, held.left, *size),
            }
        else:
            wanted = task.places[value].box
            place = {"out": task.address(value), "to": self._map(task, View(value))}
        return {
            **place,
            "target_rows": rows,
            "target_columns": columns,
            "valid": Range(0, 0, rows, columns),
            "stored": Range(wanted.top, wanted.left, wanted.bottom, wanted.right),
        }
