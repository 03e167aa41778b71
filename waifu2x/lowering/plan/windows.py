"""Where the windows of attention lie, for whatever computes them: boxes of whole windows, and the
keys that they read."""

from __future__ import annotations

from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import larger, smaller
from waifu2x.networks.model import Size
from waifu2x.networks.windows import Axis, Windows


def whole_windows(windows: Windows, box: Box, size: Size | None) -> Box:
    """The smallest box of whole windows around one; it may overlap beyond the map, which has that
    size. None stands for a large one."""
    rows, columns = size or (None, None)
    top = windows.begin(0, box.top, rows)
    left = windows.begin(1, box.left, columns)
    bottom = windows.begin(0, box.bottom - 1, rows) + windows.rows
    right = windows.begin(1, box.right - 1, columns) + windows.columns
    return Box(top, left, bottom - top, right - left)


def keys_under(windows: Windows, box: Box) -> Box:
    """The keys, in pixels of their map, that a box of whole windows reads; some may lie beyond the
    map."""
    cell, overlap = windows.cell, windows.overlap
    top, left = (box.top - overlap) // cell, (box.left - overlap) // cell
    bottom, right = (box.bottom + overlap) // cell, (box.right + overlap) // cell
    return Box(top, left, bottom - top, right - left)


def existing(windows: Windows, axis: Axis, begin: int, length: int) -> tuple[int, int]:
    """Rows, or columns, of the keys that the window from `begin` on has, in pixels of the map of
    keys: the first, and the one after the last. `length` is that of the map of queries."""
    first = larger(begin, 0) - windows.overlap
    end = smaller(begin + windows.size(axis), windows.filled(length)) + windows.overlap
    return first // windows.cell, end // windows.cell
