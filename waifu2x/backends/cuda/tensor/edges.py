"""Computes the edges of a result that a convolution resizes, by `kernels/tensor_edges.cu`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.tensor.conv import TensorConvStep
from waifu2x.backends.cuda.tensor.pack import placed
from waifu2x.backends.cuda.tensor.step import LayerExtent, TensorContext, TensorStep, TensorTask
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.lowering.ops.conv import Conv

_WARPS = 8
_THREADS = _WARPS * 32


class TensorEdgesStep(TensorStep[Conv]):
    """Computes the first and last rows and columns of the last step's result, after that step."""

    def __init__(self, context: TensorContext, last: TensorConvStep) -> None:
        super().__init__(context, last.number)
        assert self.step.resized is not None
        self._resized, self._last = self.step.resized, last

    def launch(self, task: TensorTask) -> Launch:
        step, last, source = self.step, self._last, self.layout(self.step.source.value)
        box, held = last.computed(task), task.places[step.source.value].box
        top, left = box.top + step.source.offset, box.left + step.source.offset
        read = source.arguments(held, task.grid, top - held.top, left - held.left)
        across, _, pictures = task.grid
        extent = LayerExtent(box.height, box.width, across=across, pictures=pictures)
        macros = {
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
        fields = {
            "in": task.address(step.source.value),
            "weights": self.uploaded("weights", self._weights),
            "epilogue": self.uploaded("biases", lambda: self._resized.bias),
            **last.stores(task, box, read, extent),
        }
        rows, columns = task.batch.sizes[step.target.value]
        blocks = -(-2 * (rows + columns) // _WARPS), 1, pictures
        return self.launch_with(KernelSpec("tensor_edges", macros, _THREADS), blocks, fields)

    @property
    def _inputs(self) -> int:
        source = self.step.source
        return self.layout(source.value).parts[source.first]

    def _weights(self) -> NDArray[np.float32]:
        """Returns the weights [row][column][tap][plane][input], by kinds of rows and columns."""
        weight = self._resized.weight
        cut = weight.reshape(*weight.shape[:4], -1).transpose(0, 1, 4, 2, 3)
        return placed(cut, 4, self._last.input_places, self._inputs)
