"""Norms over the planes of a pixel, between maps of matrix units, by `kernels/tensor_norm.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor_layout import FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor_pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor_step import LayerExtent, Range, Task, TensorStep
from waifu2x.backends.gpu.launch import Launch
from waifu2x.lowering.norm_steps import NormPlanes
from waifu2x.lowering.steps import Program

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


class TensorNormStep(TensorStep):
    """A norm over the planes of a pixel."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, NormPlanes)
        source, target = layouts[step.source.value], layouts[step.target.value]
        assert isinstance(source, MapLayout)
        assert isinstance(target, MapLayout)
        self._step, self._source, self._target = step, source, target

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, source, target = self._step, self._source, self._target
        box = task.boxes[self.number]
        read, held = task.places[step.source.value].box, task.places[step.target.value].box
        written = target.parts[step.target.part]
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
            "OUT_GROUP": target.group,
            "OUT_STORED": target.stored,
            "EACH": written,
            "PART": target.start(step.target.part),
            "S2D": 1,
            "RESIDUAL": 0,
            "ZERO": int(self.reaches_out(step.target.value, box, task)),
        }
        offset, grid = step.source.offset, task.grid
        rows, columns = task.batch.sizes[step.target.value]
        top, left = box.top + offset - read.top, box.left + offset - read.left
        arguments = NormArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            self.uploaded("weights", self._weights),
            task.check.flags,
            source.arguments(read, grid, top, left),
            target.arguments(held, grid, box.top - held.top, box.left - held.left),
            LayerExtent(box.height, box.width, across=grid.across, pictures=grid.pictures),
            Range(-box.top, -box.left, rows - box.top, columns - box.left),
            task.check.beyond,
        )
        columns_each = _THREADS // lanes * repeats
        blocks = (-(-box.width // columns_each), box.height, grid.pictures)
        kernel = ("tensor_norm", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))

    def _weights(self) -> NDArray[np.float32]:
        step = self._step
        made = np.zeros((2, self._target.parts[step.target.part]), np.float32)
        made[:, : len(step.weight)] = step.weight, step.bias
        return made
