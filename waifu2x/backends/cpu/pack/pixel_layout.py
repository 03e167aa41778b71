"""How a map of a program lies in memory."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class PixelLayout:
    """The planes of a map's pixels as they lie in memory: see `records`."""

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
        """How far apart, in values, results of a depth-to-space with blocks of that side lie: from
        an even pixel to the next, to the one after, and between pixels of one block."""
        pixel = self.values * max(1, self.terms)
        if self.space_to_depth == 1:
            return pixel * block, 2 * pixel * block, pixel
        if self.space_to_depth == block:
            return pixel, 2 * pixel, self.planes
        return self.planes, pixel, 0  # stored by space-to-depth of two

    def start(self, part: int) -> int:
        """The first plane of a part."""
        return sum(self.padded[:part])

    def zero_at(self, part: int) -> int:
        """Where the zero point of a part's first plane stands among the constants."""
        return self.zero_offset + (self.start(part) if self.terms else 0)

    def positions(self, first: int = 0, parts: int = 1) -> NDArray[np.intp]:
        """Where the planes of some parts lie in a pixel of memory, from the first part's start, in
        the order in which convolutions read them: [dy][dx][plane]."""
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
        """Rows and columns in memory of a map of that many single ones."""
        return -(-size[0] // self.space_to_depth), -(-size[1] // self.space_to_depth)
