"""Named tensors of a file: unwrapped, and made into arrays one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

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
    """The tensors of a file."""

    tensors: dict[str, TensorInfo]
    marks: frozenset[str] = frozenset()
    """Those of MARKS that it has; `pre_antialias` where the program that wrote it says so."""
    maker: str = ""
    """The network's name, where the program that wrote the file says it."""


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


_WRAPPERS = ("model_state_dict", "state_dict", "params_ema", "params-ema", "params", "model", "net")
"""Keys under which the weights stand, the first that is there, in spandrel's order."""
_PREFIXES = ("module.", "netG.")
"""Prefixes that training programs give every name."""
MARKS = ("pro", "no_norm")
"""Keys that mean something by their presence."""
_DEPTH = 4

_Kind = TypeVar("_Kind")


def unwrapped(found: Any, kind: type[_Kind], name: str) -> tuple[dict[str, _Kind], frozenset[str]]:
    """Returns the weights by name, without what is wrapped around them, and the marks found.

    Raises ModelError if there are none, or something else stands among them.
    """
    for _ in range(_DEPTH):
        inner = _inner(found)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping) or not found:
        raise ModelError(f"{name}: holds no weights by name")
    if not all(isinstance(key, str) for key in found):
        raise ModelError(f"{name}: holds weights without names")
    marks = frozenset(key for key in MARKS if key in found)
    weights = {key: value for key, value in found.items() if key not in marks}
    if weights and not any(isinstance(value, kind) for value in weights.values()):
        raise ModelError(f"{name}: no weights found: a state_dict is needed")
    for key, value in weights.items():
        if not isinstance(value, kind):
            raise ModelError(f"{name}: {key[:60]!r} is no tensor: save model.state_dict() alone")
    return stripped(weights), marks


def stripped(weights: dict[str, _Kind]) -> dict[str, _Kind]:
    """Returns the weights without a prefix that all of their names have."""
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def _inner(found: Any) -> Any:
    """Returns the mapping that a dictionary wraps, if any."""
    if not isinstance(found, Mapping):
        return None
    for key in _WRAPPERS:
        if isinstance(found.get(key), Mapping):
            return found[key]
    if len(found) == 1:
        (only,) = found.values()
        return only if isinstance(only, Mapping) else None
    return None
