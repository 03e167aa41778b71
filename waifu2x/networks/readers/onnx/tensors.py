"""ONNX's tensors: shapes first, numbers when they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import shown
from waifu2x.networks.readers.onnx.wire import FIXED32, FIXED64, LENGTH, VARINT, Message
from waifu2x.networks.readers.tensors import MOST_DIMENSIONS, from_bfloats
from waifu2x.system.lazy_dataclass import dataclass

FLOATS = {1: "<f4", 10: "<f2", 11: "<f8", 16: "<u2"}
"""Kinds of numbers with fractions; bf16 as the upper halves of float32."""
_KINDS = {**FLOATS, 7: "<i8", 6: "<i4", 3: "i1", 2: "u1", 9: "u1"}
_BFLOAT = 16
_EXTERNAL = "its numbers are in another file: export with external_data=False"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that has not been read."""

    name: str
    shape: tuple[int, ...]
    is_float: bool
    read: Callable[[], NDArray[Any]]
    """Makes the array: float32 or int64; a view of the file's bytes where that is possible."""


def stored_tensor(message: Message) -> StoredTensor:
    """Reads a TensorProto. Raises ModelError for numbers that are missing or in another file."""
    dims: list[int] = []
    numbers: list[tuple[int, int, int | memoryview]] = []
    raw: memoryview | None = None
    kind, name = 0, ""
    for number, wire, content in message.fields():
        match number:
            case 1:
                one = wire == VARINT
                dims += [message.number(content)] if one else message.inner(content).varints()
                if len(dims) > MOST_DIMENSIONS:
                    raise message.damaged(f"a tensor of more than {MOST_DIMENSIONS} dimensions")
            case 2:
                kind = message.number(content)
            case 4 | 5 | 7 | 10:
                numbers.append((number, wire, content))
            case 8:
                name = message.text(content)
            case 9:
                raw = message.inner(content).data
            case 3 | 6 | 11 | 13:
                where = f"{message.budget.name}: {shown(name) or 'a tensor'}"
                why = _EXTERNAL if number == 13 else "of a kind that is not supported"
                raise ModelError(f"{where}: {why}")
            case 14 if message.number(content):
                raise ModelError(f"{message.budget.name}: {shown(name) or 'a tensor'}: {_EXTERNAL}")
    where = f"{message.budget.name}: {shown(name) or 'a tensor'}"
    if kind not in _KINDS:
        raise ModelError(f"{where}: numbers of kind {kind} are not supported")
    if any(not 0 <= each < 1 << 31 for each in dims):
        raise ModelError(f"{where}: damaged: its shape is {tuple(dims)}")
    count, dtype = math.prod(dims), np.dtype(_KINDS[kind])
    if raw is not None and (numbers or len(raw) != count * dtype.itemsize):
        raise ModelError(f"{where}: damaged: {len(raw)} bytes for the shape {tuple(dims)}")
    if raw is None:
        most = sum(len(each) if isinstance(each, memoryview) else 1 for _, _, each in numbers)
        if count > most:  # each number takes a byte at least
            raise ModelError(f"{where}: damaged: fewer numbers than the shape {tuple(dims)}")

    def read() -> NDArray[Any]:
        if kind not in FLOATS and dtype.itemsize < 8:  # they become as wide as that
            message.budget.take_bytes(8 * count)
        if raw is not None:
            found: NDArray[Any] = np.frombuffer(raw, dtype)
        else:
            found = _listed(message, numbers, dtype, where)
        if found.size != count:
            raise ModelError(f"{where}: damaged: {found.size} numbers for {tuple(dims)}")
        found = found.reshape(dims)
        if kind == _BFLOAT:
            return from_bfloats(found)
        if kind == 9:
            return found.astype(bool)
        with np.errstate(over="ignore"):
            return found.astype(np.float32 if kind in FLOATS else np.int64, copy=False)

    return StoredTensor(name, tuple(dims), kind in FLOATS, read)


def _listed(
    message: Message, numbers: list[tuple[int, int, int | memoryview]], dtype: Any, where: str
) -> NDArray[Any]:
    """Returns the numbers of the fields float_data, int32_data, int64_data and double_data."""
    parts: list[NDArray[Any]] = []
    for number, wire, content in numbers:
        fixed = {4: ("<f4", FIXED32), 10: ("<f8", FIXED64)}.get(number)
        if fixed and not isinstance(content, int) and wire in (LENGTH, fixed[1]):
            if len(content) % np.dtype(fixed[0]).itemsize:
                raise ModelError(f"{where}: damaged: numbers that are cut off")
            parts.append(np.frombuffer(content, fixed[0]).astype(dtype))
        elif not fixed and wire in (VARINT, LENGTH):
            one = isinstance(content, int)
            found = [content] if one else list(message.inner(content).varints())
            # These are the bits of 16-bit floats.
            bits = np.array(found, np.uint64).view(np.int64)
            parts.append(
                bits.astype("<u2").view(dtype) if dtype.itemsize == 2 else bits.astype(dtype)
            )
        else:
            raise ModelError(f"{where}: damaged: numbers of another kind")
    return np.concatenate(parts) if parts else np.empty(0, dtype)
