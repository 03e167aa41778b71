"""The definition of planes of films as RGB, written once more: float64, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SHARES = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "smpte240m": (0.212, 0.087),
    "fcc": (0.30, 0.11),
    "rgb": (0.0, 0.0),
}
OFFSETS = {"left": (0.5, 0.0), "topleft": (0.0, 0.0), "center": (0.5, 0.5)}
"""Rows and columns from the first of two pixels to their sample."""

Planes = Sequence[NDArray[Any]]


class Meaning(NamedTuple):
    """The meaning of codes of samples."""

    bits: int
    subsampling: str
    matrix: str
    is_full_range: bool
    siting: str

    @property
    def steps(self) -> tuple[int, int]:
        """Pixels down and across for each sample of chroma."""
        return {"400": (1, 1), "420": (2, 2), "422": (1, 2), "444": (1, 1)}[self.subsampling]

    def levels(self) -> tuple[float, float, float, float]:
        """Black, white less black, no chroma, all chroma."""
        s, top = 2.0 ** (self.bits - 8), 2.0**self.bits - 1
        return (0, top, 128 * s, top) if self.is_full_range else (16 * s, 219 * s, 128 * s, 224 * s)


def to_rgb(planes: Planes, meaning: Meaning) -> NDArray[np.float64]:
    """(H, W, 3), not clipped."""
    kr, kb = SHARES[meaning.matrix]
    black, light, none, most = meaning.levels()
    y = (planes[0].astype(np.float64) - black) / light
    if meaning.subsampling == "400":
        return np.dstack([y, y, y])
    if meaning.matrix == "rgb":
        green, blue, red = ((plane.astype(np.float64) - black) / light for plane in planes)
        return np.dstack([red, green, blue])
    height, width = y.shape
    u, v = (
        (_interpolated(plane.astype(np.float64), height, width, meaning) - none) / most
        for plane in planes[1:]
    )
    red, blue = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    return np.dstack([red, green, blue])


def from_rgb(rgb: NDArray[Any], meaning: Meaning) -> list[NDArray[np.float64]]:
    """Each plane in codes, neither rounded nor clipped."""
    kr, kb = SHARES[meaning.matrix]
    black, light, none, most = meaning.levels()
    red, green, blue = (rgb[..., plane].astype(np.float64) for plane in range(3))
    if meaning.matrix == "rgb":
        return [colour * light + black for colour in (green, blue, red)]
    y = kr * red + (1 - kr - kb) * green + kb * blue
    if meaning.subsampling == "400":
        return [y * light + black]
    chroma = (blue - y) / (2 * (1 - kb)), (red - y) / (2 * (1 - kr))
    return [y * light + black, *(_averaged(c, meaning) * most + none for c in chroma)]


def codes(values: Sequence[NDArray[np.float64]], bits: int) -> list[NDArray[np.int64]]:
    """Values rounded half up, within the bits."""
    return [np.clip(np.floor(v + 0.5), 0, 2**bits - 1).astype(np.int64) for v in values]


def _interpolated(
    plane: NDArray[np.float64], height: int, width: int, meaning: Meaning
) -> NDArray[np.float64]:
    (down, across), (below, right) = meaning.steps, OFFSETS[meaning.siting]
    if down == across == 1:
        return plane
    made = np.empty((height, width))
    for y, x in np.ndindex(height, width):
        row = (y - below) / 2 if down == 2 else float(y)
        column = (x - right) / 2 if across == 2 else float(x)
        made[y, x] = _between(plane, row, column)
    return made


def _between(plane: NDArray[np.float64], row: float, column: float) -> float:
    """A value between four samples; those at the edges go on."""
    top, left = math.floor(row), math.floor(column)
    value = 0.0
    for y, y_share in ((top, 1 - (row - top)), (top + 1, row - top)):
        for x, x_share in ((left, 1 - (column - left)), (left + 1, column - left)):
            value += y_share * x_share * _at(plane, y, x)
    return value


def _averaged(plane: NDArray[np.float64], meaning: Meaning) -> NDArray[np.float64]:
    down, across = meaning.steps
    below, right = OFFSETS[meaning.siting]
    if down == across == 1:
        return plane
    height, width = plane.shape
    made = np.empty((-(-height // down), -(-width // across)))
    for y, x in np.ndindex(*made.shape):
        made[y, x] = sum(
            y_share * x_share * _at(plane, y * down + dy, x * across + dx)
            for dy, y_share in _around(down, below)
            for dx, x_share in _around(across, right)
        )
    return made


def _around(step: int, offset: float) -> list[tuple[int, float]]:
    if step == 1:
        return [(0, 1.0)]
    return [(0, 0.5), (1, 0.5)] if offset else [(-1, 0.25), (0, 0.5), (1, 0.25)]


def _at(plane: NDArray[np.float64], y: int, x: int) -> float:
    height, width = plane.shape
    return float(plane[min(max(y, 0), height - 1), min(max(x, 0), width - 1)])
