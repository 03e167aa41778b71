"""Activations: the functions behind a layer's sums, plane by plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.expressions import LEAKY, Expression, evaluate, has_parameter
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Activation:
    """A function of a layer's sums, with a parameter for each plane."""

    function: Expression
    """One of `expressions.ACTIVATIONS`, or any other."""
    slopes: NDArray[np.float32]
    """(planes,): the function's parameter. With LEAKY 1 leaves x as it is, 0 is ReLU; it may exceed
    1 or be negative."""

    def __call__(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the function of sums whose last axis is the planes."""
        return evaluate(self.function, sums, self.slopes)

    @property
    def has_slopes(self) -> bool:
        """Returns whether the function depends on the slopes."""
        return has_parameter(self.function)

    @property
    def is_linear(self) -> bool:
        """Returns whether the function leaves every value as it is."""
        return self.function == LEAKY and bool((self.slopes == 1).all())


def leaky(slope: float, planes: int) -> Activation:
    """Returns a leaky ReLU with one slope for all planes; 1 is the identity, 0 ReLU."""
    return Activation(LEAKY, np.full(planes, slope, np.float32))


def elementwise(function: Expression, planes: int) -> Activation:
    """Returns an activation without a parameter."""
    return Activation(function, np.ones(planes, np.float32))
