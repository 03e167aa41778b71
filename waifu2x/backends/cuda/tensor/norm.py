"""Norms over the planes of a pixel, between maps of matrix units, by `kernels/tensor_norm.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor.cells import CellStep
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.step import LayerExtent, Range, Task
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.program import Program

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_THREADS = 256
_VALUES = 32
"""Values of a thread, at once."""


class NormArguments(NamedTuple):
    """`Norm` in `kernels/tensor_norm.cu`."""

    source: Address
    target: Address
    weights: Address
    flags: Address
    source_map: MapArguments
    target_map: MapArguments
    extent: LayerExtent
    valid: Range
    beyond: int


class TensorNormStep(CellStep):
    """A norm over the planes of a pixel."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
    ) -> None:
        super().__init__(runtime, program, number, layouts)
        step = program.steps[number]
        assert isinstance(step, NormPlanes)
        self._step, self._source = step, self.layout(step.source.value)
        self._written = self.layout(step.target.value).parts[step.target.part]

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, source, written = self._step, self._source, self._written
        box, made = task.boxes[self.number], self.written(task, step.target)
        lanes = source.group // VECTOR_VALUES
        vectors = -(-written // (VECTOR_VALUES * lanes))
        repeats = max(1, _VALUES // (VECTOR_VALUES * vectors))
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "LANES": lanes,
            "VECTORS": vectors,
            "REPEATS": repeats,
            "PLANES": len(step.weight),
            "WRITTEN": written,
            "GROUP": source.group,
            "STORED": source.stored,
            "IN_PART": source.start(step.source.first),
            "EPS": f"{float(np.float32(step.eps))!r}f",
            "TERMS": source.terms,
            **made.macros,
        }
        arguments = NormArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            self.uploaded("weights", self._weights),
            task.check.flags,
            self.seen(task, step.source),
            made.arguments,
            made.extent,
            made.valid,
            task.check.beyond,
        )
        columns_each = _THREADS // lanes * repeats
        blocks = (-(-box.width // columns_each), box.height, task.grid.pictures)
        kernel = ("tensor_norm", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))

    def _weights(self) -> NDArray[np.float32]:
        step = self._step
        made = np.zeros((2, self._written), np.float32)
        made[:, : len(step.weight)] = step.weight, step.bias
        return made
