"""Defines the steps of attention: in windows of pixels, and between planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import (
    PLANEWISE_COST,
    Checker,
    InnerVectorStep,
    Levels,
    MapStep,
    PictureSum,
)
from waifu2x.lowering.plan.box import Box, overlap
from waifu2x.lowering.plan.symbols import larger, smaller
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.model import Size
from waifu2x.networks.windows import Axis, Windows
from waifu2x.system.lazy_dataclass import dataclass

_SHORTEST = 1e-12
"""The lower bound of norms of queries and keys, against division by zero."""


@dataclass(frozen=True, eq=False)
class AttentionStep(MapStep):
    """A step computed window by window; its source has the queries. Its maps are whole values of
    one part, stored by single pixels, other than the picture; its result is zero beyond the
    queries' map."""

    keys: View
    values: View
    first: tuple[int, int, int]
    """The first planes of queries, keys and values."""
    planes: int
    """Planes of queries, of keys, of values, and of the result."""
    windows: Windows
    is_inner = True

    @property
    def heads(self) -> int:
        """The number of heads, which divide the planes equally."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[View, ...]:
        return self.source, self.keys, self.values

    def planes_made(self, program: Program) -> int:
        return self.planes

    def receptive_radius(self, program: Program, unit: int) -> float:
        side = max(self.windows.rows, self.windows.columns) - 1
        resolution = program.values[self.source.value].resolution
        return float((side + self.windows.overlap) / resolution)

    def computed(self, box: Box, unit: tuple[int, int], size: Size | None) -> Box:
        return whole_windows(self.windows, box, size)

    def read_boxes(
        self, program: Program, box: Box, sizes: Sequence[Size] | None
    ) -> Iterator[tuple[int, Box]]:
        # Keys and values are read inside their map only.
        under = keys_under(self.windows, box)
        for view, wanted in zip(self.reads, (box, under, under), strict=True):
            if sizes is not None:
                wanted = overlap(wanted, Box(0, 0, *sizes[view.value]))
            if wanted.height and wanted.width:
                yield view.value, wanted

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        first = self.first[2]
        return read(self.values)[first : first + self.planes]

    def check(self, check: Checker) -> None:
        made = check.values[self.target.value].resolution
        cells = (1, self.windows.cell, self.windows.cell)
        fields = ("source", "keys", "values")
        for field, view, first, cell in zip(fields, self.reads, self.first, cells, strict=True):
            check.whole(field, view, first, self.planes)
            resolution = check.values[view.value].resolution
            check.must(resolution * cell == made, field, f"resolution {resolution}")
        check.single(*self.reads, self.target)
        zero = check.values[self.target.value].zero_outside
        check.must(zero, "target", "not zero outside")
        check.must(self.planes % self.heads == 0, "planes", f"{self.planes} of {self.heads} heads")


@dataclass(frozen=True, eq=False)
class AttendWindows(AttentionStep):
    """Attention in windows, as `networks.attention.WindowAttention` defines it."""

    scale: float
    bias: NDArray[np.float32]
    """(heads, rows, columns), indexed by a key's position relative to its query."""

    @property
    def heads(self) -> int:
        return len(self.bias)

    @property
    def label(self) -> str:
        return f"attention {self.windows.rows}x{self.windows.columns}"

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        return 2 * self.planes * self.windows.keys(0) * self.windows.keys(1)

    def check(self, check: Checker) -> None:
        super().check(check)
        table = (self.heads, *self.windows.bias_sides)
        check.must(self.bias.shape == table, "bias", f"shape {self.bias.shape}, not {table}")

    @property
    def has_bias(self) -> bool:
        """Returns whether biases change the result: softmax removes one that all keys share."""
        flat = self.bias.reshape(self.heads, -1)
        return bool((flat != flat[:, :1]).any())


