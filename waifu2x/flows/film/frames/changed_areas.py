"""Finds what has changed between two frames, and the fewest parts of a frame to compute for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.formats.film.description import PixelFormat
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.plan.support import Support

_CELL = 4
"""The side, in pixels, of the squares in which changes are told."""
_LOOKED = 32
"""Rows from one that is looked at first to the next, and pixels of the pieces of such a row."""
_STRIP = 128
"""Rows that are compared together, so that they stay in a core's cache."""
_BORDER = 10
"""Pixels: a part costs as much as if it were so much larger. On a processor, parts of 48x48 pixels
take 1.4 times the time that their share of a frame says, of 144x144 1.1 times."""
_WORTHWHILE = 0.9
"""The most work, as a share of the frame's, that parts may be: they compute their borders twice."""
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
"""Integers of as many bytes."""
_SIZES = 16
"""The sizes, for each doubling, to which sides of parts are rounded up: an engine plans each."""


EnlargeParts = Callable[
    [Sequence[Sequence[NDArray[Any]]], Sequence[Sequence[NDArray[Any]]], Box], Collection[int]
]
"""Enlarges parts of one size of frames, as `frame_device.Enlarge` does frames; results may be
undefined but for those of a box in each, and one pixel around."""


class Area(NamedTuple):
    """A part of a frame that is computed, in pixels of the source."""

    box: Box
    """The part whose result is new."""
    halo: Box
    """The part with all that its result depends on, which is computed as a picture."""
    right: Box
    """The part of the halo whose results are right, counted from the halo's corner: at least `box`.
    It depends on nothing but the size of the halo and on the frame's edges."""


class AreaWork(NamedTuple):
    """How areas of frames are enlarged."""

    enlarge: EnlargeParts
    support: Support
    """That of the network."""
    call: float
    """Seconds that a call takes by itself."""
    border: float
    """The share of a halo's border that is computed: 1, or less for a backend that computes in each
    layer no more than later ones need."""


