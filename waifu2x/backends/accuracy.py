"""How close a fast way of computing a network comes to the exact one: what `auto` decides by.

A network may multiply what rounding leaves, or add what cancels. So probe pictures go through both
ways once, and the answer is kept. Three are enough: a drawing as painting programs and cameras make
them, whose edges are smooth by half a pixel; a photo, noise of all frequencies; and the worst kind,
a drawing whose edges are not smoothed and whose lines are one pixel wide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PROMISED = 60.0
"""PSNR in dB that `auto` keeps."""
_SIDE = 96
_FILLS = 10
_LINES = 4
_FINER = 4
"""Pixels a side of a smooth drawing of which each of its own is the mean."""
_SHARED = 0.8
"""The share of a photo's planes that they have in common."""


def decibels(fast: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    """PSNR in dB of a result of the fast way against that of the exact one; 0 if it is worse, or
    no number."""
    error = np.square(fast.astype(np.float64) - exact).mean()
    return float(-10 * np.log10(error.clip(1e-30, 1))) if error <= 1 else 0.0


def drawing(planes: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """(side, side, planes): flat ellipses and boxes over each other, and lines in black and white,
    one pixel wide, with hard edges."""
    return _drawn(planes, side, 1)


def smooth_drawing(planes: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """The same with lines two pixels wide and smooth edges."""
    finer = _drawn(planes, side * _FINER, _FINER)
    cells = finer.reshape(side, _FINER, side, _FINER, planes)
    means: NDArray[np.float64] = cells.mean((1, 3))
    return np.rint(means).astype(np.uint8)


def photo(planes: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """(side, side, planes): noise whose strength falls with the frequency, as in photos."""
    random = np.random.default_rng(1)
    along = np.fft.fftfreq(side)
    frequency = np.hypot(along[:, np.newaxis], along)
    frequency[0, 0] = 1 / side
    waves = np.fft.fft2(random.standard_normal((planes, side, side))) / frequency
    made = np.fft.ifft2(waves).real
    made[1:] = _SHARED * made[0] + (1 - _SHARED) * made[1:]
    made = (made - made.min()) / np.ptp(made)
    return np.ascontiguousarray(np.rint(made * 255).astype(np.uint8).transpose(1, 2, 0))


def _drawn(planes: int, side: int, wide: int) -> NDArray[np.uint8]:
    """A drawing with lines of half that width on both sides."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side]
    picture = np.empty((side, side, planes), np.uint8)
    picture[:] = random.integers(0, 256, planes)
    for number in range(_FILLS):
        top, left = rows - random.integers(side), columns - random.integers(side)
        height, width = random.integers(3, side // 3, 2)
        box = (abs(top) < height) & (abs(left) < width)
        ellipse = (top / height) ** 2 + (left / width) ** 2 < 1
        picture[box if number % 2 else ellipse] = random.integers(0, 256, planes)
    for number in range(_LINES):
        angle, place = random.uniform(0, np.pi), random.uniform(-side / 3, side / 3)
        along = (columns - side / 2) * np.cos(angle) + (rows - side / 2) * np.sin(angle)
        picture[abs(along - place) < wide] = number % 2 * 255
    return picture
