"""Runs depthwise convolutions on 16-bit maps, by `kernels/tensor_depthwise.cu`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.tensor.activation import activation_macro, join_macro
from waifu2x.backends.cuda.tensor.layout import COLUMNS_BEYOND
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES, vectors_of
from waifu2x.backends.cuda.tensor.step import TensorStep, TensorTask
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.lowering.ops.conv import Depthwise

_THREADS = 128
_LINE = 4


class TensorDepthwiseStep(TensorStep[Depthwise]):
    """A depthwise convolution."""

    def launch(self, task: TensorTask) -> Launch:
        step, box = self.step, task.boxes[self.number]
        written = self.layout(step.target.value).parts[step.target.part]
        vectors, source = vectors_of(written), self.layout(step.source.value)
        read, made = self.read(task, step.source), self.written(task, step.target)
        added = self.added(task, step.residual)
        macros: dict[str, str | int] = {
            "THREADS": _THREADS,
            "VECTORS": vectors,
            "LINE": _LINE,
            "COLUMNS_BEYOND": COLUMNS_BEYOND,
            "TAPS": step.taps,
            "PLANES": len(step.weight),
            "WRITTEN": written,
            "IN_PART": source.start(step.source.first),
            **read.macros,
            **made.macros,
            **added.macros,
            **activation_macro(step.activation, source.terms),
            **join_macro(step.join, 2),
        }

        def weights() -> NDArray[np.float32]:
            packed = np.zeros((step.taps**2, written), np.float32)
            packed[:, : len(step.weight)] = step.weight.reshape(len(step.weight), -1).T
            return packed

        def epilogue() -> NDArray[np.float32]:
            packed = np.zeros((2, written), np.float32)
            packed[:, : len(step.weight)] = step.bias, step.activation.slopes
            return packed

        own = {
            "weights": self.uploaded("weights", weights),
            "epilogue": self.uploaded("epilogue", epilogue),
        }
        parts = written // (VECTOR_VALUES * vectors)
        across = -(-box.width // (_THREADS // vectors * _LINE))
        blocks = across, box.height, parts * task.grid.pictures
        spec = KernelSpec("tensor_depthwise", macros, _THREADS)
        return self.launch_with(spec, blocks, {**read.fields, **made.fields, **added.fields, **own})
