"""Measures the accuracy of a fast mode against the exact one, by which `auto` decides.

A network may amplify rounding errors, or add numbers that cancel. So both modes compute probe
pictures once, and the answer is stored. Three are enough: a drawing with edges half a pixel soft,
as painting programs and cameras make them; a photo, noise of all frequencies; and the worst case, a
drawing with hard edges and lines one pixel wide.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.model import Model

PROMISED = 60.0
"""The PSNR in dB that `auto` promises."""
_SIDE = 96
_LEAST_SIDE = 24
_MOST_RESULT = 8 * _SIDE
"""Pixels a side of the largest result of a probe."""
_MOST_WORK = 1 << 37
"""Multiply-adds of a probe: some seconds."""
_FILLS = 10
_LINES = 4
_FINER = 4
"""The factor by which a smooth drawing is drawn larger, then averaged down."""
_SHARED = 0.8
"""The weight of the first plane of a photo in the others."""


def decibels(fast: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    """Returns the PSNR in dB of the fast mode's result against the exact one; 0 if that is negative
    or not a number."""
    error = np.square(fast.astype(np.float64) - exact).mean()
    return float(-10 * np.log10(error.clip(1e-30, 1))) if error <= 1 else 0.0


def side(model: Model) -> int:
    """Returns the side in pixels of a probe for a model: a smaller one for a model that takes many
    multiply-adds for a pixel, or enlarges much."""
    work = max(1, model.multiply_adds * model.scale**2)
    most = min(_SIDE, _MOST_RESULT // model.scale, math.isqrt(_MOST_WORK // work))
    return max(_LEAST_SIDE, most)


def drawing(planes: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """Draws (side, side, planes): overlapping flat ellipses and boxes, and black and white lines
    one pixel wide, with hard edges."""
    return _drawn(planes, side, 1)


def smooth_drawing(planes: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """Draws the same with lines two pixels wide and smooth edges."""
    finer = _drawn(planes, side * _FINER, _FINER)
    cells = finer.reshape(side, _FINER, side, _FINER, planes)
    means: NDArray[np.float64] = cells.mean((1, 3))
    return np.rint(means).astype(np.uint8)


def photo(planes: int, side: int = _SIDE) -> NDArray[np.uint8]:
    """Returns noise (side, side, planes) whose amplitude falls with the frequency, as in photos."""
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
    """Draws with lines that reach `wide` pixels to both sides of their middles."""
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
