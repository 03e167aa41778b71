"""Defines the layouts of a program's maps in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import Arithmetic
from waifu2x.backends.cpu.pack.shapes import INTEGER_BLOCK, PART_PAIRS
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class PixelLayout:
    """The layout of the planes of a map's pixels in memory; see `records`."""

    parts: tuple[int, ...]
    """The planes of each part."""
    padded: tuple[int, ...]
    """The planes of each part, padded with zeros to whole vectors."""
    space_to_depth: int = 1
    """The side of the block of pixels that is stored as one pixel."""
    terms: int = 0
    """The bf16 terms of stored values, less their zero point; 0: floats."""
    zero_point: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(planes,), with padding; valid only with bf16 terms."""
    zero_offset: int = 0
    """The offset of the zero point among the constants."""
    stays_float: bool = False
    """Whether it is kept between phases as floats in every arithmetic."""

    @property
    def planes(self) -> int:
        """The planes of a single pixel, with padding."""
        return sum(self.padded)

    @property
    def pixel_floats(self) -> int:
        """The stride between stored pixels, in floats."""
        return self.values * self.terms // 2 if self.terms else self.values

    @property
    def values(self) -> int:
        """The values of a stored pixel, in one term."""
        return self.space_to_depth**2 * self.planes

    def strides(self, block: int) -> tuple[int, int, int]:
        """Returns the strides, in values, of results of a depth-to-space with blocks of that side:
        from an even pixel to the next, to the one after, and between pixels of one block."""
        pixel = self.values * max(1, self.terms)
        if self.space_to_depth == 1:
            return pixel * block, 2 * pixel * block, pixel
        if self.space_to_depth == block:
            return pixel, 2 * pixel, self.planes
        return self.planes, pixel, 0  # stored by space-to-depth of two

    def start(self, part: int) -> int:
        """Returns the first plane of a part."""
        return sum(self.padded[:part])

    def zero_at(self, part: int) -> int:
        """Returns the offset among the constants of the zero point of a part's first plane."""
        return self.zero_offset + (self.start(part) if self.terms else 0)

    def positions(self, first: int = 0, parts: int = 1) -> NDArray[np.intp]:
        """Returns the index of each plane of some parts in a stored pixel, counted from part
        `first`, in the order in which convolutions read them: [dy][dx][plane]."""
        single = np.concatenate(
            [
                self.start(part) - self.start(first) + np.arange(self.parts[part])
                for part in range(first, first + parts)
            ]
        )
        blocks = np.arange(self.space_to_depth**2)[:, np.newaxis] * self.planes + single
        positions: NDArray[np.intp] = blocks.ravel()
        return positions

    def memory_size(self, size: Size) -> Size:
        """Returns the stored rows and columns of a map of `size` single ones."""
        return -(-size[0] // self.space_to_depth), -(-size[1] // self.space_to_depth)


class MapLayouts:
    """Holds the layouts of a packed program's maps: its values by number, then maps that are only
    between two tasks."""

    def __init__(
        self, arithmetic: Arithmetic, layouts: Sequence[PixelLayout], pictures: dict[int, int]
    ) -> None:
        self._arithmetic = arithmetic
        self.layouts = list(layouts)
        self.pictures = pictures
        """The maps that hold the picture, by its enlargement."""

    def is_kept_as_integers(self, value: int) -> bool:
        """Returns whether a map is kept between phases as the integers that convolutions read."""
        layout = self.layouts[value]
        fits = layout.values % INTEGER_BLOCK == 0 and not layout.stays_float
        return self._arithmetic == "int16" and fits

    def kept_floats(self, value: int) -> int:
        """Returns the floats of a pixel of a map as it is kept between phases."""
        layout = self.layouts[value]
        if self.is_kept_as_integers(value):
            return layout.values // 2 + -(-layout.values // (2 * PART_PAIRS))
        return layout.pixel_floats
