"""Measures how much pictures differ, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.errors import ImageError
from waifu2x.imaging import resample
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sizes import Part
from waifu2x.lowering.plan.box import Box
from waifu2x.system.lazy_dataclass import dataclass

_SIGMA, _RADIUS = 1.5, 5
_C1, _C2 = 0.01**2, 0.03**2
_BAND_VALUES = 1 << 20
"""Values of a picture in one band: computing with them takes some 100 MiB."""
_LEAST_SHARE = 0.98
"""The least ratio of two pictures' proportions: below it, they show different things."""
_CELLS = 4
"""Steps of a square's side in which its place is chosen."""
_NEAR, _NEARBY = 4, 0.25
"""Squares within 1/4 of the picture, in both directions, of a chosen one weigh a quarter."""
_SAME_LINE, _SAME_EDGE = 0.5, 0.1
"""Squares above, below or beside a chosen one weigh half, those along the same edge of the picture
a twentieth: a line or a border looks the same all along."""


@dataclass(frozen=True)
class Comparison:
    """Two pictures at one size, and how much they differ."""

    first: NDArray[Any]
    second: NDArray[Any]
    """Both (H, W, 1 or 3); the pixel dtypes may differ."""
    resized: str | None
    """The picture that was resized to the other's size, `first` or `second`; None if neither."""
    psnr: float
    """Peak signal to noise ratio in dB, over all values; infinite for equal pictures."""
    ssim: float
    """Structural similarity (Wang et al. 2004), the mean over planes: 1 for equal pictures."""
    largest: float
    """The largest difference of two values, 0 to 1."""
    differing: float
    """The share of pixels that differ, by more than half a level of 16 bits."""


def compare(first: Picture, second: Picture) -> Comparison:
    """Compares two pictures; the smaller one is enlarged to the size of the other by Lanczos.

    Transparent pictures are compared on white; grey counts as RGB if the other one is RGB. Raises
    ImageError for pictures whose proportions differ by more than 2 %.
    """
    one, other = (on_white(each, _exact(each.pixels)) for each in (first, second))
    resized = None
    if one.shape[:2] != other.shape[:2]:
        _refuse_other_shapes(one, other)
        if one.shape[0] * one.shape[1] < other.shape[0] * other.shape[1]:
            resized, one = "first", _at_size(one, other)
        else:
            resized, other = "second", _at_size(other, one)
    shape = (*one.shape[:2], max(one.shape[-1], other.shape[-1]))
    one, other = np.broadcast_to(one, shape), np.broadcast_to(other, shape)
    square, largest, differing = 0.0, 0.0, 0
    for rows in _bands(one.shape):
        difference = abs(to_unit(one[rows], np.float64) - to_unit(other[rows], np.float64))
        square += float((difference**2).sum())
        largest = max(largest, float(difference.max()))
        differing += int((difference.max(axis=-1) > 0.5 / 65535).sum())
    error = square / one.size
    psnr = math.inf if not error else -10 * math.log10(error)
    share = differing / (one.shape[0] * one.shape[1])
    return Comparison(one, other, resized, psnr, ssim(one, other), largest, share)


