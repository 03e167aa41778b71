"""The two arrays that tasks of a program point into: weights and constants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.pack.records import aligned
from waifu2x.backends.cpu.pack.shapes import CONFIG_FLOATS, LANES
from waifu2x.backends.cpu.pack.weights import tile_config


class Arrays:
    """Weights and constants while they are gathered, and their places."""

    def __init__(self) -> None:
        self._weights: list[NDArray[np.float32]] = [tile_config()]
        self._constants: list[NDArray[np.float32]] = []
        self._weight_floats, self._constant_floats = CONFIG_FLOATS, 0

    def add_weight(self, values: NDArray[np.float32]) -> int:
        """Adds weights, flat, in the order in which their kernel reads them: where they begin."""
        self._weights.append(values)
        self._weight_floats += values.size
        return self._weight_floats - values.size

    def add_constant(self, values: NDArray[np.floating]) -> int:
        """Adds constants, flat: where they begin."""
        self._constants.append(values.astype(np.float32))
        self._constant_floats += values.size
        return self._constant_floats - values.size

    def weights(self) -> NDArray[np.float32]:
        """All weights behind each other, on a cache line."""
        return np.concatenate(self._weights, out=aligned(self._weight_floats))

    def constants(self) -> NDArray[np.float32]:
        """All constants behind each other, on a cache line, and a vector more: kernels read whole
        ones."""
        last = np.zeros(LANES, np.float32)
        out = aligned(self._constant_floats + LANES)
        return np.concatenate([*self._constants, last], out=out)
