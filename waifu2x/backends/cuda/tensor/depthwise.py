"""Depthwise convolutions between maps of matrix units, by `kernels/tensor_depthwise.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor.activation import activation_macro
from waifu2x.backends.cuda.tensor.cells import CellStep, residual_macros
from waifu2x.backends.cuda.tensor.layout import (
    COLUMNS_BEYOND,
    FewLayout,
    MapArguments,
    MapLayout,
)
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.step import LayerExtent, Range, Task
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.lowering.ops.conv import Depthwise
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import MULTIPLY

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


class TensorDepthwiseStep(CellStep):
    """A convolution of each plane with a kernel of its own."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
    ) -> None:
        super().__init__(runtime, program, number, layouts)
        step = program.steps[number]
        assert isinstance(step, Depthwise)
        self._step, self._source = step, self.layout(step.source.value)
        self._written = self.layout(step.target.value).parts[step.target.part]

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, source, written = self._step, self._source, self._written
        box, made = task.boxes[self.number], self.written(task, step.target)
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
            "MULTIPLIED": int(step.join == MULTIPLY),
            **made.macros,
            **activation_macro(step.activation, source.terms),
        }
        residual, added = Address(0), MapArguments()
        if step.residual is not None:
            residual, added = task.address(step.residual.value), self.seen(task, step.residual)
            chosen |= residual_macros(self.layout(step.residual.value), step.residual)
            chosen["RESIDUAL"] = 1
        arguments = DepthwiseArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            residual,
            self.uploaded("weights", self._weights),
            self.uploaded("epilogue", self._epilogue),
            task.check.flags,
            self.seen(task, step.source),
            made.arguments,
            added,
            made.extent,
            made.valid,
            task.check.beyond,
        )
        columns_each = _THREADS // vectors * _LINE
        parts = written // (VECTOR_VALUES * vectors)
        blocks = (-(-box.width // columns_each), box.height, parts * task.grid.pictures)
        kernel = ("tensor_depthwise", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))

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
