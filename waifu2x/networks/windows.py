"""Windows of a map in which attention is computed, and the keys of each.

Windows stand at multiples of their size from the map's pixel (0, 0), moved down and to the right by
a shift; those at the edges are cut. So the picture alone, and never a tile, decides which pixels
share a window.
"""

from __future__ import annotations

from typing import Literal

from waifu2x.errors import ModelError
from waifu2x.system.lazy_dataclass import dataclass

Axis = Literal[0, 1]
"""Rows or columns."""
MOST_QUERIES = 1 << 10
"""Pixels of a window; the largest of the field have 32 x 32."""
MOST_KEYS = 1 << 12
MOST_HEAD_PLANES = 128
MOST_FILLED = 1 << 10


def check_heads(heads: int, planes: int) -> None:
    """Raises ModelError, without a name, unless heads divide planes."""
    if heads < 1 or planes % heads or planes // heads > MOST_HEAD_PLANES:
        raise ModelError(f"{heads} heads of {planes} planes")


@dataclass(frozen=True)
class Windows:
    """How a map of queries is divided, in its pixels, and where the keys of a window are.

    The keys of a window lie under it and `overlap` pixels around it. Beyond the map, keys exist up
    to `overlap` pixels from the map as it is when filled up, and nowhere else: they are zeros, and
    so are their values.
    """

    rows: int
    columns: int
    shift_rows: int = 0
    """Rows by which windows are moved down: fewer than they have."""
    shift_columns: int = 0
    overlap: int = 0
    """Pixels around a window that are keys too."""
    cell: int = 1
    """Pixels of queries, in each direction, for each pixel of keys."""
    filled_to: int = 1
    """The map counts as filled up to a multiple of it, below and on the right, by keys of zeros."""
    shifts_single: bool = True
    """Whether windows are moved, too, along an axis that they fill alone."""

    def size(self, axis: Axis) -> int:
        """Returns rows, or columns, of a window of queries."""
        return self.columns if axis else self.rows

    def keys(self, axis: Axis) -> int:
        """Returns rows, or columns, of a window of keys, in pixels of keys."""
        return (self.size(axis) + 2 * self.overlap) // self.cell

    def filled(self, length: int) -> int:
        """Returns rows, or columns, of a map when filled up."""
        return -(-length // self.filled_to) * self.filled_to

    def shift(self, axis: Axis, length: int | None) -> int:
        """Returns where windows of a map of `length` rows, or columns, begin; None: a large map."""
        shift = self.shift_columns if axis else self.shift_rows
        if self.shifts_single or length is None or self.filled(length) > self.size(axis):
            return shift
        return 0

    def begin(self, axis: Axis, place: int, length: int | None) -> int:
        """Returns the first row, or column, of the window that a place is in."""
        size, shift = self.size(axis), self.shift(axis, length)
        return (place - shift) // size * size + shift

    def check(self, heads: int, bias: tuple[int, ...], planes: int) -> None:
        """Raises ModelError, without a name, unless all numbers fit together."""
        queries = self.rows * self.columns
        if min(self.rows, self.columns, self.cell, self.filled_to) < 1 or self.overlap < 0:
            raise ModelError(f"windows of {self.rows}x{self.columns}, overlap {self.overlap}")
        if queries > MOST_QUERIES or self.filled_to > MOST_FILLED:
            raise ModelError(
                f"windows of {self.rows}x{self.columns} pixels, of a map filled up to a multiple of"
                f" {self.filled_to}; at most {MOST_QUERIES} are supported"
            )
        sides = [self.rows, self.columns, self.shift_rows, self.shift_columns, self.overlap]
        sides += [self.filled_to] if self.filled_to > 1 else []
        if any(side % self.cell for side in sides):
            raise ModelError(f"windows of {sides} do not divide by cells of {self.cell}")
        if not (0 <= self.shift_rows < self.rows and 0 <= self.shift_columns < self.columns):
            raise ModelError(f"windows shifted by {self.shift_rows}, {self.shift_columns}")
        if self.keys(0) * self.keys(1) > MOST_KEYS:
            raise ModelError(f"{self.keys(0)}x{self.keys(1)} keys; at most {MOST_KEYS}")
        check_heads(heads, planes)
        wanted = (heads, *self.bias_sides)
        if bias != wanted:
            raise ModelError(f"bias has the shape {bias}, but expected {wanted}")

    @property
    def bias_sides(self) -> tuple[int, int]:
        """Rows and columns of a head's table of biases: one entry for each offset of key and
        query."""
        rows, columns = (self.keys(axis) + self.size(axis) // self.cell - 1 for axis in (0, 1))
        return rows, columns
