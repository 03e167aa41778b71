"""The nodes of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.windows import MOST_QUERIES, Windows, check_heads
from waifu2x.system.lazy_dataclass import dataclass

MOST_WINDOW_DEPTH = 64
"""Planes of a head, at most, of attention between planes in windows: products of all pairs of them
lie in the local memory of a GPU."""
MOST_PERIOD = 16
"""Each of its cells' pixels has sums of its own."""


@dataclass(frozen=True)
class PlanesFrom:
    """Neighbouring planes of a map; how many, the node says that reads them."""

    source: int
    first: int = 0


@dataclass(frozen=True, eq=False)
class WindowAttention:
    """softmax(q . k * scale + bias) v, for each query q of a window over all its keys k, head by
    head.

    Head h has planes h * planes / heads on of queries, keys, values and of the result, which is a
    map like that of the queries.
    """

    queries: PlanesFrom
    keys: PlanesFrom
    values: PlanesFrom
    """Their map is like that of the keys."""
    planes: int
    windows: Windows
    scale: float
    bias: NDArray[np.float32]
    """(heads, rows, columns), by how a key lies to a query: for the query (y, x) of its window and
    the key (r, c) of the window's keys, [r - y // cell + rows // cell - 1][c - x // cell +
    columns // cell - 1], where `rows` and `columns` are those of the windows."""

    @property
    def heads(self) -> int:
        """How many there are."""
        return len(self.bias)

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it reads, that of the queries first."""
        return self.queries.source, self.keys.source, self.values.source

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds for a pixel of the result."""
        return 2 * self.planes * self.windows.keys(0) * self.windows.keys(1)

    def renumbered(self, places: Sequence[int]) -> WindowAttention:
        """The node, reading value places[n] where it read value n."""
        queries, keys, values = (
            replace(one, source=places[one.source])
            for one in (self.queries, self.keys, self.values)
        )
        return replace(self, queries=queries, keys=keys, values=values)


@dataclass(frozen=True, eq=False)
class ChannelAttention:
    """softmax(Q . K * temperature) V, head by head, where a row of Q, K or V is a plane of the head
    over all of the map, and those of Q and K are divided by their 2-norms, 1e-12 at least: the
    softmax is over K's rows, and what is made of each row of Q is a plane of the result.

    Head h has planes h * planes / heads on. Maps count whole, as large as
    `Model.sizes` says; with a window or a period they are divided, and the pixels of each part are
    by themselves.
    """

    queries: PlanesFrom
    keys: PlanesFrom
    """They are planes of the same map as the queries."""
    values: PlanesFrom
    planes: int
    temperature: NDArray[np.float32]
    """(heads,)."""
    window: int = 0
    """Rows and columns of windows, which stand at multiples of it and are cut at the edges; 0 for
    none."""
    period: int = 1
    """The rows of a part lie so many apart, and so do its columns: it has all pixels at the same
    place of cells of so many rows and columns."""

    @property
    def heads(self) -> int:
        """How many there are."""
        return len(self.temperature)

    def check(self) -> None:
        """Raises ModelError, without a name, unless all numbers fit together."""
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

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it reads, that of the queries first."""
        return self.queries.source, self.keys.source, self.values.source

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds for a pixel of the result."""
        return 2 * self.planes * (self.planes // self.heads)

    def renumbered(self, places: Sequence[int]) -> ChannelAttention:
        """The node, reading value places[n] where it read value n."""
        queries, keys, values = (
            replace(one, source=places[one.source])
            for one in (self.queries, self.keys, self.values)
        )
        return replace(self, queries=queries, keys=keys, values=values)
