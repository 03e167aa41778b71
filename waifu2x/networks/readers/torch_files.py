"""PyTorch's files: a pickle of names and views, and the numbers that they are views of.

Since 1.6 they are zip files, `<root>/data.pkl` and `<root>/data/<key>`, nothing compressed. Before,
they were five pickles in a row, followed by each storage: its length as int64, then its numbers.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers import pickles
from waifu2x.networks.readers.limits import DAMAGED_ZIP
from waifu2x.networks.readers.pickles import Stored, Tensor
from waifu2x.networks.readers.state_dicts import unwrapped
from waifu2x.networks.readers.tensors import MAX_TENSOR_BYTES, Contents, TensorInfo, from_bfloats

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_DTYPES: dict[str, str] = {
    "Float": "f4",
    "Half": "f2",
    "BFloat16": "u2",
    "Double": "f8",
    "Long": "i8",
    "Int": "i4",
    "Short": "i2",
    "Char": "i1",
    "Byte": "u1",
    "Bool": "u1",
}
_MOST_MEMBERS = 20_000

_Storage = Callable[[Stored], bytes | memoryview]


def parse(content: bytes, name: str) -> Contents:
    """The tensors in the bytes of a .pth file; `name` stands for it in messages."""
    if content[:2] == b"PK":
        return _zipped(content, name)
    if content[:1] == b"\x80":
        return _legacy(content, name)
    if content[257:262] == b"ustar":
        raise ModelError(f"{name}: a tar file of PyTorch before 0.1.10: save it anew")
    raise ModelError(f"{name}: not a file of PyTorch")


def _zipped(content: bytes, name: str) -> Contents:
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        members = archive.infolist()
    except DAMAGED_ZIP as error:
        raise ModelError(f"{name}: damaged archive: {error}") from error
    names = [member.filename for member in members]
    if len(names) > _MOST_MEMBERS or len(set(names)) != len(names):
        raise ModelError(f"{name}: damaged archive: names appear twice in it")
    roots = [each.removesuffix("data.pkl") for each in names if each.endswith("/data.pkl")]
    if len(roots) != 1:
        raise ModelError(f"{name}: not a file of PyTorch: no data.pkl in it")
    (root,) = roots
    if any(each.startswith(f"{root}code/") for each in names):
        raise ModelError(f"{name}: a TorchScript program, not weights: only weights are read")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ModelError(f"{name}: damaged archive: PyTorch compresses nothing")
    if sum(member.file_size for member in members) > MAX_TENSOR_BYTES:
        raise ModelError(f"{name}: larger than the {MAX_TENSOR_BYTES >> 20} MiB that it may take")

    def member(key: str) -> bytes:
        try:
            return archive.read(root + key)
        except KeyError as error:
            raise ModelError(f"{name}: damaged archive: {key!r} is missing") from error
        except DAMAGED_ZIP as error:
            raise ModelError(f"{name}: damaged archive: {error}") from error

    order = member("byteorder") if f"{root}byteorder" in names else b"little"
    if order.strip() != b"little":
        raise ModelError(f"{name}: its numbers are not little-endian: not supported")
    program = member("data.pkl")
    if len(program) > pickles.MAX_PICKLE:
        raise ModelError(f"{name}: damaged: a pickle of {len(program)} bytes")
    found = pickles.load(io.BytesIO(program), name)

    def storage(stored: Stored) -> bytes:
        raw = member(f"data/{stored.key}")
        if len(raw) != stored.length * _itemsize(stored, name):
            raise ModelError(f"{name}: damaged: data {stored.key[:30]!r} has {len(raw)} bytes")
        return raw

    return _contents(found, storage, name)


def _legacy(content: bytes, name: str) -> Contents:
    file = io.BytesIO(content)
    head = [pickles.load(file, name) for _ in range(3)]
    if head[0] != _LEGACY_MAGIC:
        raise ModelError(f"{name}: a pickle, but not a file of PyTorch")
    if head[1] != _PROTOCOL or not isinstance(head[2], dict):
        raise ModelError(f"{name}: not a file of PyTorch that is known")
    if head[2].get("little_endian") is not True:
        raise ModelError(f"{name}: its numbers are not little-endian: not supported")
    found = pickles.load(file, name, legacy=True)
    keys = pickles.load(file, name)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ModelError(f"{name}: damaged: no list of its data")
    counts: dict[str, Stored] = {}
    for tensor in _tensors_of(found):
        if counts.setdefault(tensor.storage.key, tensor.storage) != tensor.storage:
            raise ModelError(f"{name}: damaged: data of two kinds under one name")
    view, position = memoryview(content), file.tell()
    data: dict[str, memoryview] = {}
    for key in keys:
        if key not in counts or key in data:
            raise ModelError(f"{name}: damaged: data that no tensor is of")
        size = counts[key].length * _itemsize(counts[key], name)
        count = int.from_bytes(view[position : position + 8], "little")
        position += 8
        if count != counts[key].length or position + size > len(content):
            raise ModelError(f"{name}: damaged: cut off, or data of another length")
        data[key] = view[position : position + size]
        position += size
    if position != len(content):
        raise ModelError(f"{name}: damaged: {len(content) - position} bytes more than its data")

    def storage(stored: Stored) -> memoryview:
        if stored.key not in data:
            raise ModelError(f"{name}: damaged: the data of a tensor are missing")
        return data[stored.key]

    return _contents(found, storage, name)


def _tensors_of(found: object) -> list[Tensor]:
    """All tensors inside, wherever."""
    tensors: list[Tensor] = []
    waiting, seen = [found], set[int]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, Tensor):
            tensors.append(each)
        elif isinstance(each, dict | list | tuple) and id(each) not in seen:
            seen.add(id(each))
            waiting += list(each.values()) if isinstance(each, dict) else list(each)
    return tensors


def _itemsize(stored: Stored, name: str) -> int:
    if stored.dtype not in _DTYPES:
        raise ModelError(f"{name}: holds numbers of the kind {stored.dtype[:30]!r}: not supported")
    return np.dtype(_DTYPES[stored.dtype]).itemsize


def _contents(found: object, storage: _Storage, name: str) -> Contents:
    maker = ""
    if isinstance(found, Mapping) and isinstance(found.get("name"), str):
        maker = found["name"]
    weights, marks = unwrapped(found, Tensor, name)
    total = sum(math.prod(tensor.shape) for tensor in weights.values())
    if total * 4 > MAX_TENSOR_BYTES:
        raise ModelError(f"{name}: its tensors take more than {MAX_TENSOR_BYTES >> 20} MiB")
    arrays: dict[str, NDArray[Any]] = {}

    def read(tensor: Tensor) -> NDArray[Any]:
        stored = tensor.storage
        itemsize = _itemsize(stored, name)
        if stored.key not in arrays:
            arrays[stored.key] = np.frombuffer(storage(stored), "<" + _DTYPES[stored.dtype])
        flat = arrays[stored.key]
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, flat.dtype)
        view = np.lib.stride_tricks.as_strided(
            flat[tensor.offset :],
            tensor.shape,
            [step * itemsize for step in tensor.strides],
            writeable=False,
        )
        return from_bfloats(np.ascontiguousarray(view)) if stored.dtype == "BFloat16" else view

    return Contents(
        {
            key: TensorInfo(tensor.shape, tensor.storage.dtype, partial(read, tensor))
            for key, tensor in weights.items()
        },
        marks,
        maker,
    )
