"""Activations: the functions behind a layer's sums, plane by plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

ActivationKind = Literal["leaky", "sigmoid", "silu"]


@dataclass(frozen=True, eq=False)
class Activation:
    """What follows a sum x, plane by plane.

    leaky: x if it is above 0, else x * slope. sigmoid: 1 / (1 + exp(-x)). silu: x * sigmoid(x).
    """

    kind: ActivationKind
    slopes: NDArray[np.float32]
    """(planes,) of `leaky`: 1 leaves x as it is, 0 is ReLU; it may exceed 1 or be negative. Of no
    meaning to others."""

    @property
    def code(self) -> int:
        """How kernels know its kind."""
        return get_args(ActivationKind).index(self.kind)

    def __call__(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of sums whose last axis is the planes."""
        if self.kind == "leaky":
            return np.where(sums > 0, sums, sums * self.slopes)
        gate = sigmoid(sums)
        return gate if self.kind == "sigmoid" else sums * gate

    @property
    def is_linear(self) -> bool:
        """Whether it leaves every value as it is."""
        return self.kind == "leaky" and bool((self.slopes == 1).all())


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), which no x overflows."""
    result: NDArray[np.float64] = np.exp(-np.logaddexp(0, -values))
    return result


def leaky(slope: float, planes: int) -> Activation:
    """Leaky ReLU with one slope; 1 for none."""
    return Activation("leaky", np.full(planes, slope, np.float32))
