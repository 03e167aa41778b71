"""Lays out values for matrix units: maps of 16-bit terms, and maps of few planes as floats.

`kernels/tensor.cuh` defines the layout. Pictures of a batch lie side by side in a map, each in a
cell as large as the map's box; in a map of few planes, one after the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.tensor.pack import VALUE_BYTES, VECTOR_VALUES
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Value
from waifu2x.system.lazy_dataclass import dataclass

FEW_PLANES = 4
"""The most planes of maps of floats: no convolution on matrix units reads those by groups."""
PLANE_UNIT = 32
"""The unit to which the planes of a part are padded."""
_PHASES = 8
"""The period, in columns, of the swizzled order of vectors: all rows begin with a new period."""
ROWS_BEYOND, COLUMNS_BEYOND = 8, 80
"""The rows and pixels behind a map that tiles may read, as kernels assert."""
_FLOAT_BYTES = 4


class BatchGrid(NamedTuple):
    """The arrangement of a batch's pictures in a map."""

    across: int
    down: int
    pictures: int


def batch_grid(pictures: int) -> BatchGrid:
    """Returns a grid with about as many pictures down as across."""
    across = math.isqrt(pictures - 1) + 1
    return BatchGrid(across, -(-pictures // across), pictures)


class MapArguments(NamedTuple):
    """`Map` in `kernels/tensor.cuh`."""

    pitch: int = 0
    group: int = 0
    top: int = 0
    left: int = 0
    rows: int = 0
    columns: int = 0


def few_map(held: Box) -> MapArguments:
    """Returns the arguments of a map of few planes that holds a box, in the value's coordinates."""
    return MapArguments(held.width, 0, held.top, held.left, held.height, held.width)


@dataclass(frozen=True)
class MapLayout:
    """The layout of a value of many planes."""

    parts: tuple[int, ...]
    """The stored planes of a single pixel of each part, padded."""
    space_to_depth: int
    group: int
    """The planes of a group."""
    terms: int

    @property
    def stored(self) -> int:
        """The planes of a stored pixel."""
        return sum(self.parts) * self.space_to_depth**2

    def start(self, part: int) -> int:
        """Returns the first plane of a part."""
        return sum(self.parts[:part])

    def bytes(self, box: Box, grid: BatchGrid) -> int:
        """Returns the bytes of the pixels in a box."""
        rows, pitch = self._extent(box, grid)
        beyond = ROWS_BEYOND * pitch + COLUMNS_BEYOND
        return (rows * pitch * self.stored + beyond * self.group) * VALUE_BYTES * self.terms

    def arguments(self, box: Box, grid: BatchGrid, top: int, left: int) -> MapArguments:
        """Returns the arguments of a map that holds a box, for a first result at (top, left)."""
        rows, pitch = self._extent(box, grid)
        group = rows * pitch * self.group // VECTOR_VALUES
        return MapArguments(pitch, group, top, left, *self._cell(box))

    def planes(self, first: int, planes: tuple[int, ...]) -> NDArray[np.intp]:
        """Returns the stored index of each plane of some parts, counted from the first plane of
        part `first`.

        The order is [dy][dx][plane]; `planes` are the numbers of planes of the parts, unpadded.
        """
        starts = [self.start(first + index) - self.start(first) for index in range(len(planes))]
        single = np.concatenate(
            [start + np.arange(count) for start, count in zip(starts, planes, strict=True)]
        )
        pixels = np.arange(self.space_to_depth**2)[:, np.newaxis] * sum(self.parts)
        places: NDArray[np.intp] = (pixels + single).ravel()
        return places

    def _cell(self, box: Box) -> tuple[int, int]:
        return box.height // self.space_to_depth, box.width // self.space_to_depth

    def _extent(self, box: Box, grid: BatchGrid) -> tuple[int, int]:
        """Returns the rows and the pitch of the map."""
        rows, columns = self._cell(box)
        return grid.down * rows, round_up(grid.across * columns, _PHASES)


@dataclass(frozen=True)
class FewLayout:
    """The layout of a value of few planes: [picture][row][column][plane], float32."""

    planes: int

    def bytes(self, box: Box, grid: BatchGrid) -> int:
        """Returns the bytes of the pixels in a box."""
        return grid.pictures * box.height * box.width * self.planes * _FLOAT_BYTES


def layouts(program: Program, terms: int) -> tuple[MapLayout | FewLayout, ...]:
    """Returns the layout of every value; the picture's and the result's are meaningless."""
    return tuple(_layout(value, terms) for value in program.values)


def _layout(value: Value, terms: int) -> MapLayout | FewLayout:
    if value.planes <= FEW_PLANES and value.space_to_depth == 1 and len(value.parts) == 1:
        return FewLayout(value.planes)
    parts = tuple(round_up(planes, PLANE_UNIT) for planes in value.parts)
    wide = all(planes * value.space_to_depth**2 % 64 == 0 for planes in parts)
    return MapLayout(parts, value.space_to_depth, 64 if wide else 32, terms)
