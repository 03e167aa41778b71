"""Steps that are norms, or parts of them: over the planes of each pixel, over groups of planes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.values import Target, View
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class NormPlanes:
    """(source - mean) / sqrt(variance + eps) * weight + bias, over the planes of each pixel.

    The source is a view of one part, other than the picture; both it and the target are stored by
    single pixels, and the target is not the result.
    """

    node: int
    source: View
    target: Target
    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    eps: float


@dataclass(frozen=True, eq=False)
class NormVector:
    """What a norm over groups of planes multiplies each plane by, weight / sqrt(variance + eps), or
    with `shifts` what it adds then, bias - mean * that: on vectors.

    Mean and variance are those of all values of a group of neighbouring planes.
    """

    node: int
    source: int
    """The vector of the planes' means."""
    squares: int
    """The vector of the means of their squares."""
    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    groups: int
    eps: float
    shifts: bool
    vector: int

    def made(
        self, plane_means: NDArray[np.float64], squares: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The vector, (planes,)."""
        by_group = plane_means.reshape(self.groups, -1)
        mean = by_group.mean(axis=1, keepdims=True)
        # Of each plane, then among them: no more is lost than the vectors have lost.
        inner = (squares - plane_means**2).reshape(self.groups, -1).mean(axis=1, keepdims=True)
        variance = np.maximum(inner + ((by_group - mean) ** 2).mean(axis=1, keepdims=True), 0)
        factors = self.weight.reshape(self.groups, -1) / np.sqrt(variance + self.eps)
        if self.shifts:
            return np.asarray(self.bias - (mean * factors).ravel(), np.float64)
        return np.asarray(factors.ravel(), np.float64)