class AreaFinder:
    """Finds the areas to compute of frames of one size, for one network."""

    def __init__(self, pixels: PixelFormat, height: int, width: int, work: AreaWork) -> None:
        self._pixels, self._size, self._work = pixels, (height, width), work
        self._overhead = 0.0
        """The pixels of a frame that take as long as a call by itself, as far as is known."""
        support = work.support
        self._unit = math.lcm(support.unit, _CELL)
        # Chroma is interpolated between samples, two pixels away at most.
        more = 0 if (pixels.rows, pixels.columns) == (1, 1) else 2
        self._before, self._after = support.before + more, support.after + more

    def took(self, seconds: float, frames: int) -> None:
        """Learns from the time of frames that were computed whole, whose fastest count."""
        pixels = frames * self._size[0] * self._size[1]
        self._overhead = max(self._overhead, self._work.call * pixels / seconds)

    def __call__(
        self, kept: Sequence[NDArray[Any]], planes: Sequence[NDArray[Any]]
    ) -> tuple[Area, ...] | None:
        """Returns the areas of a frame whose results may differ from the kept frame's, none where
        the frames are equal; None if the whole frame takes less time. Planes are (rows, columns)
        in the film's format."""
        if _differs_all_over(kept[0], planes[0]):
            return None
        changed = self._changed(kept, planes)
        if not changed.any():
            return ()
        touched = self._touched(self._touched(changed).T).T
        height, width = self._size
        most = _WORTHWHILE * self._cost(height, width)
        if np.count_nonzero(touched) * self._unit**2 > most:
            return None
        areas = [self._area(*box) for box in self._divided(touched)]
        share = self._work.border
        total = sum(
            self._cost(
                area.right.height + share * (area.halo.height - area.right.height),
                area.right.width + share * (area.halo.width - area.right.width),
            )
            for area in areas
        )
        return tuple(areas) if total <= most else None

    def _changed(
        self, kept: Sequence[NDArray[Any]], planes: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_]:
        """Returns which squares of _CELL pixels have changed in any plane."""
        height, width = self._size
        found = np.zeros((-(-height // _CELL), -(-width // _CELL)), bool)
        for one, other, (rows, columns) in zip(kept, planes, self._pixels.steps, strict=True):
            own = _differences(one, other, _CELL // rows, _CELL // columns)
            found |= own[: len(found), : found.shape[1]]
        return found

    def _touched(self, changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which units of rows have results that depend on changed rows of squares."""
        sums = np.zeros((len(changed) + 1, changed.shape[1]), np.int32)
        np.cumsum(changed, axis=0, dtype=np.int32, out=sums[1:])
        each = self._unit // _CELL
        starts = np.arange(0, len(changed), each)
        first = np.maximum(starts - -(-self._before // _CELL), 0)
        end = np.minimum(starts + each + -(-self._after // _CELL), len(changed))
        touched: NDArray[np.bool_] = sums[end] > sums[first]
        return touched

    def _divided(self, touched: NDArray[np.bool_]) -> Iterator[tuple[int, int, int, int]]:
        """Yields boxes of units, as first and end of rows and columns, that cover what is touched:
        a box is divided where that lessens the work."""
        waiting = [_hull(touched, 0, len(touched), 0, touched.shape[1])]
        while waiting:
            box = waiting.pop()
            halves = self._halves(touched, box)
            if halves is None:
                yield box
            else:
                waiting += halves

    def _halves(
        self, touched: NDArray[np.bool_], box: tuple[int, int, int, int]
    ) -> list[tuple[int, int, int, int]] | None:
        """Returns the two boxes in which a box takes least work; None if it is best undivided."""
        top, bottom, left, right = box
        inside = touched[top:bottom, left:right]
        best, found = self._box_cost(bottom - top, right - left), None
        for axis, part in ((0, inside), (1, inside.T)):
            cut, cost = self._cut(part)
            if cost < best:
                best, found = cost, (axis, cut)
        if found is None:
            return None
        axis, cut = found
        if axis == 0:
            sides = (top, top + cut, left, right), (top + cut, bottom, left, right)
        else:
            sides = (top, bottom, left, left + cut), (top, bottom, left + cut, right)
        return [_hull(touched, *side) for side in sides]

    def _cut(self, part: NDArray[np.bool_]) -> tuple[int, float]:
        """Returns the row before which a cut leaves least work, and that work."""
        rows = len(part)
        if rows < 2:
            return 0, math.inf
        columns = np.arange(part.shape[1])
        first = np.where(part, columns, part.shape[1]).min(axis=1)
        last = np.where(part, columns + 1, 0).max(axis=1)
        used = np.flatnonzero(part.any(axis=1))
        cuts = np.arange(1, rows)
        above = np.maximum.accumulate(last)[:-1] - np.minimum.accumulate(first)[:-1]
        below = (
            np.maximum.accumulate(last[::-1])[::-1] - np.minimum.accumulate(first[::-1])[::-1]
        )[1:]
        # The rows that are used above and below each cut: hulls have no empty ends.
        place = np.searchsorted(used, cuts)
        higher, lower = used[place - 1] + 1, rows - used[np.minimum(place, len(used) - 1)]
        costs = self._box_cost(higher, above) + self._box_cost(lower, below)
        best = int(np.argmin(costs))
        return int(cuts[best]), float(costs[best])

    def _box_cost(self, rows: Any, columns: Any) -> Any:
        """Returns the work for boxes of that many units."""
        more = self._work.border * (self._before + self._after)
        return self._cost(rows * self._unit + more, columns * self._unit + more)

    def _cost(self, height: Any, width: Any) -> Any:
        return (height + _BORDER) * (width + _BORDER) + self._overhead

    def _area(self, top: int, bottom: int, left: int, right: int) -> Area:
        height, width = self._size
        (top, bottom), (left, right) = (
            (first * self._unit, min(end * self._unit, length))
            for first, end, length in ((top, bottom, height), (left, right, width))
        )
        y, rows = self._halo(top, bottom, height)
        x, columns = self._halo(left, right, width)
        first_row, right_rows = self._right(y, rows, height)
        first_column, right_columns = self._right(x, columns, width)
        return Area(
            Box(top, left, bottom - top, right - left),
            Box(y, x, rows, columns),
            Box(first_row, first_column, right_rows, right_columns),
        )

    def _right(self, begin: int, rows: int, length: int) -> tuple[int, int]:
        """Returns the first of the right rows of a halo, and how many they are."""
        first = round_up(self._before, self._unit) if begin else 0
        end = rows
        if begin + rows < length:
            end = (rows - self._after) // self._unit * self._unit
        return first, end - first

    def _halo(self, first: int, end: int, length: int) -> tuple[int, int]:
        """Returns the first row of a halo, and its rows."""
        begin = max(0, first - self._before) // self._unit * self._unit
        rows = min(end + self._after, length) - begin
        step = self._unit * max(1, (1 << rows.bit_length()) // (2 * _SIZES * self._unit))
        rows = round_up(rows, step)
        if rows >= length:
            return 0, length
        # Where the picture ends first, the halo begins earlier: both ends are exact.
        if begin + rows > length:
            begin = (length - rows) // self._unit * self._unit
            rows = length - begin
        return begin, rows


def _differs_all_over(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Returns whether too much has changed for areas, by a few rows of two planes alone."""
    width = one.shape[1] // _LOOKED * _LOOKED
    rows = slice(_LOOKED // 2, None, _LOOKED)
    differ = np.not_equal(one[rows, :width], other[rows, :width])
    if not differ.size:
        return False
    return bool(differ.reshape(-1, _LOOKED).any(axis=1).mean() > _WORTHWHILE)


def _hull(
    touched: NDArray[np.bool_], top: int, bottom: int, left: int, right: int
) -> tuple[int, int, int, int]:
    """Returns the smallest box around what is touched in a box."""
    inside = touched[top:bottom, left:right]
    rows = np.flatnonzero(inside.any(axis=1)) + top
    columns = np.flatnonzero(inside.any(axis=0)) + left
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def _differences(
    one: NDArray[Any], other: NDArray[Any], rows: int, columns: int
) -> NDArray[np.bool_]:
    """Returns which blocks of `rows` x `columns` samples of two planes differ, 1, 2 or 4 each."""
    height, width = one.shape
    found = np.empty((-(-height // rows), -(-width // columns)), bool)
    # The last block of a row or column may be smaller.
    differ = np.zeros((_STRIP, round_up(width, columns)), bool)
    for top in range(0, height, _STRIP):
        count = min(_STRIP, height - top)
        differ[count:] = False
        np.not_equal(one[top : top + count], other[top : top + count], out=differ[:count, :width])
        words = differ.view(_WORDS[columns])
        joined = words[::rows]
        for row in range(1, rows):
            joined = joined | words[row::rows]
        blocks = -(-count // rows)
        np.not_equal(joined[:blocks], 0, out=found[top // rows : top // rows + blocks])
    return found
