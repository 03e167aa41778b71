"""Defines the steps that make vectors: global average pools, and linear layers on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import Checker, InnerVectorStep, PictureSum
from waifu2x.networks.activations import Activation
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GlobalAvgPool(PictureSum):
    """Averages each plane of a value, or its squares, over all pixels, into a vector."""

    squared: bool = False
    label = "mean"

    def check(self, check: Checker) -> None:
        check.whole("source", self.source)
        check.vector_of(self.vector, check.program.planes_read(self.source))


@dataclass(frozen=True, eq=False)
class Linear(InnerVectorStep):
    """activation(weight @ source + bias), on vectors."""

    weight: NDArray[np.float32]
    """(out, in)."""
    bias: NDArray[np.float32]
    activation: Activation
    label = "linear"

    def made(self, *vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        # Not by BLAS, whose sums depend on the machine.
        return self.activation((self.weight * vectors[0]).sum(axis=1) + self.bias)

    def check(self, check: Checker) -> None:
        check.written("source", self.source)
        vectors = check.program.vectors
        wanted = (*vectors[self.vector : self.vector + 1], vectors[self.source])
        check.must(self.weight.shape == wanted, "weight", f"{self.weight.shape}, not {wanted}")
        check.shaped(wanted[0], bias=self.bias, activation=self.activation.slopes)
