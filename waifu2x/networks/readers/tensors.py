"""Named tensors of a file, made into arrays one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError

MAX_TENSOR_BYTES = 512 << 20
"""Of a file of tensors: the largest networks in single precision, twice, are a quarter of it."""
MOST_DIMENSIONS = 8
"""Of a tensor: networks have four."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that has not been read."""

    shape: tuple[int, ...]
    dtype: str
    """As the file calls it."""
    read: Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class Contents:
    """What a file of tensors holds."""

    tensors: dict[str, TensorInfo]
    marks: frozenset[str] = frozenset()
    """See `state_dicts.MARKS`."""
    maker: str = ""
    """The network's name, where the program that wrote the file says it."""


def floats(raw: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Numbers as float32. Raises ModelError if one is not finite."""
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(raw, np.float32)
    if not np.isfinite(numbers).all():
        raise ModelError(f"{where} holds a value that is not finite")
    return numbers


def from_bfloats(raw: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The upper halves of float32 numbers."""
    return (raw.astype(np.uint32) << 16).view(np.float32)
