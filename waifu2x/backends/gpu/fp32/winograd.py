"""Runs convolutions of 3x3 taps and many planes, from map to map, by `kernels/winograd.cl`, on
processors by `winograd_vector.cl`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.runtime import Limits, Macros
from waifu2x.backends.gpu.device.source import fields_of, vector_type
from waifu2x.backends.gpu.fp32.conv_planes import Planes, padded_weight
from waifu2x.backends.gpu.fp32.maps import FLOAT_BYTES
from waifu2x.backends.winograd import share, transform_weights
from waifu2x.lowering.plan.box import round_up
from waifu2x.system.lazy_dataclass import dataclass

_CELL = 4
_FREQUENCIES = (_CELL + 2) ** 2
"""The number of frequencies of a cell of `winograd_vector.cl`."""


@dataclass(frozen=True)
class WinogradShape:
    """The division of the work, as macros of `winograd.cl`."""

    cell_y: int
    cell_x: int
    tile_y: int
    tile_x: int
    outs: int
    cells_item: int
    outs_item: int
    frequencies_item: int
    depth: int

    stem = "winograd"
    plane_groups = True

    @property
    def planes(self) -> int:
        return self.outs

    @property
    def share(self) -> float:
        return share(self.cell_y, self.cell_x)

    @property
    def frequencies(self) -> int:
        """The number of frequencies of a cell."""
        return (self.cell_y + 2) * (self.cell_x + 2)

    @property
    def rows(self) -> int:
        return self.tile_y * self.cell_y

    @property
    def columns(self) -> int:
        return self.tile_x * self.cell_x

    @property
    def group(self) -> int:
        cells = self.tile_y * self.tile_x
        lanes = cells // self.cells_item * (self.outs // self.outs_item)
        return lanes * self.frequencies // self.frequencies_item

    @property
    def local_bytes(self) -> int:
        """The local memory of a group: T and V, or M in their place, as the kernel pads them."""
        cells, columns = self.tile_y * self.tile_x, self.columns + 2
        row = (columns // 8 * 8 + (9 if columns % 8 > 1 else 1)) * 4
        t = (self.cell_y + 2) * self.depth // 4 * self.tile_y * row
        v = self.frequencies * (self.depth * (cells // 16 * 16 + 8) + 16)
        return FLOAT_BYTES * max(t + v, self.frequencies * cells * 8)

    def macros(self, planes: Planes) -> Macros:
        return {
            "IN_PLANES": round_up(planes.in_count, self.depth),
            "OUT_PLANES": round_up(planes.out_count, self.outs),
            "GROUP": self.group,
            "LOCAL_FLOATS": self.local_bytes // FLOAT_BYTES,
            **fields_of(self),
        }

    def pack(self, planes: Planes, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the transformed weights: U."""
        inputs = round_up(planes.in_count, self.depth)
        full = padded_weight(planes, weight, inputs, round_up(planes.out_count, self.outs))
        transformed = transform_weights(full, self.cell_y, self.cell_x)
        grouped = transformed.reshape(self.frequencies, -1, self.outs, inputs)
        spare = np.zeros(self.frequencies * self.outs, np.float32)
        return np.concatenate([grouped.transpose(1, 3, 0, 2).ravel(), spare])


_SHAPES = (
    WinogradShape(2, 4, 4, 4, 64, 8, 8, 1, 4),
    WinogradShape(4, 4, 4, 4, 64, 8, 4, 3, 4),
    WinogradShape(2, 2, 4, 8, 64, 8, 8, 1, 4),
    WinogradShape(2, 4, 4, 8, 32, 8, 8, 1, 4),
    WinogradShape(4, 4, 4, 8, 32, 8, 4, 3, 4),
    WinogradShape(2, 4, 4, 4, 32, 8, 8, 1, 4),
    WinogradShape(2, 2, 4, 8, 32, 8, 8, 1, 4),
)
"""The usual ones first, by measurements on an H200. F(4x4) multiplies less than F(2x4), spills a
few registers where a work-item has 168, and is at most 6 % faster. OpenCL does not tell how many
there are, so it is taken only where `tuning` found it faster. The last two are for devices with
groups of at most 256 work-items."""


@dataclass(frozen=True)
class WinogradVectorShape:
    """The division of the work, as macros of `winograd_vector.cl`."""

    width: int
    vectors: int
    line: int
    cells: int

    stem = "winograd_vector"
    share = share(_CELL, _CELL)
    plane_groups = False
    rows = _CELL
    group = 1

    @property
    def planes(self) -> int:
        return self.width * self.vectors

    @property
    def columns(self) -> int:
        return self.cells * _CELL

    def local_bytes(self, planes: Planes) -> int:
        """Returns the local memory of a group."""
        columns = 6 * (self.cells * _CELL + 2)
        vectors = self.vectors + -(-planes.in_count // self.width)
        return FLOAT_BYTES * self.width * (columns + _FREQUENCIES * self.cells * vectors)

    def macros(self, planes: Planes) -> Macros:
        return {
            "IN_PLANES": round_up(planes.in_count, self.width),
            "OUT_PLANES": round_up(planes.out_count, self.planes),
            "VECTOR": vector_type(self.width),
            "LOCAL_FLOATS": self.local_bytes(planes) // FLOAT_BYTES,
            **fields_of(self),
        }

    def pack(self, planes: Planes, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the transformed weights: U."""
        inputs = round_up(planes.in_count, self.width)
        full = padded_weight(planes, weight, inputs, round_up(planes.out_count, self.planes))
        transformed = transform_weights(full, _CELL, _CELL)
        grouped = transformed.reshape(_FREQUENCIES, -1, self.planes, inputs)
        return np.ascontiguousarray(grouped.transpose(1, 0, 3, 2))


def candidates(
    limits: Limits, planes: Planes
) -> Sequence[WinogradShape] | Sequence[WinogradVectorShape]:
    """Returns the shapes that a convolution can take, the default first; none if unsuitable."""
    if planes.taps != 3 or planes.from_pixels or planes.to_pixels:
        return []
    return _on_processors(limits, planes) if limits.is_cpu else _on_gpus(limits, planes)


def _on_gpus(limits: Limits, planes: Planes) -> Sequence[WinogradShape]:
    """Returns shapes that spend less than half of the work on padding."""
    return [
        shape
        for shape in _SHAPES
        if planes.in_count >= 2 * shape.depth
        and round_up(planes.out_count, shape.outs) < 2 * planes.out_count
        and limits.max_group >= shape.group
        and limits.local_bytes >= shape.local_bytes
    ]


def _on_processors(limits: Limits, planes: Planes) -> Sequence[WinogradVectorShape]:
    """Returns shapes whose sums take twelve of the sixteen or more registers of processors."""
    width = limits.vector
    if planes.is_narrow or width < 4 or min(planes.in_count, planes.out_count) < 2 * width:
        return []
    shapes = [WinogradVectorShape(width, 2, 6, cells) for cells in (12, 6)]
    return [shape for shape in shapes if limits.local_bytes >= shape.local_bytes(planes)]
