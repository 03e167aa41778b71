"""Layers that run by `kernels/winograd.cl`: many planes in, many planes out, maps at both ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.layer import PackedLayer, padded
from waifu2x.backends.gpu.road import Map, whole
from waifu2x.backends.gpu.runtime import Limits, Runtime
from waifu2x.backends.winograd import transform_weights
from waifu2x.model import Convolution

MAP_BLOCK = 4
"""Planes of a block of the maps."""


@dataclass(frozen=True)
class Shape:
    """How the work is cut: see the macros of the kernel."""

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

    @property
    def frequencies(self) -> int:
        """Of a cell."""
        return (self.cell_y + 2) * (self.cell_x + 2)

    @property
    def rows(self) -> int:
        """Rows of pixels of a group."""
        return self.tile_y * self.cell_y

    @property
    def columns(self) -> int:
        """Columns of pixels of a group."""
        return self.tile_x * self.cell_x

    @property
    def group(self) -> int:
        """Work-items of a group."""
        cells = self.tile_y * self.tile_x
        lanes = cells // self.cells_item * (self.outs // self.outs_item)
        return lanes * self.frequencies // self.frequencies_item

    @property
    def local_bytes(self) -> int:
        """Local memory of a group: T and V, or M in their place, as the kernel pads them."""
        cells, columns = self.tile_y * self.tile_x, self.columns + 2
        row = (columns // 8 * 8 + (9 if columns % 8 > 1 else 1)) * 4
        t = (self.cell_y + 2) * self.depth // 4 * self.tile_y * row
        v = self.frequencies * (self.depth * (cells // 16 * 16 + 8) + 16)
        return 4 * max(t + v, self.frequencies * cells * 8)


_SHAPES = (
    Shape(2, 4, 4, 4, 64, 8, 8, 1, 4),
    Shape(4, 4, 4, 4, 64, 8, 4, 3, 4),
    Shape(2, 2, 4, 8, 64, 8, 8, 1, 4),
    Shape(2, 4, 4, 8, 32, 8, 8, 1, 4),
    Shape(4, 4, 4, 8, 32, 8, 4, 3, 4),
    Shape(2, 4, 4, 4, 32, 8, 8, 1, 4),
    Shape(2, 2, 4, 8, 32, 8, 8, 1, 4),
)
"""Usual ones first, by measurements on an H200. F(4x4) saves more products than F(2x4), spills a
few registers where there are 168 for a work-item, and is at most 6 % faster: OpenCL does not tell
how many there are, so it is taken only where `tuning` found it faster. The last two are for devices
with groups of 256 work-items at most."""


def candidates(limits: Limits, layer: Convolution) -> list[Shape]:
    """Shapes for a layer in the middle of a network, the usual one first; none if it is too small.

    Padding may not cost more than half of the work.
    """
    return [
        shape
        for shape in _SHAPES
        if layer.in_planes >= 2 * shape.depth
        and whole(layer.out_planes, shape.outs) < 2 * layer.out_planes
        and limits.max_group >= shape.group
        and limits.local_bytes >= shape.local_bytes
    ]


class WinogradLayer(PackedLayer):
    """One convolution, its transformed weights on the device."""

    def __init__(self, runtime: Runtime, layer: Convolution, shape: Shape) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self._shape = shape
        self.planes = whole(layer.out_planes, shape.outs)
        self.rows, self.columns = shape.rows, shape.columns
        program = runtime.build(
            "winograd",
            {
                "IN_PLANES": whole(layer.in_planes, shape.depth),
                "OUT_PLANES": self.planes,
                "CELL_Y": shape.cell_y,
                "CELL_X": shape.cell_x,
                "TILE_Y": shape.tile_y,
                "TILE_X": shape.tile_x,
                "OUTS": shape.outs,
                "CELLS_ITEM": shape.cells_item,
                "OUTS_ITEM": shape.outs_item,
                "FREQUENCIES_ITEM": shape.frequencies_item,
                "DEPTH": shape.depth,
                "SLOPE": f"{layer.slope!r}f",
            },
        )
        super().__init__(runtime, *pack(layer, shape))
        self._kernel = self._kernels[()] = program.kernel("winograd", shape.group)

    def launch(self, source: Map, target: Map, rows: int, columns: int) -> None:
        """See Layer."""
        groups = (
            self.planes // self._shape.outs,
            -(-columns // self.columns),
            -(-rows // self.rows),
        )
        self._queue(self._kernel, groups, source, target)


def pack(layer: Convolution, shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """U and bias in the order in which the kernel reads them, padded with zeros."""
    inputs, outputs = whole(layer.in_planes, shape.depth), whole(layer.out_planes, shape.outs)
    weight, bias = padded(layer, inputs, outputs)
    transformed = transform_weights(weight, shape.cell_y, shape.cell_x)
    grouped = transformed.reshape(shape.frequencies, -1, shape.outs, inputs).transpose(1, 3, 0, 2)
    spare = np.zeros(shape.frequencies * shape.outs, np.float32)
    return np.concatenate([grouped.ravel(), spare]), bias
