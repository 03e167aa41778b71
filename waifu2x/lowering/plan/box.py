"""Rectangles of a picture."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle in pixels; it may reach beyond what it is a part of."""

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
