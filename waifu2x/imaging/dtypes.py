"""Pixel dtypes: uint8 and uint16 span [0, 1] by their range, float32 holds it directly."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

_Float = TypeVar("_Float", np.float32, np.float64)

PIXEL_DTYPES = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32))


def to_unit(pixels: NDArray[Any], dtype: type[_Float]) -> NDArray[_Float]:
    """Converts pixels of a dtype in PIXEL_DTYPES to floats in [0, 1], of the float dtype
    `dtype`."""
    if pixels.dtype == np.float32:
        return pixels.astype(dtype)
    unit: NDArray[_Float] = pixels.astype(dtype) / dtype(np.iinfo(pixels.dtype).max)
    return unit


def from_unit(values: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Converts floats to pixels of a dtype in PIXEL_DTYPES. Floats are clipped to [0, 1]; integers
    are rounded half to even."""
    clipped = values.clip(0.0, 1.0)
    if np.dtype(dtype) == np.float32:
        return clipped.astype(np.float32)
    levels: NDArray[Any] = np.rint(clipped * np.iinfo(np.dtype(dtype)).max).astype(dtype)
    return levels
