"""The nodes of attention: in windows, and between planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.nodes import Node, ValueShape
from waifu2x.networks.windows import MOST_QUERIES, Windows, check_heads
from waifu2x.system.lazy_dataclass import dataclass

MOST_WINDOW_DEPTH = 64
"""Planes of a head, at most, of attention between planes in windows: products of all pairs of them
lie in the local memory of a GPU."""
MOST_PERIOD = 16
"""Each of its cells' pixels has sums of its own."""


@dataclass(frozen=True)
class PlanesFrom:
    """Neighbouring planes of a map, from `first` on; the node that reads them has their number."""

    source: int
    first: int = 0


@dataclass(frozen=True, eq=False)
class _Attention(Node):
    queries: PlanesFrom
    keys: PlanesFrom
    values: PlanesFrom
    planes: int

    @property
    def sources(self) -> tuple[int, ...]:
        return self.queries.source, self.keys.source, self.values.source

    def renumbered(self, places: Sequence[int]) -> Self:
        queries, keys, values = (
            replace(each, source=places[each.source])
            for each in (self.queries, self.keys, self.values)
        )
        return replace(self, queries=queries, keys=keys, values=values)

    def _checked(self, read: Sequence[ValueShape], cell: int = 1) -> ValueShape:
        """Returns the shape of the result, where the map of keys is `cell` times smaller."""
        for each, shape in zip((self.queries, self.keys, self.values), read, strict=True):
            if not 0 <= each.first <= shape.planes - self.planes:
                raise ModelError(
                    f"it reads planes {each.first} to {each.first + self.planes} of a map of"
                    f" {shape.planes}"
                )
        queries, keys, values = read
        cells = keys.resolution and keys.resolution * cell
        if (queries.resolution, queries.origin) != (cells, keys.origin):
            raise ModelError("its queries and keys lie at different places of the picture")
        keys.check_alike(values)
        return replace(queries, planes=self.planes)


@dataclass(frozen=True, eq=False)
class WindowAttention(_Attention):
    """softmax(q . k * scale + bias) v, for each query q of a window over all its keys k, head by
    head.

    Head h has planes h * planes / heads on of queries, keys, values and of the result, which is a
    map like that of the queries. Keys and values lie on maps of one size.
    """

    windows: Windows
    scale: float
    bias: NDArray[np.float32]
    """(heads, rows, columns), by how a key lies to a query: for the query (y, x) of its window and
    the key (r, c) of the window's keys, [r - y // cell + rows // cell - 1][c - x // cell +
    columns // cell - 1], where `rows` and `columns` are those of the windows."""

    @property
    def heads(self) -> int:
        return len(self.bias)

    @property
    def multiply_adds(self) -> int:
        return 2 * self.planes * self.windows.keys(0) * self.windows.keys(1)

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        return (self.bias,)

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        self.windows.check(self.heads, self.bias.shape, self.planes)
        return self._checked(read, self.windows.cell)

    def _length(self, read: Sequence[int]) -> int:
        if any(length * self.windows.cell != read[0] for length in read[1:]):
            raise ModelError("its queries and keys differ in size")
        return read[0]


@dataclass(frozen=True, eq=False)
class ChannelAttention(_Attention):
    """softmax(Q . K * temperature) V, head by head, where a row of Q, K or V is a plane of the head
    over the whole map, and those of Q and K are divided by their 2-norms, 1e-12 at least. The
    softmax is over K's rows, and each row of Q makes a plane of the result.

    Q and K are planes of one map. Head h has planes h * planes / heads on. Maps are as large as
    `Model.sizes` says; a window or a period divides them into parts, each computed by itself.
    """

    temperature: NDArray[np.float32]
    """(heads,)."""
    window: int = 0
    """Rows and columns of windows, which stand at multiples of it and are cut at the edges; 0 for
    none."""
    period: int = 1
    """Rows of a part lie `period` apart, and so do its columns: it has the pixels at one place of
    each cell of period x period pixels."""

    @property
    def heads(self) -> int:
        return len(self.temperature)

    @property
    def multiply_adds(self) -> int:
        return 2 * self.planes * (self.planes // self.heads)

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        return (self.temperature,)

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        check_heads(self.heads, self.planes)
        depth = self.planes // self.heads
        if self.window < 0 or self.period < 1 or (self.window and self.period > 1):
            raise ModelError(f"windows of {self.window}, at a period of {self.period}")
        if self.window**2 > MOST_QUERIES or (self.window and depth > MOST_WINDOW_DEPTH):
            raise ModelError(
                f"attention between {depth} planes in windows of {self.window}x{self.window}; at"
                f" most {MOST_WINDOW_DEPTH} planes and {MOST_QUERIES} pixels are supported"
            )
        if self.period > MOST_PERIOD:
            raise ModelError(f"a period of {self.period}; at most {MOST_PERIOD} is supported")
        if self.keys.source != self.queries.source:
            raise ModelError("its queries and keys are of different maps")
        return self._checked(read)
