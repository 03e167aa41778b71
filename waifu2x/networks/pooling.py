"""The nodes of branches that work on a reduced map: maxima, and the way back to a map's size."""

from __future__ import annotations

from waifu2x.system.lazy_dataclass import dataclass

MOST_KERNEL = 64
"""Rows and columns of the pixels that one maximum is of, at most."""


@dataclass(frozen=True)
class MaxPool:
    """The maximum of each plane over kernel x kernel pixels, at every `stride` pixels.

    Pixels that do not fill a kernel at the right and below are left out. A map that is smaller than
    the kernel makes one pixel, of all that there is.
    """

    source: int
    kernel: int
    stride: int

    def length(self, length: int) -> int:
        """Rows, or columns, of what it makes of so many."""
        return max((length - self.kernel) // self.stride + 1, 1)


@dataclass(frozen=True)
class InterpolateTo:
    """The map enlarged to the size of another one, by bilinear interpolation of 2x2 pixels.

    Pixel y of H of the result stands at (y + 1/2) * h / H - 1/2 of the source's h, and at 0 where
    that is below 0; in the last half pixel, the last one is repeated.
    """

    source: int
    like: int
    """The map whose size it gets; only that is read of it."""
