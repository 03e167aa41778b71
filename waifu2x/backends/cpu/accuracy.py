"""How close a fast way of computing a network comes to the exact one: what `auto` decides by.

A network may multiply what rounding leaves: of SPAN, whose maps are gates of each other, 16-bit
integers keep 29 dB of a drawing, of vgg_7 70. So a drawing of the worst kind, flat fills with hard
edges and lines, goes through both ways once, and the answer is kept. On examples/drawn.png 22 of 24
networks came out 3 dB worse to 3 dB better, on its photo all of them better.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import Arithmetic, Fineness
from waifu2x.backends.cpu.compiled import contents, environment
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache

PROMISED = 60.0
"""PSNR in dB that `auto` keeps."""
Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""A picture (rows, columns, planes) through a network."""
_KIND = "accuracy"
_SOURCES = (
    "backends/cpu/**/*.py",
    "backends/winograd.py",
    "lowering/**/*.py",
    "networks/**/*.py",
)
"""The files that decide what the processor makes of a model's file."""
_SIDE = 96
_FILLS = 10
_LINES = 4


def decibels(
    model: Model, arithmetic: Arithmetic, fineness: Fineness, fast: Run, exact: Run
) -> float:
    """PSNR in dB of a fast arithmetic against the exact one, found by trying, or in the cache.

    The answer is kept for this code, this processor and the model.
    """

    def found() -> float:
        picture = drawing(model.in_planes)
        error = np.square(fast(picture).astype(np.float64) - exact(picture)).mean()
        return float(-10 * np.log10(max(error, 1e-30)))

    key = cache.digest(_code(), model_digest(model), arithmetic, str(fineness))
    return cache.number(_KIND, key, found)


@once
def _code() -> str:
    """A digest of the code, which does not change while the program runs."""
    return cache.digest(*environment(), *contents(_SOURCES))


def drawing(planes: int) -> NDArray[np.uint8]:
    """(96, 96, planes): flat ellipses and boxes over each other, and lines in black and white."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:_SIDE, :_SIDE]
    picture = np.empty((_SIDE, _SIDE, planes), np.uint8)
    picture[:] = random.integers(0, 256, planes)
    for number in range(_FILLS):
        top, left = rows - random.integers(_SIDE), columns - random.integers(_SIDE)
        height, width = random.integers(3, _SIDE // 3, 2)
        box = (abs(top) < height) & (abs(left) < width)
        ellipse = (top / height) ** 2 + (left / width) ** 2 < 1
        picture[box if number % 2 else ellipse] = random.integers(0, 256, planes)
    for number in range(_LINES):
        angle, place = random.uniform(0, np.pi), random.uniform(-_SIDE / 3, _SIDE / 3)
        along = (columns - _SIDE / 2) * np.cos(angle) + (rows - _SIDE / 2) * np.sin(angle)
        picture[abs(along - place) < 1] = number % 2 * 255
    return picture
