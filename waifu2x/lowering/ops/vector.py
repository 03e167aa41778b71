"""Steps on vectors, which are means of maps or made of them, and dense layers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.values import View
from waifu2x.networks.activations import Activation
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GlobalAvgPool:
    """The mean of each plane of a value, or of its squares, over all of its size, into a vector."""

    node: int
    source: View
    """A value other than the picture, with one part and no offset."""
    vector: int
    squared: bool = False


@dataclass(frozen=True, eq=False)
class Linear:
    """activation(weight @ source + bias), on vectors."""

    node: int
    source: int
    weight: NDArray[np.float32]
    """(out, in)."""
    bias: NDArray[np.float32]
    activation: Activation
    vector: int
