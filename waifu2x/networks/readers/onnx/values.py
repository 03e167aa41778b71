"""The kinds of values of an ONNX graph while it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.expressions import Expression
from waifu2x.system.lazy_dataclass import dataclass

PICTURES = ((64, 64), (96, 80), (65, 67))
"""Rows and columns of the pictures for which sizes are computed. A padding to a multiple changes at
the odd one alone."""
EVEN_PICTURES = ((64, 64), (96, 80), (128, 192))
"""For files that take pictures of some multiple alone, and do not pad."""

Lengths = tuple[int, int, int]
"""Rows, or columns, for each of three pictures."""


def lengths(of: Sequence[int]) -> Lengths:
    """Returns three numbers as Lengths."""
    first, second, third = of
    return first, second, third


@dataclass(frozen=True, eq=False)
class Constant:
    """Numbers that do not depend on the picture."""

    array: NDArray[Any]

    def of(self, picture: int) -> NDArray[Any]:
        """Returns the numbers for one of the three pictures."""
        return self.array


@dataclass(frozen=True, eq=False)
class Sizes:
    """Whole numbers that depend on the picture's size."""

    arrays: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
    """For each of the three pictures, all of one shape."""

    def of(self, picture: int) -> NDArray[Any]:
        """Returns the numbers for one of the three pictures."""
        return self.arrays[picture]


@dataclass(frozen=True)
class PendingFunction:
    """A function of each value that is not in the graph yet.

    function(x * factor + shift), or, without a function, that sum.
    """

    factors: tuple[float, ...] = (1.0,)
    """One, or one for each plane; so are the shifts."""
    shifts: tuple[float, ...] = (0.0,)
    function: Expression | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether values stay as they are."""
        return self.function is None and set(self.factors) == {1.0} and set(self.shifts) == {0.0}


NOTHING = PendingFunction()


@dataclass(frozen=True)
class MapValue:
    """A map of the graph, 1 x planes x rows x columns; or a vector, 1 x planes x 1 x 1."""

    value: int
    """Its number in the GraphBuilder."""
    rows: Lengths
    columns: Lengths
    pending: PendingFunction = NOTHING
    pad: int = 0
    """Zeros around it that the next convolution is to read."""
    cuts: tuple[Lengths, Lengths, Lengths, Lengths] = ((0, 0, 0),) * 4
    """Pixels to be cut off above, below, on the left and on the right."""
    is_trimmed: bool = False
    """Whether the padding to a multiple is cut off already, which only the result is."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing is left to be done to it."""
        return self.pending.is_nothing and not self.pad and not any(map(any, self.cuts))

    @property
    def shown_rows(self) -> Lengths:
        """Its rows as the file counts them, with padding and without what is cut off."""
        return _shown(self.rows, self.pad, self.cuts[0], self.cuts[1])

    @property
    def shown_columns(self) -> Lengths:
        """Its columns, counted in the same way."""
        return _shown(self.columns, self.pad, self.cuts[2], self.cuts[3])

    def made(self, value: int, length: Callable[[int], int]) -> MapValue:
        """Returns the map of a layer that makes `length(n)` rows, or columns, of `n`."""
        rows, columns = (
            lengths([length(n) for n in each]) for each in (self.shown_rows, self.shown_columns)
        )
        return MapValue(value, rows, columns, is_trimmed=self.is_trimmed)


def _shown(each: Lengths, pad: int, before: Lengths, behind: Lengths) -> Lengths:
    return lengths([n + 2 * pad - a - b for n, a, b in zip(each, before, behind, strict=True)])


@dataclass(frozen=True)
class DividedMap:
    """A map whose axes are divided, joined or in another order: part of a shuffle."""

    source: MapValue
    axes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    """The factors that planes, rows and columns of the source are divided into, the outermost
    first. A factor is an index of `lengths`."""
    dims: tuple[tuple[int, ...], ...]
    """The axes of the view, each made of factors."""
    lengths: tuple[Lengths, ...]

    def shape(self, picture: int) -> tuple[int, ...]:
        """Returns its shape for one of the three pictures."""
        return tuple(
            int(np.prod([self.lengths[factor][picture] for factor in dim], dtype=np.int64))
            for dim in self.dims
        )


NormStage = Literal["mean", "centred", "squared", "variance", "spread", "deviation", "inverse"]


@dataclass(frozen=True)
class NormPart:
    """A step on the way to a norm over the planes of each pixel, and nothing that a graph has."""

    source: DividedMap
    """The map that is normed."""
    stage: NormStage
    """mean; source - mean; its square; the square's mean; that and eps; the root; 1 / root."""
    eps: float = 0.0


Value = Constant | Sizes | MapValue | DividedMap | NormPart
