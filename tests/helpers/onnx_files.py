"""ONNX files, written without any package: fields of Protocol Buffers, one after the other."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = {"float32": 1, "float16": 10, "float64": 11, "int64": 7, "int32": 6, "bool": 9}
BFLOAT = 16


def varint(value: int) -> bytes:
    """A number, seven bits in a byte."""
    value &= (1 << 64) - 1
    made = b""
    while value >= 0x80:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(number: int, content: bytes | str | int) -> bytes:
    """A field: a number, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    raw = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def tensor(
    name: str, array: NDArray[Any], *, is_raw: bool = True, is_bfloat: bool = False
) -> bytes:
    """A TensorProto, its numbers raw or in the list of their kind."""
    made = b"".join(field(1, length) for length in array.shape) + field(8, name)
    if is_bfloat:
        bits = (np.ascontiguousarray(array, "<f4").view("<u4") >> 16).astype("<u2")
        return made + field(2, BFLOAT) + field(9, bits.tobytes())
    made += field(2, KINDS[array.dtype.name])
    if is_raw:
        return made + field(9, array.astype(array.dtype.newbyteorder("<")).tobytes())
    flat = array.reshape(-1)
    match array.dtype.name:
        case "float32":
            return made + field(4, flat.astype("<f4").tobytes())
        case "float64":
            return made + field(10, flat.astype("<f8").tobytes())
        case "float16":
            return made + field(5, b"".join(varint(int(bits)) for bits in flat.view(np.uint16)))
        case "int64":
            return made + field(7, b"".join(varint(int(each)) for each in flat))
    return made + field(5, b"".join(varint(int(each)) for each in flat))


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto of the value's kind."""
    made = field(1, name)
    match value:
        case int():
            return made + field(3, value) + field(20, 2)
        case float():
            return made + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
        case str():
            return made + field(4, value) + field(20, 3)
        case np.ndarray():
            return made + field(5, tensor("", value)) + field(20, 4)
        case [float(), *_]:
            return made + field(7, struct.pack(f"<{len(value)}f", *value)) + field(20, 6)
        case _:
            return made + b"".join(field(8, each) for each in value) + field(20, 7)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], /, **attributes: Any) -> bytes:
    """A NodeProto, named after its first output."""
    made = b"".join(field(1, name) for name in inputs)
    made += b"".join(field(2, name) for name in outputs)
    made += field(3, f"/{outputs[0]}") + field(4, op)
    return made + b"".join(field(5, attribute(key, each)) for key, each in attributes.items())


def value_info(name: str, dims: Sequence[int | str], kind: int = 1) -> bytes:
    """A ValueInfoProto of a tensor; free dimensions have names."""
    shape = b"".join(field(1, field(2 if isinstance(dim, str) else 1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def model(
    nodes: Sequence[bytes],
    weights: Mapping[str, NDArray[Any]] | Sequence[bytes] = (),
    *,
    planes: int = 3,
    output: str = "output",
    dims: Sequence[int | str] | None = None,
    extra: bytes = b"",
    opset: int = 17,
) -> bytes:
    """A ModelProto whose graph takes `input` and makes `output`."""
    tensors = (
        [tensor(name, array) for name, array in weights.items()]
        if isinstance(weights, Mapping)
        else weights
    )
    taken = value_info("input", dims or (1, planes, "height", "width"))
    graph = b"".join(field(1, each) for each in nodes) + field(2, "graph")
    graph += b"".join(field(5, each) for each in tensors)
    graph += field(11, taken) + field(12, value_info(output, (1, planes, "h", "w"))) + extra
    return field(1, 9) + field(2, "tests") + field(7, graph) + field(8, field(2, opset))
