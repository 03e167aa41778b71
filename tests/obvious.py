"""The definition of the networks, written once more: whole pictures, float64, nothing clever."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from waifu2x.model import Convolution, Model


def random_model(planes: Sequence[int], seed: int, scale: int = 1) -> Model:
    """A stack of convolutions with random weights whose results stay about as large as inputs."""
    rng = np.random.default_rng(seed)
    layers = []
    for index, (inputs, outputs) in enumerate(pairwise(planes)):
        weight = rng.normal(size=(outputs, inputs, 3, 3)) * np.sqrt(1.5 / (9 * inputs))
        bias = rng.normal(size=outputs) * 0.1
        slope = 0.1 if index < len(planes) - 2 else 1.0
        layers.append(Convolution(weight.astype(np.float32), bias.astype(np.float32), slope))
    model = Model("random", tuple(layers))
    return model if scale == 1 else model.enlarged(scale)


def run(models: Sequence[Model], pixels: NDArray[Any]) -> NDArray[np.float64]:
    """(H, W, planes) pixels of any dtype through models, values clipped to [0, 1] after each."""
    peak = 1.0 if pixels.dtype.kind == "f" else float(np.iinfo(pixels.dtype).max)
    planes = pixels.astype(np.float64) / peak
    for model in models:
        planes = planes.repeat(model.scale, 0).repeat(model.scale, 1)
        margin = len(model.convolutions)
        planes = np.pad(planes, ((margin, margin), (margin, margin), (0, 0)), mode="edge")
        for layer in model.convolutions:
            windows = sliding_window_view(planes, (3, 3), axis=(0, 1))
            weight = layer.weight.astype(np.float64)
            planes = np.tensordot(windows, weight, axes=([2, 3, 4], [1, 2, 3])) + layer.bias
            planes = np.where(planes > 0, planes, planes * layer.slope)
        planes = np.clip(planes, 0.0, 1.0)
    return planes


def to_levels(values: NDArray[np.float64], dtype: type) -> NDArray[Any]:
    """Values in [0, 1] as integers of a dtype, rounded half to even."""
    return np.round(values * np.iinfo(dtype).max).astype(dtype)


def psnr(values: NDArray[Any], reference: NDArray[np.float64]) -> float:
    """Peak signal to noise ratio in dB, for values in [0, 1]."""
    error = np.mean((values.astype(np.float64) - reference) ** 2)
    return float("inf") if error == 0 else float(-10 * np.log10(error))
