"""Rectangles of a picture. Tiles butt together: no overlap, no blending, no seams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle in pixels; it may reach beyond the picture, where edges are replicated."""

    top: int
    left: int
    height: int
    width: int

    @property
    def bottom(self) -> int:
        """The row after the last one."""
        return self.top + self.height

    @property
    def right(self) -> int:
        """The column after the last one."""
        return self.left + self.width

    def clip(self, height: int, width: int) -> Box:
        """The part inside a picture of `height` x `width`, at least one pixel of its edge."""
        top, left = min(max(self.top, 0), height - 1), min(max(self.left, 0), width - 1)
        bottom, right = (
            min(max(self.bottom, top + 1), height),
            min(max(self.right, left + 1), width),
        )
        return Box(top, left, bottom - top, right - left)


def tiles(height: int, width: int, size: int | None) -> Iterator[Box]:
    """Boxes of at most `size` x `size` that cover a picture row by row; None is one box."""
    step_y, step_x = (height, width) if size is None else (size, size)
    for top in range(0, height, step_y):
        for left in range(0, width, step_x):
            yield Box(top, left, min(step_y, height - top), min(step_x, width - left))
