"""Defines the steps of layer norm, over the planes of each pixel, and of group norm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import Checker, InnerVectorStep, Levels, MapStep
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class NormPlanes(MapStep):
    """(source - mean) / sqrt(variance + eps) * weight + bias, over the planes of each pixel.

    The source is a view of one part, other than the picture; both it and the target are stored by
    single pixels, and the target is not the result.
    """

    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    eps: float
    is_inner = True

    @property
    def label(self) -> str:
        return f"norm of {len(self.weight)}"

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        source = read(self.source)
        centred = source - source.mean()
        made: NDArray[np.float64] = centred / np.sqrt((centred**2).mean() + self.eps)
        return made * self.weight + self.bias

    def check(self, check: Checker) -> None:
        planes = check.program.planes_read(self.source)
        check.shaped(planes, weight=self.weight, bias=self.bias)
        check.must(self.eps > 0, "eps", f"{self.eps}")
        check.plain_part(self.source)
        check.single(self.target)


@dataclass(frozen=True, eq=False)
class NormVector(InnerVectorStep):
    """Makes the factors of a group norm, weight / sqrt(variance + eps), or with `shifts` its
    shifts, bias - mean * factor, from the means of planes and of their squares.

    Mean and variance are over all pixels of a group of consecutive planes; `source` has the
    planes' means.
    """

    squares: int
    """The vector of the means of their squares."""
    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    groups: int
    eps: float
    shifts: bool
    label = "norm"

    @property
    def vectors_read(self) -> tuple[int, ...]:
        return self.source, self.squares

    def check(self, check: Checker) -> None:
        sizes = check.program.vectors
        size = sizes[self.vector] if 0 <= self.vector < len(sizes) else 0
        for field in ("source", "squares"):
            vector = getattr(self, field)
            there = vector in check.vectors and sizes[vector] == size
            check.must(there, field, f"{vector} is not written yet, or of another size")
        check.shaped(size, weight=self.weight, bias=self.bias)
        check.must(self.groups >= 1 and size % self.groups == 0, "groups", f"{self.groups}")

    def made(self, *vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        plane_means, squares = vectors
        by_group = plane_means.reshape(self.groups, -1)
        mean = by_group.mean(axis=1, keepdims=True)
        # Variances within planes, then between them: no more bits cancel than in the vectors.
        inner = (squares - plane_means**2).reshape(self.groups, -1).mean(axis=1, keepdims=True)
        variance = np.maximum(inner + ((by_group - mean) ** 2).mean(axis=1, keepdims=True), 0)
        factors = self.weight.reshape(self.groups, -1) / np.sqrt(variance + self.eps)
        if self.shifts:
            return np.asarray(self.bias - (mean * factors).ravel(), np.float64)
        return np.asarray(factors.ravel(), np.float64)
