"""The nodes of norms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias, of all planes of one pixel.

    The variance is the mean of (x - mean) ** 2.
    """

    source: int
    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    eps: float


@dataclass(frozen=True, eq=False)
class GroupNorm:
    """The same, of all values of a group of neighbouring planes over the network's whole map."""

    source: int
    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""
    groups: int
    eps: float
