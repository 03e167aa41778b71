"""Planewise steps that are not of whole vectors, by `kernels/tensor_gather.cu`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from waifu2x.backends.cuda.arguments import Address, address_of, structs
from waifu2x.backends.cuda.tensor.cells import residual_macros
from waifu2x.backends.cuda.tensor.layout import MapArguments, MapLayout, few_map
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.planewise import AnyPlanewiseStep, written_planes
from waifu2x.backends.cuda.tensor.step import (
    BORDERS,
    LayerExtent,
    Range,
    SourceArguments,
    Task,
)
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.lowering.ops.planewise import Planewise, PoolMaxima, Resize
from waifu2x.lowering.values import View
from waifu2x.networks.expressions import GATE, MULTIPLY

_THREADS = 256


class GatherArguments(NamedTuple):
    """`Gather` in `kernels/tensor_gather.cu`."""

    source: Address
    target: Address
    residual: Address
    factors: Address
    flags: Address
    pixels: SourceArguments
    source_map: MapArguments
    target_map: MapArguments
    residual_map: MapArguments
    extent: LayerExtent
    rows: int
    columns: int
    target_rows: int
    target_columns: int
    valid: Range
    stored: Range
    top: int
    left: int
    offset: int
    residual_offset: int
    factors_each: int
    factor: np.float32
    beyond: int


class GatherStep(AnyPlanewiseStep):
    """A planewise step of any kind, value by value."""

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, box = self._step, task.boxes[self.number]
        target = self._layout(step.target.value)
        planes, written = written_planes(self.program, step)
        if target is None:
            values = written = planes
        else:
            values = VECTOR_VALUES if (step.target.plane | written) % VECTOR_VALUES == 0 else 1
        resize = step if isinstance(step, Resize) else None
        bicubic = resize if resize and resize.taps == "bicubic" else None
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "VALUES": values,
            "PLANES": planes,
            "WRITTEN": written,
            "ENLARGE": step.source.enlarge,
            "STEP_D2S": step.depth_to_space if isinstance(step, Planewise) else 1,
            "STEP_S2D": step.space_to_depth if isinstance(step, Planewise) else 1,
            "UP": bicubic.up if bicubic else 1,
            "DOWN": bicubic.down if bicubic else 1,
            "BILINEAR": int(resize is not bicubic),
            "POOL": step.kernel if isinstance(step, PoolMaxima) else 0,
            "POOL_STEP": step.stride if isinstance(step, PoolMaxima) else 1,
            "FACTORS": len(step.vectors_read),
            "GATE": 2 if step.join == MULTIPLY else int(step.join == GATE),
            "TERMS": self._terms,
            "ADDED": int(self._residual is not None),
            "ZERO": int(self.reaches_out(step.target.value, box, task)),
            **self._source_macros(task),
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
        residual, added = Address(0), MapArguments()
        if self._residual is not None:
            residual, added = task.address(self._residual.value), self._map(task, self._residual)
            layout = self._layout(self._residual.value)
            if layout is not None:
                chosen |= residual_macros(layout, self._residual)
        source, pixels, source_map = self._source(task)
        wanted, target_map = self._target(task)
        grid = task.grid
        arguments = GatherArguments(
            source,
            address_of(task.batch.target.buffer) if is_result else task.address(step.target.value),
            residual,
            self.factors(task),
            task.check.flags,
            pixels,
            source_map,
            target_map,
            added,
            LayerExtent(box.height, box.width, across=grid.across, pictures=grid.pictures),
            *task.batch.sizes[step.source.value],
            *task.batch.sizes[step.target.value],
            Range(0, 0, *task.batch.sizes[step.target.value]),
            wanted,
            box.top,
            box.left,
            step.source.offset,
            self._residual.offset if self._residual else 0,
            task.vectors.vectors_each,
            np.float32(step.factor),
            task.check.beyond,
        )
        blocks = (-(-box.width * (written // values) // _THREADS), box.height, grid.pictures)
        kernel = ("tensor_gather", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))

    def _layout(self, value: int) -> MapLayout | None:
        """A value's layout if it is a map of many planes."""
        layout = self._layouts[value]
        is_map = 0 < value < self.program.result and isinstance(layout, MapLayout)
        return layout if is_map and isinstance(layout, MapLayout) else None

    def _source_macros(self, task: Task) -> dict[str, str | int]:
        view = self._step.source
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

    def _source(self, task: Task) -> tuple[Address, SourceArguments, MapArguments]:
        """Where it reads: pixels, or a map."""
        view = self._step.source
        if view.value == 0:
            source = task.batch.source
            pixels = SourceArguments(*source.shape[1:3], 0, 0, self.program.model.padding)
            return address_of(source.buffer), pixels, MapArguments()
        held = task.places[view.value].box
        pixels = SourceArguments(held.height, held.width, held.top, held.left, 0)
        return task.address(view.value), pixels, self._map(task, view)

    def _map(self, task: Task, view: View) -> MapArguments:
        """A map that a view reads."""
        held, layout = task.places[view.value].box, self._layout(view.value)
        if layout is not None:
            return layout.arguments(held, task.grid, held.top, held.left)
        return few_map(held)

    def _target(self, task: Task) -> tuple[Range, MapArguments]:
        """The pixels that are wanted, and where they are stored."""
        value = self._step.target.value
        layout = self._layout(value)
        if value == self.program.result:
            held, wanted = task.batch.target_box, task.batch.tile
            rows, columns = task.batch.target.shape[1:3]
            found = MapArguments(columns, 0, held.top, held.left, rows, columns)
        else:
            held = wanted = task.places[value].box
            found = few_map(held)
            if layout is not None:
                found = layout.arguments(held, task.grid, held.top, held.left)
        return Range(wanted.top, wanted.left, wanted.bottom, wanted.right), found