@dataclass(frozen=True, eq=False)
class AttendPlanes(AttentionStep):
    """Attention between planes in windows, as `networks.attention.ChannelAttention` defines it: in
    square ones, neither shifted nor overlapped nor of cells."""

    temperature: NDArray[np.float32]
    """(heads,)."""

    @property
    def heads(self) -> int:
        return len(self.temperature)

    @property
    def label(self) -> str:
        return f"attention of planes {self.windows.rows}x{self.windows.columns}"

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        return 2 * self.planes * (self.planes // self.heads)

    def check(self, check: Checker) -> None:
        super().check(check)
        plain = self.windows == Windows(self.windows.rows, self.windows.rows)
        check.must(plain, "windows", f"{self.windows}")
        check.must(self.source == self.keys, "keys", "of another map than queries")


@dataclass(frozen=True, eq=False)
class CrossSums(PictureSum):
    """Sums products of a value's planes over all of its pixels, into a vector.

    It holds, for each head, query plane and key plane, the sum of their products; then the sum of
    squares of each query plane; then of each key plane. With a period, it holds all these for each
    pixel of a cell of `period` x `period` pixels; the first cell begins at the pixel (0, 0). The
    source is stored by single pixels.
    """

    first: tuple[int, int]
    """The first planes of queries and of keys."""
    planes: int
    """Planes of queries, and of keys."""
    heads: int
    period: int = 1
    label = "products of planes"

    @property
    def parts(self) -> int:
        """The number of pixels of a cell; each has sums of its own."""
        return self.period**2

    @property
    def elements(self) -> int:
        """The number of sums of each part."""
        return self.planes * (self.planes // self.heads + 2)

    def check(self, check: Checker) -> None:
        check.whole("source", self.source, min(self.first))
        check.whole("source", self.source, max(self.first), self.planes)
        check.single(self.source)
        check.vector_of(self.vector, self.elements * self.parts)


@dataclass(frozen=True, eq=False)
class ChannelWeights(InnerVectorStep):
    """Makes the weights by which heads mix their planes from CrossSums: the sums of products over
    the product of the norms, times a temperature, then a softmax over keys.

    Their order in the vector: [part of the sums][head][plane of the values][plane of the result].
    """

    planes: int
    temperature: NDArray[np.float32]
    """(heads,)."""
    parts: int = 1
    """The parts of the CrossSums."""
    label = "weights of planes"

    def made(self, *vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        heads, parts = len(self.temperature), self.parts
        depth = self.planes // heads
        found = vectors[0].reshape(parts, -1)
        products = found[:, : self.planes * depth].reshape(parts, heads, depth, depth)
        norms = np.sqrt(found[:, self.planes * depth :].reshape(parts, 2, heads, depth))
        weights = weights_of_planes(products, norms[:, 0], norms[:, 1], self.temperature)
        made: NDArray[np.float64] = weights.swapaxes(2, 3).ravel()
        return made

    def check(self, check: Checker) -> None:
        check.written("source", self.source)
        depth = self.planes // len(self.temperature)
        check.vector_of(self.source, self.planes * (depth + 2) * self.parts)
        check.vector_of(self.vector, self.planes * depth * self.parts)


@dataclass(frozen=True)
class MixPlanes(MapStep):
    """Mixes planes: each plane of a head's result is a weighted sum of all planes of its values.
    With a period, each pixel of a cell of `period` x `period` pixels has its own weights.

    The source is a whole value of one part, stored by single pixels, other than the picture.
    """

    first: int
    """The first plane of the values."""
    planes: int
    heads: int
    vector: int
    """The weights, as ChannelWeights makes them."""
    period: int = 1
    is_inner = True
    label = "planes mixed"

    @property
    def vectors_read(self) -> tuple[int, ...]:
        return (self.vector,)

    def planes_made(self, program: Program) -> int:
        return self.planes

    def cost(self, program: Program, planewise: int = PLANEWISE_COST) -> int:
        return self.planes * (self.planes // self.heads)

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return read(self.source)[self.first :][: self.planes]

    def check(self, check: Checker) -> None:
        check.written("vector", self.vector)
        weights = self.planes * (self.planes // self.heads)
        check.vector_of(self.vector, weights * self.period**2)
        check.whole("source", self.source, self.first, self.planes)
        check.single(self.source, self.target)


def weights_of_planes(
    products: NDArray[np.float64],
    query_norms: NDArray[np.float64],
    key_norms: NDArray[np.float64],
    temperature: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Returns the softmax over keys of products / (query_norms * key_norms) * temperature, shaped
    (..., heads, queries, keys) as `products` are; norms are (..., heads, planes)."""
    norms = query_norms.clip(_SHORTEST)[..., None] * key_norms.clip(_SHORTEST)[..., None, :]
    logits = products / norms * temperature.astype(np.float64)[:, None, None]
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def whole_windows(windows: Windows, box: Box, size: Size | None) -> Box:
    """Returns the smallest box of whole windows around `box`; it may reach beyond the map, whose
    size is `size`, or None for a large one."""
    rows, columns = size or (None, None)
    top = windows.begin(0, box.top, rows)
    left = windows.begin(1, box.left, columns)
    bottom = windows.begin(0, box.bottom - 1, rows) + windows.rows
    right = windows.begin(1, box.right - 1, columns) + windows.columns
    return Box(top, left, bottom - top, right - left)


def keys_under(windows: Windows, box: Box) -> Box:
    """Returns the box of keys, in pixels of their map, that a box of whole windows reads; it may
    reach beyond the map."""
    cell, overlap = windows.cell, windows.overlap
    top, left = (box.top - overlap) // cell, (box.left - overlap) // cell
    bottom, right = (box.bottom + overlap) // cell, (box.right + overlap) // cell
    return Box(top, left, bottom - top, right - left)


def existing(windows: Windows, axis: Axis, begin: int, length: int) -> tuple[int, int]:
    """Returns the half-open range of rows, or columns, of the map of keys that the window at
    `begin` reads. `length` is that of the map of queries."""
    first = larger(begin, 0) - windows.overlap
    end = smaller(begin + windows.size(axis), windows.filled(length)) + windows.overlap
    return first // windows.cell, end // windows.cell
