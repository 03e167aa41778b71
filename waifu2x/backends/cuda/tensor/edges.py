"""The edges of a picture that a convolution resizes, by `kernels/tensor_edges.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import structs
from waifu2x.backends.cuda.tensor.conv import TensorConvArguments, TensorConvStep
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapLayout
from waifu2x.backends.cuda.tensor.pack import placed
from waifu2x.backends.cuda.tensor.step import LayerExtent, Task, TensorStep
from waifu2x.backends.gpu.device.launch import Arguments, Launch
from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.program import Program

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_WARPS = 8
_THREADS = _WARPS * 32


class TensorEdgesStep(TensorStep):
    """The first and last rows and columns of what the last step makes, after it."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        layouts: Sequence[MapLayout | FewLayout],
        last: TensorConvStep,
    ) -> None:
        super().__init__(runtime, program, last.number)
        step = program.steps[last.number]
        assert isinstance(step, Conv)
        assert step.resized is not None
        source = layouts[step.source.value]
        assert isinstance(source, MapLayout)
        self._step, self._resized, self._source, self._last = step, step.resized, source, last

    def launch(self, task: Task) -> Launch:
        """The launch for the edges in what a task computes."""
        step, last, source = self._step, self._last, self._source
        box, held = last.computed(task), task.places[step.source.value].box
        top, left = box.top + step.source.offset, box.left + step.source.offset
        read = source.arguments(held, task.grid, top - held.top, left - held.left)
        across, _, pictures = task.grid
        extent = LayerExtent(box.height, box.width, across=across, pictures=pictures)
        chosen: Macros = {
            "IN_PLANES": self._inputs,
            "GROUP": source.group,
            "SIDE": step.taps,
            "TERMS": 1,
            "THREADS": _THREADS,
            "PLANES": step.out_planes // step.depth_to_space**2,
            "PIXEL": 8 * task.batch.target.dtype.itemsize,
            "RESIDUAL": int(step.residual is not None),
            "STACK": int(pictures > 1),
            **last.picture_macros(task),
        }

        def arguments() -> Arguments:
            return structs(
                TensorConvArguments(
                    task.address(step.source.value),
                    self.uploaded("weights", self._weights),
                    self.uploaded("biases", lambda: self._resized.bias),
                    last.target_address(task),
                    *last.stores(task, box, read, extent),
                )
            )

        rows, columns = task.batch.sizes[step.target.value]
        blocks = (-(-2 * (rows + columns) // _WARPS), 1, pictures)
        return self.launch_of(("tensor_edges", chosen), _THREADS, 0, blocks, arguments)

    @property
    def _inputs(self) -> int:
        return self._source.parts[self._step.source.first]

    def _weights(self) -> NDArray[np.float32]:
        """[row][column][tap][plane][input], by kinds of rows and columns."""
        weight = self._resized.weight
        cut = weight.reshape(*weight.shape[:4], -1).transpose(0, 1, 4, 2, 3)
        return placed(cut, 4, self._last.input_places, self._inputs)
