"""The kinds of values of an ONNX graph while it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


MapSize = tuple[Lengths, Lengths]
"""Rows and columns."""


def map_size(of: Iterable[Sequence[int]]) -> MapSize:
    """Returns rows and columns as MapSize."""
    rows, columns = map(lengths, of)
    return rows, columns


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
        """Returns whether values stay as they are."""
        return self.function is None and set(self.factors) == {1.0} and set(self.shifts) == {0.0}


NOTHING = PendingFunction()


@dataclass(frozen=True)
class MapValue:
    """A map of the graph, 1 x planes x rows x columns; or a vector, 1 x planes x 1 x 1."""

    value: int
    """Its number in the GraphBuilder."""
    size: MapSize
    pending: PendingFunction = NOTHING
    pad: int = 0
    """Zeros around it that the next convolution is to read."""
    cuts: tuple[Lengths, Lengths, Lengths, Lengths] = ((0, 0, 0),) * 4
    """Pixels to be cut off above, below, on the left and on the right."""
    is_trimmed: bool = False
    """Whether the padding to a multiple is cut off already, which only the result is."""

    @property
    def is_plain(self) -> bool:
        """Returns whether nothing is left to be done to it."""
        return self.pending.is_nothing and not self.pad and not any(map(any, self.cuts))

    @property
    def shown(self) -> MapSize:
        """Its size as the file counts it, with padding and without what is cut off."""
        return map_size(
            [n + 2 * self.pad - a - b for n, a, b in zip(each, before, behind, strict=True)]
            for each, before, behind in zip(self.size, self.cuts[::2], self.cuts[1::2], strict=True)
        )

    def made(self, value: int, length: Callable[[int], int]) -> MapValue:
        """Returns the map of a layer that makes `length(n)` rows, or columns, of `n`."""
        size = map_size([length(n) for n in each] for each in self.shown)
        return MapValue(value, size, is_trimmed=self.is_trimmed)


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
