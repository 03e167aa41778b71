"""How the maps of a program lie in memory."""

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
    """How the planes of a map's pixels lie in memory: see `records`."""

    parts: tuple[int, ...]
    """Planes of each part."""
    padded: tuple[int, ...]
    """Planes of each part, made up to whole vectors; what is added is zero."""
    space_to_depth: int = 1
    """Pixels a side that are stored as the planes of one."""
    terms: int = 0
    """bf16 terms that values are stored in, less their zero point; 0: as floats."""
    zero_point: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(planes,), padding included; of meaning only where there are terms."""
    zero_offset: int = 0
    """Where that stands among the constants."""
    stays_float: bool = False
    """Whether it is kept between phases as floats, in any arithmetic."""

    @property
    def planes(self) -> int:
        """Planes of a single pixel, padding included."""
        return sum(self.padded)

    @property
    def pixel_floats(self) -> int:
        """Floats from one pixel in memory to the next."""
        return self.values * self.terms // 2 if self.terms else self.values

    @property
    def values(self) -> int:
        """Values of a pixel in memory, in one term."""
        return self.space_to_depth**2 * self.planes

    def strides(self, block: int) -> tuple[int, int, int]:
        """Returns how far apart, in values, results of a depth-to-space with blocks of that side
        lie: from an even pixel to the next, to the one after, and between pixels of one block."""
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
        """Returns where the zero point of a part's first plane stands among the constants."""
        return self.zero_offset + (self.start(part) if self.terms else 0)

    def positions(self, first: int = 0, parts: int = 1) -> NDArray[np.intp]:
        """Returns where the planes of some parts lie in a pixel of memory, from the first part's
        start, in the order in which convolutions read them: [dy][dx][plane]."""
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
        """Returns the rows and columns in memory of a map of that many single ones."""
        return -(-size[0] // self.space_to_depth), -(-size[1] // self.space_to_depth)


class MapLayouts:
    """Holds the layouts of a packed program's maps: its values by their numbers, then the maps that
    are only between two tasks."""

    def __init__(
        self, arithmetic: Arithmetic, layouts: Sequence[PixelLayout], pictures: dict[int, int]
    ) -> None:
        self._arithmetic = arithmetic
        self.layouts = list(layouts)
        self.pictures = pictures
        """The maps that hold the picture, by how much it is enlarged."""

    def is_kept_as_integers(self, value: int) -> bool:
        """Returns whether a map is kept between phases as 16-bit integers: where convolutions read
        such."""
        layout = self.layouts[value]
        fits = layout.values % INTEGER_BLOCK == 0 and not layout.stays_float
        return self._arithmetic == "int16" and fits

    def kept_floats(self, value: int) -> int:
        """Returns how many floats a pixel of a map takes where it is kept between phases."""
        layout = self.layouts[value]
        if self.is_kept_as_integers(value):
            return layout.values // 2 + -(-layout.values // (2 * PART_PAIRS))
        return layout.pixel_floats
