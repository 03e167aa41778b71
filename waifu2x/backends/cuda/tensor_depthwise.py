"""Depthwise convolutions between maps of matrix units, by `kernels/tensor_depthwise.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor_activation import activation_macro
from waifu2x.backends.cuda.tensor_layout import (
    COLUMNS_BEYOND,
    FewLayout,
    MapArguments,
    MapLayout,
)
from waifu2x.backends.cuda.tensor_pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor_step import LayerExtent, Range, Task, TensorStep
from waifu2x.backends.gpu.launch import Launch
from waifu2x.lowering.conv_steps import Depthwise
from waifu2x.lowering.steps import Program
from waifu2x.lowering.values import View

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_THREADS = 128
_LINE = 4


class DepthwiseArguments(NamedTuple):
    """`Depthwise` in `kernels/tensor_depthwise.cu`."""

    source: Address
    target: Address
    residual: Address
    weights: Address
    epilogue: Address
    flags: Address
    source_map: MapArguments
    target_map: MapArguments
    residual_map: MapArguments
    extent: LayerExtent
    valid: Range
    beyond: int


class TensorDepthwiseStep(TensorStep):
    """A convolution of each plane with a kernel of its own."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, Depthwise)
        source, target = layouts[step.source.value], layouts[step.target.value]
        assert isinstance(source, MapLayout)
        assert isinstance(target, MapLayout)
        self._step, self._source, self._target = step, source, target
        self._layouts = layouts
        self._written = target.parts[step.target.part]

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, source, target = self._step, self._source, self._target
        box, grid, written = task.boxes[self.number], task.grid, self._written
        held = task.places[step.target.value].box
        vectors = next(n for n in (8, 4, 1) if written % (VECTOR_VALUES * n) == 0)
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "VECTORS": vectors,
            "LINE": _LINE,
            "COLUMNS_BEYOND": COLUMNS_BEYOND,
            "TAPS": step.taps,
            "PLANES": len(step.weight),
            "WRITTEN": written,
            "GROUP": source.group,
            "STORED": source.stored,
            "IN_PART": source.start(step.source.first),
            "TERMS": source.terms,
            "MULTIPLIED": int(step.multiplied),
            "RESIDUAL": int(step.residual is not None),
            "OUT_GROUP": target.group,
            "OUT_STORED": target.stored,
            "EACH": written,
            "PART": target.start(step.target.part),
            "S2D": 1,
            "ZERO": int(self.reaches_out(step.target.value, box, task)),
            **activation_macro(step.activation, source.terms),
        }
        residual, added = Address(0), MapArguments()
        if step.residual is not None:
            layout = self._layouts[step.residual.value]
            assert isinstance(layout, MapLayout)
            residual, added = task.address(step.residual.value), self._seen(task, step.residual)
            chosen |= {
                "RESIDUAL_GROUP": layout.group,
                "RESIDUAL_STORED": layout.stored,
                "RESIDUAL_PART": layout.start(step.residual.first),
            }
        rows, columns = task.batch.sizes[step.target.value]
        arguments = DepthwiseArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            residual,
            self.uploaded("weights", self._weights),
            self.uploaded("epilogue", self._epilogue),
            task.check.flags,
            self._seen(task, step.source),
            target.arguments(held, grid, box.top - held.top, box.left - held.left),
            added,
            LayerExtent(box.height, box.width, across=grid.across, pictures=grid.pictures),
            Range(-box.top, -box.left, rows - box.top, columns - box.left),
            task.check.beyond,
        )
        columns_each = _THREADS // vectors * _LINE
        parts = written // (VECTOR_VALUES * vectors)
        blocks = (-(-box.width // columns_each), box.height, parts * grid.pictures)
        kernel = ("tensor_depthwise", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))

    def _seen(self, task: Task, view: View) -> MapArguments:
        """A map that a view reads, from the target's first pixel on."""
        layout, held = self._layouts[view.value], task.places[view.value].box
        assert isinstance(layout, MapLayout)
        box = task.boxes[self.number]
        top, left = box.top + view.offset - held.top, box.left + view.offset - held.left
        return layout.arguments(held, task.grid, top, left)

    def _weights(self) -> NDArray[np.float32]:
        weight = self._step.weight
        made = np.zeros((self._step.taps**2, self._written), np.float32)
        made[:, : len(weight)] = weight.reshape(len(weight), -1).T
        return made

    def _epilogue(self) -> NDArray[np.float32]:
        step = self._step
        made = np.zeros((2, self._written), np.float32)
        made[:, : len(step.weight)] = step.bias, step.activation.slopes
        return made
