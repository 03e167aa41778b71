"""Steps of attention: in windows of pixels, and between planes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.values import Target, View
from waifu2x.networks.windows import Windows
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class AttendWindows:
    """Attention in windows, as `networks.attention.WindowAttention` defines it.

    Its maps are whole values of one part, stored by single pixels, other than the picture. It is
    computed by whole windows, and zero beyond the queries' map.
    """

    node: int
    source: View
    """The queries."""
    keys: View
    values: View
    target: Target
    first: tuple[int, int, int]
    """The first planes of queries, keys and values."""
    planes: int
    """So many of each, and of the result."""
    windows: Windows
    scale: float
    bias: NDArray[np.float32]
    """(heads, rows, columns), by how a key lies to a query."""

    @property
    def heads(self) -> int:
        """How many there are."""
        return len(self.bias)

    @property
    def has_bias(self) -> bool:
        """Whether biases decide anything: softmax removes one that is the same for all keys."""
        flat = self.bias.reshape(self.heads, -1)
        return bool((flat != flat[:, :1]).any())


@dataclass(frozen=True, eq=False)
class AttendPlanes:
    """Attention between planes in windows, as `networks.attention.ChannelAttention` defines it.

    Its maps are as those of AttendWindows, and so is what it computes.
    """

    node: int
    source: View
    """The queries."""
    keys: View
    values: View
    target: Target
    first: tuple[int, int, int]
    """The first planes of queries, keys and values."""
    planes: int
    """So many of each, and of the result."""
    windows: Windows
    """They are square, and neither shifted nor overlapped nor of cells."""
    temperature: NDArray[np.float32]
    """(heads,)."""

    @property
    def heads(self) -> int:
        """How many there are."""
        return len(self.temperature)


AttentionStep = AttendWindows | AttendPlanes
"""Steps of whole windows."""


@dataclass(frozen=True)
class CrossSums:
    """Sums over all of a value's size of products of its planes, into a vector.

    Of each head, plane by plane of its queries, those with each plane of its keys; then of the
    squares of all planes of queries; then of keys. With a period, all these of each pixel of a cell
    of so many rows and columns, from the value's pixel (0, 0) on, one after the other.
    """

    node: int
    source: View
    """A value other than the picture, with one part and no offset, stored by single pixels."""
    first: tuple[int, int]
    """The first planes of queries and of keys."""
    planes: int
    """So many of each."""
    heads: int
    vector: int
    period: int = 1

    @property
    def parts(self) -> int:
        """How often there are sums of everything."""
        return self.period**2

    @property
    def elements(self) -> int:
        """How many sums each part has."""
        return self.planes * (self.planes // self.heads + 2)


@dataclass(frozen=True, eq=False)
class ChannelWeights:
    """The weights by which heads mix their planes, of CrossSums: what queries and keys have in
    common by their norms, times a temperature, and a softmax of it over keys.

    They stand in the vector by head, then plane of the values, then plane of the result: those of
    each part of the sums one after the other.
    """

    node: int
    source: int
    vector: int
    planes: int
    temperature: NDArray[np.float32]
    """(heads,)."""
    parts: int = 1
    """As many as CrossSums has."""


@dataclass(frozen=True)
class MixPlanes:
    """Planes of each head's result, each the sum of all planes of the head's values by weights:
    with a period, by those of the pixel's place in a cell of so many rows and columns."""

    node: int
    source: View
    """A whole value of one part, stored by single pixels, other than the picture."""
    target: Target
    first: int
    """The first plane of the values."""
    planes: int
    heads: int
    vector: int
    """The weights, as ChannelWeights makes them."""
    period: int = 1
