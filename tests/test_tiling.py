"""Rectangles of a picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waifu2x.tiling import Box, tiles

SIDES = st.integers(1, 60)
BOXES = st.builds(Box, st.integers(-80, 80), st.integers(-80, 80), SIDES, SIDES)


@given(SIDES, SIDES, st.none() | st.integers(1, 70))
@settings(deadline=None)
def test_tiles_cover_each_pixel_once(height: int, width: int, size: int | None) -> None:
    covered = np.zeros((height, width), int)
    boxes = list(tiles(height, width, size))
    for box in boxes:
        assert 0 <= box.top < box.bottom <= height
        assert 0 <= box.left < box.right <= width
        assert size is None or max(box.height, box.width) <= size
        covered[box.top : box.bottom, box.left : box.right] += 1
    assert (covered == 1).all()
    assert boxes == sorted(boxes)  # row by row
    # No more of them than needed.
    per_side = [1 if size is None else (side + size - 1) // size for side in (height, width)]
    assert len(boxes) == per_side[0] * per_side[1]


@given(BOXES, SIDES, SIDES)
@settings(deadline=None)
def test_clip_keeps_the_pixels_inside(box: Box, height: int, width: int) -> None:
    clipped = box.clip(height, width)
    for first, last, start, stop, size in (
        (clipped.top, clipped.bottom, box.top, box.bottom, height),
        (clipped.left, clipped.right, box.left, box.right, width),
    ):
        # Replicating the edge gives every pixel of the box one of the picture: exactly these.
        needed = sorted({min(max(pixel, 0), size - 1) for pixel in range(start, stop)})
        assert list(range(first, last)) == needed


@pytest.mark.parametrize(
    ("box", "clipped"),
    [
        (Box(-7, -7, 34, 44), Box(0, 0, 20, 30)),
        (Box(3, 4, 5, 6), Box(3, 4, 5, 6)),
        (Box(15, 25, 10, 10), Box(15, 25, 5, 5)),
        (Box(-9, 40, 4, 4), Box(0, 29, 1, 1)),
    ],
)
def test_clip_by_example(box: Box, clipped: Box) -> None:
    assert box.clip(20, 30) == clipped
