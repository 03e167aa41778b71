"""Named tensors of a file: unwrapped, and made into arrays one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import MAX_TENSOR_BYTES
from waifu2x.system.lazy_dataclass import dataclass

MOST_DIMENSIONS = 8
"""Dimensions that a tensor may have: weights have four."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that has not been read."""

    shape: tuple[int, ...]
    dtype: str
    """Its kind of numbers, as the file calls it."""
    read: Callable[[], NDArray[Any]]
    """Makes the array: where possible a view of the file's bytes."""


@dataclass(frozen=True)
class Contents:
    """The tensors of a network in a file."""

    tensors: dict[str, TensorInfo]
    marks: frozenset[str] = frozenset()
    """Keys that mean something by their presence; `pre_antialias` where the program that wrote the
    file says so."""
    maker: str = ""
    """The network's name, where the program that wrote the file says it."""
    where: tuple[str, ...] = ()
    """Where it stands in the file: keys of dictionaries, and a prefix of names."""


def is_inside(count: int, offset: int, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Returns whether a view of `count` stored numbers lies inside them and reads none twice.

    Offset and strides count numbers and are not negative. A stride of 0 repeats numbers on purpose,
    and is inside.
    """
    if 0 in shape:
        return offset <= count
    reach = 0
    for step, length in sorted(zip(strides, shape, strict=True)):
        if length > 1 and step:
            if step <= reach:
                return False
            reach += (length - 1) * step
    return offset + reach < count


def view_of(
    raw: bytes | memoryview, dtype: str, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> NDArray[Any]:
    """Returns a read-only array of numbers in a buffer, without a copy.

    Raises ValueError unless `is_inside`.
    """
    kind = np.dtype(dtype)
    count = memoryview(raw).nbytes // kind.itemsize
    if not is_inside(count, offset, shape, strides):
        raise ValueError("a tensor reaches beyond its data, or its numbers overlap")
    if 0 in shape:
        return np.zeros(shape, kind)
    steps = [step * kind.itemsize for step in strides]
    # NumPy checks the bounds as well.
    return np.ndarray(tuple(shape), kind, raw, offset * kind.itemsize, steps)


def check_size(shapes: Iterable[Sequence[int]], size: int, name: str) -> None:
    """Raises ModelError if tensors of such shapes take too much memory as float32.

    That is more than MAX_TENSOR_BYTES, or much more than the file's own `size` in bytes, as only
    tensors that repeat a few numbers do.
    """
    most = min(MAX_TENSOR_BYTES, 8 * size + (1 << 20))
    if sum(map(math.prod, shapes)) * 4 > most:
        raise ModelError(f"{name}: its tensors take more than {most >> 20} MiB")


def floats(raw: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Returns float32 numbers, without a copy if they are. Raises ModelError if one is not
    finite."""
    with np.errstate(over="ignore"):
        # A copy only where the file's bytes are not such numbers already.
        numbers: NDArray[np.float32] = np.require(raw, np.float32, ["C", "A"])
    if not np.isfinite(numbers).all():
        raise ModelError(f"{where} holds a value that is not finite")
    return numbers


def from_bfloats(raw: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Returns float32 numbers of their upper halves."""
    wide = raw.astype(np.uint32, order="C")
    wide <<= 16
    return wide.view(np.float32)
