"""The maps of a packed program, and how each lies in memory."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.cpu.arithmetic import Arithmetic
from waifu2x.backends.cpu.pack.pixel_layout import PixelLayout
from waifu2x.backends.cpu.pack.shapes import INTEGER_BLOCK, PART_PAIRS


class MapLayouts:
    """The program's values by their numbers, then the maps that are only between two tasks."""

    def __init__(
        self, arithmetic: Arithmetic, layouts: Sequence[PixelLayout], pictures: dict[int, int]
    ) -> None:
        self._arithmetic = arithmetic
        self.layouts = list(layouts)
        self.pictures = pictures
        """The maps that hold the picture, by how much it is enlarged."""

    def is_kept_as_integers(self, value: int) -> bool:
        """Whether a map is kept between phases as 16-bit integers: where convolutions read such."""
        fits = self.layouts[value].values % INTEGER_BLOCK == 0
        return self._arithmetic == "int16" and fits

    def kept_floats(self, value: int) -> int:
        """Floats that a pixel of a map takes where it is kept between phases."""
        layout = self.layouts[value]
        if self.is_kept_as_integers(value):
            return layout.values // 2 + -(-layout.values // (2 * PART_PAIRS))
        return layout.pixel_floats
