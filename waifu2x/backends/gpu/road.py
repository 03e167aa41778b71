"""What a road is, one model's layers on a device in one precision, and what its kernels work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from waifu2x.backends.chain import Window
from waifu2x.backends.gpu.runtime import Argument, Buffer, Kernel
from waifu2x.tiling import Box

CELL = 4
"""Regions are whole cells of so many pixels a side, for Winograd."""


@dataclass(frozen=True)
class DevicePixels:
    """A picture, or part of one, in the memory of a device: C-contiguous."""

    buffer: Buffer
    dtype: np.dtype[Any]
    """uint8, uint16 or float32, as of a Network's pixels."""
    shape: tuple[int, int, int]
    """(rows, columns, planes)."""


DeviceWindow = Window[DevicePixels]


class Road(Protocol):
    """One model's layers on a device, in one precision. The form of feature maps is its own."""

    def reads(self, tile: Box) -> Box:
        """The part of the input behind a tile of the output; it may reach beyond the picture."""
        ...

    def scratch(self, tile: Box) -> Sequence[int]:
        """Bytes of each scratch buffer that `run` needs for a tile, always as many of them."""
        ...

    def run(
        self, source: DeviceWindow, tile: Box, target: DeviceWindow, scratch: Sequence[Buffer]
    ) -> None:
        """Queues the work on one tile of the output.

        `source` holds the part of `reads(tile)` that lies inside the picture, `target` the tile;
        both are of any pixel dtype. May raise OutOfMemoryError or BackendError.
        """
        ...

    def layer(self, kernel: Kernel) -> int:
        """Which convolution, from 0, a kernel of this road works for."""
        ...

    def peak(self) -> float:
        """Multiply-adds a second that its units reach at best in its precision, measured now."""
        ...

    def close(self) -> None:
        """Frees the weights."""
        ...


@dataclass(frozen=True)
class Stack:
    """Pictures of one size, one after the other in memory."""

    count: int
    height: int
    width: int


@runtime_checkable
class StackingRoad(Road, Protocol):
    """A road that can compute small pictures together, as one alone leaves most of a chip idle."""

    def stack_scratch(self, stack: Stack) -> Sequence[int]:
        """As `scratch`, for a stack of inputs."""
        ...

    def run_stack(
        self, source: DevicePixels, target: DevicePixels, stack: Stack, scratch: Sequence[Buffer]
    ) -> None:
        """Queues the work on whole pictures; rows of both hold those of all pictures."""
        ...


@dataclass(frozen=True)
class Region:
    """The pixels of one layer's output that are computed for a tile, in coordinates of the output.

    They may lie beyond the picture.
    """

    top: int
    left: int
    rows: int
    columns: int


def regions(tile: Box, layers: int) -> list[Region]:
    """Each layer's region for a tile of the last one's output.

    All are whole cells. The last layer's begin at multiples of CELL in the picture, each layer's
    one pixel before the next's: cells lie alike in every tile, and so tiles give the same bits.
    """
    top, left = tile.top // CELL * CELL, tile.left // CELL * CELL
    rows, columns = whole(tile.bottom - top, CELL), whole(tile.right - left, CELL)
    result = [Region(top, left, rows, columns)]
    for _ in range(layers - 1):
        top, left = top - 1, left - 1
        rows, columns = whole(rows + 2, CELL), whole(columns + 2, CELL)
        result.insert(0, Region(top, left, rows, columns))
    return result


def reads(tile: Box, layers: int, scale: int) -> Box:
    """The part of a model's input behind the first layer's region, see Road."""
    first = regions(tile, layers)[0]
    top, left = (first.top - 1) // scale, (first.left - 1) // scale
    bottom = -(-(first.top + first.rows + 1) // scale)
    right = -(-(first.left + first.columns + 1) // scale)
    return Box(top, left, bottom - top, right - left)


def whole(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


@dataclass(frozen=True)
class Map:
    """Feature maps in a buffer, [planes / block][rows][columns][block]."""

    buffer: Buffer
    rows: int
    columns: int

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Of a kernel."""
        return (self.buffer, np.int32(self.columns), np.int32(self.rows * self.columns))


@dataclass(frozen=True)
class Source:
    """The pixels that a first layer reads."""

    window: DeviceWindow
    region: Region
    """Of the first layer's output."""
    scale: int
    """By which the picture is enlarged."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Of a kernel."""
        window = self.window
        places = (
            window.pixels.shape[1],
            0,
            self.region.top - 1,
            self.region.left - 1,
            window.height * self.scale,
            window.width * self.scale,
            window.top,
            window.left,
        )
        return (window.pixels.buffer, *map(np.int32, places))


@dataclass(frozen=True)
class Target:
    """The pixels that a last layer writes."""

    window: DeviceWindow
    region: Region
    """Of the last layer's output."""
    tile: Box

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Of a kernel."""
        window, region, tile = self.window, self.region, self.tile
        places = (
            window.pixels.shape[1],
            0,
            region.top - window.top,
            region.left - window.left,
            tile.top - window.top,
            tile.bottom - window.top,
            tile.left - window.left,
            tile.right - window.left,
        )
        return (window.pixels.buffer, *map(np.int32, places))


class Layer(Protocol):
    """One convolution of the fp32 road, its weights on the device."""

    planes: int
    """That it writes: those of the convolution, padded with zeros."""
    rows: int
    """Of pixels, of a group; it reads and writes whole groups."""
    columns: int

    def launch(self, source: Any, target: Any, rows: int, columns: int) -> None:
        """Queues the work on so many rows and columns; the ends are of kinds that it takes."""
        ...

    def owns(self, kernel: Kernel) -> bool:
        """Whether this layer launches it."""
        ...

    def close(self) -> None:
        """Frees the weights."""
        ...
