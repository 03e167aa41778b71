"""Defines rectangles of pixels and their arithmetic; their numbers may be symbols."""

from __future__ import annotations

from typing import NamedTuple

from waifu2x.lowering.plan.symbols import larger, smaller
from waifu2x.lowering.values import View


class Box(NamedTuple):
    """A rectangle in pixels; it may reach beyond its map."""

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


def viewed(view: View, box: Box) -> Box:
    """Returns the box of a value that a box of a view covers."""
    moved = Box(box.top + view.offset, box.left + view.offset, box.height, box.width)
    return divided(moved, view.enlarge)


def round_up(count: int, unit: int) -> int:
    """Returns the least multiple of `unit` that is not below `count`."""
    return -(-count // unit) * unit


def divided(box: Box, by: int) -> Box:
    """Returns the box of a map `by` times smaller that a box touches."""
    top, left = box.top // by, box.left // by
    return Box(top, left, -(-box.bottom // by) - top, -(-box.right // by) - left)


def scaled(box: Box, by: int) -> Box:
    """Returns the same box in a map `by` times larger."""
    return Box(box.top * by, box.left * by, box.height * by, box.width * by)


def aligned(box: Box, unit: tuple[int, int]) -> Box:
    """Returns the smallest box of whole units around a box."""
    top, left = box.top // unit[0] * unit[0], box.left // unit[1] * unit[1]
    bottom, right = -(-box.bottom // unit[0]) * unit[0], -(-box.right // unit[1]) * unit[1]
    return Box(top, left, bottom - top, right - left)


def overlap(box: Box, other: Box) -> Box:
    """Returns the pixels that lie in both boxes; there may be none."""
    top, left = larger(box.top, other.top), larger(box.left, other.left)
    bottom, right = smaller(box.bottom, other.bottom), smaller(box.right, other.right)
    return Box(top, left, max(bottom - top, 0), max(right - left, 0))


def hull(box: Box, other: Box | None) -> Box:
    """Returns the smallest box around both."""
    if other is None:
        return box
    top, left = smaller(box.top, other.top), smaller(box.left, other.left)
    bottom, right = larger(box.bottom, other.bottom), larger(box.right, other.right)
    return Box(top, left, bottom - top, right - left)
