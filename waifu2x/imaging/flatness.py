"""Detects flat colours, which most drawings have, in a few milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 8
_ROWS = 64
"""The most rows of blocks that are looked at, evenly spread."""
_LEVELS = 2
"""Levels of 8 bits within which a block counts as flat."""
FLAT = 0.25
"""The share of flat blocks from which colours count as flat: sprites and pages have at least 0.31
at JPEG quality 85, photos at most 0.18 (benchmarks/noise_pictures.py). A blurred photo without
texture has up to 0.75: limits for flat colours are low enough for it."""


def flat_share(pixels: NDArray[Any]) -> float:
    """Returns the share of 8x8 blocks of 8-bit pixels (H, W, 1 or 3) whose grey or green hardly
    varies."""
    height, width = pixels.shape[0] // _BLOCK, pixels.shape[1] // _BLOCK
    if not height or not width:
        return 0.0
    plane: NDArray[Any] = pixels[..., pixels.shape[-1] // 2]
    flat = 0
    chosen = range(0, height, -(-height // _ROWS))
    for row in chosen:
        band = plane[row * _BLOCK : (row + 1) * _BLOCK, : width * _BLOCK]
        high = band.max(axis=0).reshape(width, _BLOCK).max(axis=1)
        low = band.min(axis=0).reshape(width, _BLOCK).min(axis=1)
        flat += int(np.count_nonzero(high - low <= _LEVELS))
    share: float = flat / (len(chosen) * width)
    return share


def is_flat(pixels: NDArray[Any]) -> bool:
    """Returns whether 8-bit pixels (H, W, 1 or 3) have flat colours."""
    return flat_share(pixels) >= FLAT
