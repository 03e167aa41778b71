"""The `numpy` backend: float64, slow and obvious. Every other backend is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Device, Precision, Progress, pick_device
from waifu2x.backends.chain import Chain, Window
from waifu2x.dtypes import from_unit, to_unit
from waifu2x.errors import BackendError
from waifu2x.model import Convolution, Model
from waifu2x.tiling import Box

BAND_PIXELS = 1 << 16
"""Output pixels worked on at once: each takes up to 4 KiB, for the feature maps of two layers."""
_BAND_ROWS = 16
"""The fewest at once: every band computes anew the rows beyond it that its result needs."""


def create(device: int) -> NumpyBackend:
    """The backend; it works wherever NumPy does."""
    pick_device(NumpyBackend.name, devices(), device)
    return NumpyBackend()


def devices() -> list[Device]:
    """Its one device."""
    return [NumpyBackend.device]


class NumpyBackend:
    """Runs models in float64 on one core."""

    name = "numpy"
    device = Device("NumPy", f"{np.__version__}, float64, for reference: slow")

    def compile(self, models: Sequence[Model], precision: Precision) -> Chain[NDArray[Any]]:
        """See Backend. float64 serves `auto` and `fp32`."""
        if precision not in ("auto", "fp32"):
            raise BackendError(
                f"backend numpy has no precision {precision}: use auto or fp32, or another backend"
            )
        return Chain([NumpyStage(model) for model in models])

    def close(self) -> None:
        """Nothing to free."""


class NumpyStage:
    """One model in float64."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.scale = model.scale
        self.cost = float(model.multiply_adds)

    def reads(self, box: Box) -> Box:
        """The box and the pixels that the convolutions lose, in pixels of the input."""
        margin = self._model.offset
        top, left = (box.top - margin) // self.scale, (box.left - margin) // self.scale
        bottom, right = (
            -(-(box.bottom + margin) // self.scale),
            -(-(box.right + margin) // self.scale),
        )
        return Box(top, left, bottom - top, right - left)

    def __call__(
        self, window: Window[NDArray[Any]], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """See Stage."""
        # Bands are as wide as the box: a product is made for each row, and rounds by its length.
        rows = max(_BAND_ROWS, BAND_PIXELS // box.width)
        result = np.empty((box.height, box.width, self._model.out_planes), out_dtype)
        for top in range(0, box.height, rows):
            band = Box(box.top + top, box.left, min(rows, box.height - top), box.width)
            result[top : top + rows] = from_unit(self._band(window, band), out_dtype)
            on_progress(band.height / box.height)
        return result

    def _band(self, window: Window[NDArray[Any]], box: Box) -> NDArray[np.float64]:
        margin = self._model.offset
        rows = np.arange(box.top - margin, box.bottom + margin) // self.scale
        columns = np.arange(box.left - margin, box.right + margin) // self.scale
        rows = rows.clip(0, window.height - 1) - window.top
        columns = columns.clip(0, window.width - 1) - window.left
        planes = to_unit(window.pixels[np.ix_(rows, columns)], np.float64)
        for layer in self._model.convolutions:
            planes = convolve(planes, layer)
        return planes


def convolve(planes: NDArray[np.float64], layer: Convolution) -> NDArray[np.float64]:
    """(H, W, in_planes) -> (H - 2, W - 2, out_planes): valid cross-correlation, leaky ReLU."""
    height, width = planes.shape[0] - 2, planes.shape[1] - 2
    result = np.zeros((height, width, layer.out_planes)) + layer.bias
    for y in range(3):
        for x in range(3):
            tap = layer.weight[:, :, y, x].astype(np.float64)
            result += planes[y : y + height, x : x + width] @ tap.T
    activated: NDArray[np.float64] = np.maximum(result, layer.slope * result)
    return activated