def ssim(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Returns the structural similarity of two arrays (H, W, C) of pixel dtypes; 1 for equal ones.

    Its windows are Gaussian, sigma 1.5, 11 x 11, within the picture; a smaller picture has a single
    window of all its pixels. Variances are those of populations.
    """
    if min(one.shape[:2]) <= 2 * _RADIUS:
        return float(np.mean(_similarity(*(f.mean((0, 1)) for f in _moments(one, other)))))
    taps = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
    taps /= taps.sum()
    total, count = 0.0, 0
    for rows in _bands((len(one) - 2 * _RADIUS, *one.shape[1:])):
        window = slice(rows.start, min(rows.stop + 2 * _RADIUS, len(one)))
        moments = (_filtered(f, taps) for f in _moments(one[window], other[window]))
        found = _similarity(*moments)
        total, count = total + float(found.sum()), count + found.size
    return total / count


def worst_boxes(pictures: Sequence[NDArray[Any]], side: int, count: int) -> list[Box]:
    """Returns at most `count` squares of `side` pixels where pictures differ most, worst first.

    They do not overlap, and are spread: squares near a chosen one, or in line with it, weigh less.
    `pictures` are two or more arrays (H, W, C) of one shape. A square's error is the sum over its
    values of the square of the largest difference between any two pictures. Equal areas have no
    squares; in small pictures squares are smaller.
    """
    height, width = pictures[0].shape[:2]
    side = min(side, height, width)
    cell = max(1, side // _CELLS)
    errors = np.zeros((-(-height // cell), -(-width // cell)))
    for row in range(len(errors)):
        rows = slice(row * cell, (row + 1) * cell)
        bands = [to_unit(values[rows], np.float32) for values in pictures]
        difference = np.maximum.reduce(bands) - np.minimum.reduce(bands)
        squares = (difference**2).sum(axis=(0, 2), dtype=np.float64)
        errors[row] = np.add.reduceat(squares, range(0, width, cell))
    across = -(-side // cell)
    padded = np.pad(errors, ((0, across - 1), (0, across - 1)))
    sums = np.lib.stride_tricks.sliding_window_view(padded, (across, across)).sum(axis=(2, 3))
    tops = np.arange(0, height, cell).clip(max=height - side)
    lefts = np.arange(0, width, cell).clip(max=width - side)
    boxes: list[Box] = []
    while len(boxes) < count and sums.max() > 0:
        y, x = np.unravel_index(int(sums.argmax()), sums.shape)
        boxes.append(Box(int(tops[y]), int(lefts[x]), side, side))
        below, beside = abs(tops - tops[y]), abs(lefts - lefts[x])
        for offsets, ends, axis in ((below, tops, sums), (beside, lefts, sums.T)):
            axis[offsets < side] *= _SAME_LINE
            if offsets[0] == 0 or offsets[-1] == 0:
                axis[ends == ends[offsets == 0][0]] *= _SAME_EDGE
        sums[np.ix_(below < height // _NEAR, beside < width // _NEAR)] *= _NEARBY
        sums[np.ix_(below < side, beside < side)] = 0
    return boxes


def on_white(picture: Picture, dtype: DTypeLike) -> NDArray[Any]:
    """Returns a picture as on a white background, (H, W, 1 or 3); in `dtype` if it is
    transparent."""
    if picture.alpha is None:
        return picture.pixels
    result = np.empty(picture.pixels.shape, dtype)
    for rows in _bands(result.shape):
        opacity = to_unit(picture.alpha[rows], np.float32)[..., np.newaxis]
        values = to_unit(picture.pixels[rows], np.float32) * opacity + (1 - opacity)
        result[rows] = from_unit(values, dtype)
    return result


def _exact(pixels: NDArray[Any]) -> DTypeLike:
    return np.float32 if pixels.dtype == np.float32 else np.uint16


def _refuse_other_shapes(one: NDArray[Any], other: NDArray[Any]) -> None:
    (height, width), (other_height, other_width) = one.shape[:2], other.shape[:2]
    proportions = sorted([height * other_width, width * other_height])
    # A pixel more or less is rounding.
    slack = max(height, width, other_height, other_width)
    if proportions[0] + slack < _LEAST_SHARE * proportions[1]:
        raise ImageError(
            f"pictures of {width}x{height} and {other_width}x{other_height} have other proportions",
            "crop one of them first",
        )


def _at_size(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    height, width = like.shape[:2]
    return resample.lanczos(values, Part.of(*values.shape[:2]), 1, height, width, _exact(values))


def _moments(one: NDArray[Any], other: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Yields the arrays whose means in a window make its similarity: x, y, xx, yy, xy."""
    x, y = to_unit(one, np.float64), to_unit(other, np.float64)
    yield from (x, y, x * x, y * y, x * y)


def _similarity(
    x: NDArray[Any], y: NDArray[Any], xx: NDArray[Any], yy: NDArray[Any], xy: NDArray[Any]
) -> NDArray[Any]:
    luminance = (2 * x * y + _C1) / (x * x + y * y + _C1)
    structure = (2 * (xy - x * y) + _C2) / (xx - x * x + yy - y * y + _C2)
    found: NDArray[Any] = luminance * structure
    return found


def _filtered(values: NDArray[np.float64], taps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Filters (H, W, C) by separable taps, where their window lies within."""
    rows, columns = (size - len(taps) + 1 for size in values.shape[:2])
    down = sum(tap * values[y : y + rows] for y, tap in enumerate(taps))
    across: NDArray[np.float64] = sum(tap * down[:, x : x + columns] for x, tap in enumerate(taps))
    return across


def _bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yields the bands of rows of arrays of that shape, (H, W, C)."""
    rows = max(1, _BAND_VALUES // math.prod(shape[1:]))
    for top in range(0, shape[0], rows):
        yield slice(top, min(top + rows, shape[0]))
