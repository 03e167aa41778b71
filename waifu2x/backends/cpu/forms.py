"""How each map of a program lies in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.model import Size


@dataclass(frozen=True, eq=False)
class Form:
    """A map in memory: see `layout`."""

    parts: tuple[int, ...]
    """Planes of each part."""
    padded: tuple[int, ...]
    """The same, made up to whole vectors; what is added is zero."""
    fold: int = 1
    terms: int = 0
    """bf16 terms that values are stored in, less their zero point; 0: as floats."""
    zero_point: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(planes,), padding included; of meaning only where there are terms."""
    zero_offset: int = 0
    """Where that stands among the constants."""

    @property
    def planes(self) -> int:
        """Of a single pixel, with padding."""
        return sum(self.padded)

    @property
    def pixel_floats(self) -> int:
        """Memory of a pixel with all that is folded into it."""
        return self.values * self.terms // 2 if self.terms else self.values

    @property
    def values(self) -> int:
        """Of a pixel in memory, in one term."""
        return self.fold**2 * self.planes

    def strides(self, shuffle: int) -> tuple[int, int, int]:
        """How far results of a shuffle lie apart, in values: of neighbouring pixels from an even
        one on, of the ones after, and of the pixels that the shuffle makes of one."""
        pixel = self.values * max(1, self.terms)
        if self.fold == 1:
            return pixel * shuffle, 2 * pixel * shuffle, pixel
        if self.fold == shuffle:
            return pixel, 2 * pixel, self.planes
        return self.planes, pixel, 0  # folded by two

    def start(self, part: int) -> int:
        """The first plane of a part."""
        return sum(self.padded[:part])

    def positions(self, first: int = 0, parts: int = 1) -> NDArray[np.intp]:
        """Where the planes of some parts lie in a pixel of memory, from the first part's start, in
        the order in which products read them: [dy][dx][plane]."""
        single = np.concatenate(
            [
                self.start(part) - self.start(first) + np.arange(self.parts[part])
                for part in range(first, first + parts)
            ]
        )
        folded = np.arange(self.fold**2)[:, np.newaxis] * self.planes + single
        positions: NDArray[np.intp] = folded.ravel()
        return positions

    def memory_size(self, size: Size) -> Size:
        """Rows and columns in memory of a map of a size."""
        return -(-size[0] // self.fold), -(-size[1] // self.fold)


def round_up(count: int, unit: int) -> int:
    """The next multiple."""
    return -(-count // unit) * unit
