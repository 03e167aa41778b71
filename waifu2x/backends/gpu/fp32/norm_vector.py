"""Vectors of norms over groups of planes, of the fp32 executor, by `kernels/norm_vector.cl`."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.gpu.device.launch import Launch, plain
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, Macros, Runtime
from waifu2x.backends.gpu.executor import Batch
from waifu2x.backends.gpu.fp32.avg_pool import VectorLayout
from waifu2x.lowering.ops.norm import NormVector

_GROUP = 64


class Fp32NormVectorStep:
    """A vector made of the means of planes and of their squares, its weights on the device."""

    def __init__(self, runtime: Runtime, step: NormVector, layout: VectorLayout) -> None:
        """Raises BackendError, OutOfMemoryError."""
        vectors = (step.source, step.squares, step.vector)
        self._places = (*(layout.vectors[vector] for vector in vectors), layout.size // 4)
        self._planes = len(step.bias)
        self._group = runtime.limits.group(_GROUP)
        macros: Macros = {
            "GROUP": self._group,
            "PLANES": self._planes,
            "EACH": self._planes // step.groups,
            "EPS": f"{float(np.float32(step.eps))!r}f",
            "SHIFTS": int(step.shifts),
        }
        self._kernel = runtime.build("norm_vector", macros).kernel("norm_vector", self._group)
        weights = np.stack([step.weight, step.bias]).astype(np.float32)
        self._weights = runtime.allocate(weights.nbytes)
        runtime.upload(self._weights, weights)

    def owns(self, kernel: Kernel) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def launch(self, batch: Batch, vectors: Buffer) -> Launch:
        """Its launch."""
        groups = -(-self._planes // self._group), 1, batch.source.shape[0]
        return Launch(
            None, lambda: self._kernel, groups, lambda: plain(vectors, *self._places, self._weights)
        )

    def close(self) -> None:
        """Frees the weights."""
        self._weights.release()
