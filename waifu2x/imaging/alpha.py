"""Transparency: what lies under transparent pixels must not bleed into the visible ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def bleed(planes: NDArray[np.float32], alpha: NDArray[Any], radius: int) -> NDArray[np.float32]:
    """Planes (H, W, C) whose transparent pixels take the colour of visible ones near them.

    `alpha` is (H, W), 0 where a pixel is transparent. In each of `radius` rounds the pixels next to
    known ones get the mean of those; what is farther away becomes 0. This is what the original
    waifu2x does before it scales (alpha_util.lua, nunif's alpha.py).
    """
    known = alpha > 0
    result = np.where(known[..., np.newaxis], planes, np.float32(0))
    for _ in range(radius):
        if known.all():
            break
        total = _sum_3x3(result)
        count = _sum_3x3(known[..., np.newaxis].astype(np.float32))
        fresh = ~known & (count[..., 0] > 0)
        result[fresh] = total[fresh] / count[fresh]
        known = known | fresh
    return result


def _sum_3x3(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of each pixel of (H, W, C) and its eight neighbours, 0 outside."""
    padded = np.pad(planes, ((1, 1), (1, 1), (0, 0)))
    height, width = planes.shape[:2]
    total = np.zeros_like(planes)
    for y in range(3):
        for x in range(3):
            total += padded[y : y + height, x : x + width]
    return total
