"""Runs layer norm on 16-bit maps, by `kernels/tensor_norm.cu`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.step import TensorStep, TensorTask
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.backends.gpu.device.source import float_text
from waifu2x.lowering.ops.norm import NormPlanes

_THREADS = 256
_VALUES = 32
"""The values that a thread holds at once."""


class TensorNormStep(TensorStep[NormPlanes]):
    """A layer norm, over the planes of a pixel."""

    def launch(self, task: TensorTask) -> Launch:
        step, box = self.step, task.boxes[self.number]
        source = self.layout(step.source.value)
        written = self.layout(step.target.value).parts[step.target.part]
        read, made = self.read(task, step.source), self.written(task, step.target)
        lanes = source.group // VECTOR_VALUES
        vectors = -(-written // (VECTOR_VALUES * lanes))
        repeats = max(1, _VALUES // (VECTOR_VALUES * vectors))
        macros = {
            "THREADS": _THREADS,
            "LANES": lanes,
            "VECTORS": vectors,
            "REPEATS": repeats,
            "PLANES": len(step.weight),
            "WRITTEN": written,
            "IN_PART": source.start(step.source.first),
            "EPS": float_text(step.eps),
            **read.macros,
            **made.macros,
        }

        def weights() -> NDArray[np.float32]:
            packed = np.zeros((2, written), np.float32)
            packed[:, : len(step.weight)] = step.weight, step.bias
            return packed

        across = -(-box.width // (_THREADS // lanes * repeats))
        blocks = across, box.height, task.grid.pictures
        own = {"weights": self.uploaded("weights", weights)}
        spec = KernelSpec("tensor_norm", macros, _THREADS)
        return self.launch_with(spec, blocks, {**read.fields, **made.fields, **own})
