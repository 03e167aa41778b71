"""Reads safetensors: a length, a header in JSON, and the numbers.

`name: {dtype, shape, data_offsets: [begin, end]}`, offsets from the header's end; row-major,
little-endian. The offsets must cover the data without holes.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers import checkpoints
from waifu2x.networks.readers.tensors import (
    MOST_DIMENSIONS,
    Contents,
    TensorInfo,
    check_size,
    from_bfloats,
)

_MAX_HEADER = 1 << 20
_DTYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "BF16": "u2",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "u1",
}


def parse(content: bytes, name: str) -> list[Contents]:
    """Returns the networks in the bytes of a file, as `checkpoints.find` does; `name` stands for it
    in messages."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(_MAX_HEADER, len(content) - 8):
        raise ModelError(f"{name}: damaged: a header of {length} bytes")
    try:
        header = json.loads(content[8 : 8 + length], object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name}: damaged header: {str(error)[:80]}") from error
    if not isinstance(header, dict) or content[8:9] != b"{":
        raise ModelError(f"{name}: damaged header: not an object")
    data = memoryview(content)[8 + length :]
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ModelError(f"{name}: damaged header: __metadata__ is not an object")
    places: list[tuple[int, int]] = []
    tensors: dict[str, TensorInfo] = {}
    for key, entry in header.items():
        begin, end, info = _tensor(key, entry, data, name)
        places.append((begin, end))
        tensors[key] = info
    position = 0
    for begin, end in sorted(places):
        if begin != position:
            raise ModelError(f"{name}: damaged header: data overlap, or nobody's between them")
        position = end
    if position != len(data):
        raise ModelError(f"{name}: damaged: {len(data) - position} bytes that no tensor is of")
    check_size((info.shape for info in tensors.values()), len(content), name)
    return [
        Contents(each.weights, each.marks, where=each.where)
        for each in checkpoints.find(tensors, TensorInfo, lambda info: info.shape, name)
    ]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON. Raises ValueError if two names are equal."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _tensor(key: str, entry: object, data: memoryview, name: str) -> tuple[int, int, TensorInfo]:
    """Returns where a tensor's data begin and end, and the tensor."""
    where = f"{name}: {key[:60]!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelError(f"{where}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ModelError(f"{where}: numbers of the kind {str(dtype)[:20]!r} are not supported")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ModelError(f"{where}: damaged shape or offsets")
    if len(shape) > MOST_DIMENSIONS or len(offsets) != 2:
        raise ModelError(f"{where}: damaged shape or offsets")
    begin, end = offsets
    kind = np.dtype("<" + _DTYPES[dtype])
    if not begin <= end <= len(data) or math.prod(shape) * kind.itemsize != end - begin:
        raise ModelError(f"{where}: its shape is not that of its data")

    def read() -> NDArray[Any]:
        found = np.frombuffer(data[begin:end], kind).reshape(shape)
        return from_bfloats(found) if dtype == "BF16" else found

    return begin, end, TensorInfo(tuple(shape), dtype, read)
