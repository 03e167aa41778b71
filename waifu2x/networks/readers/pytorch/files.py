"""Reads PyTorch's files: a pickle of names and views, and the numbers that they view.

Since 1.6 they are zip files, `<root>/data.pkl` and `<root>/data/<key>`, nothing compressed. Before,
they were five pickles in a row, followed by each storage: its length as int64, then its numbers.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import DAMAGED_ZIP, ModelBudget, open_archive
from waifu2x.networks.readers.pytorch import pickles
from waifu2x.networks.readers.pytorch.pickles import MAX_ENTRIES, Stored, Tensor
from waifu2x.networks.readers.tensors import (
    Contents,
    TensorInfo,
    check_size,
    from_bfloats,
    unwrapped,
    view_of,
)

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_DTYPES: dict[str, str] = {
    "Float": "<f4",
    "Half": "<f2",
    "BFloat16": "<u2",
    "Double": "<f8",
    "Long": "<i8",
    "Int": "<i4",
    "Short": "<i2",
    "Char": "i1",
    "Byte": "u1",
    "Bool": "u1",
}
_SIGNATURE = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The header of a member of a zip file: a signature, and the lengths of name and extra."""

_Read = Callable[[], memoryview]


def parse(content: bytes, name: str) -> Contents:
    """Returns the tensors in the bytes of a .pth file; `name` stands for it in messages."""
    if content[:2] == b"PK":
        return _zipped(content, name)
    if content[:1] == b"\x80":
        return _legacy(content, name)
    if content[257:262] == b"ustar":
        raise ModelError(f"{name}: a tar file of PyTorch before 0.1.10: save it anew")
    raise ModelError(f"{name}: not a file of PyTorch")


def _zipped(content: bytes, name: str) -> Contents:
    try:
        members = open_archive(io.BytesIO(content), ModelBudget(name)).infolist()
    except DAMAGED_ZIP as error:
        raise ModelError(f"{name}: damaged archive: {error}") from error
    names = [member.filename for member in members]
    if len(set(names)) != len(names):
        raise ModelError(f"{name}: damaged archive: names appear twice in it")
    roots = [each.removesuffix("data.pkl") for each in names if each.endswith("/data.pkl")]
    if len(roots) != 1:
        raise ModelError(f"{name}: not a file of PyTorch: no data.pkl in it")
    (root,) = roots
    if any(each.startswith(f"{root}code/") for each in names):
        raise ModelError(f"{name}: a TorchScript program, not weights: only weights are read")
    archive = _StoredMembers(content, members, name)
    order = archive.read(f"{root}byteorder") if f"{root}byteorder" in names else b"little"
    if bytes(order[:16]).strip() != b"little":
        raise ModelError(f"{name}: its numbers are not little-endian: not supported")
    program = archive.read(f"{root}data.pkl")
    if len(program) > pickles.MAX_PICKLE:
        raise ModelError(f"{name}: damaged: a pickle of {len(program)} bytes")
    storages: dict[str, Stored] = {}
    found, _ = pickles.load(bytes(program), 0, _pickle_budget(name), storages)
    data = {key: partial(archive.read, f"{root}data/{key}") for key in storages}
    return _contents(found, data, len(content), name)


class _StoredMembers:
    """The members of a zip file in memory, none of them compressed or copied."""

    def __init__(self, content: bytes, members: list[zipfile.ZipInfo], name: str) -> None:
        """Raises ModelError if any is compressed, or lies outside the file or inside another."""
        self._content = memoryview(content)
        self._name = name
        self._places: dict[str, tuple[int, int, int]] = {}
        """Where each begins and ends, and its checksum."""
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ModelError(f"{name}: damaged archive: PyTorch compresses nothing")
        end = 0
        for member in sorted(members, key=lambda each: each.header_offset):
            begin = self._begin(member)
            if member.header_offset < end or begin + member.file_size > len(content):
                raise ModelError(f"{name}: damaged archive: its members overlap or are cut off")
            end = begin + member.file_size
            self._places[member.filename] = begin, end, member.CRC

    def _begin(self, member: zipfile.ZipInfo) -> int:
        at = member.header_offset
        header = self._content[max(at, 0) : max(at, 0) + _LOCAL_HEADER.size]
        if at < 0 or len(header) < _LOCAL_HEADER.size or header[:4].tobytes() != _SIGNATURE:
            raise ModelError(f"{self._name}: damaged archive: {_short(member.filename)} is missing")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        return int(at + _LOCAL_HEADER.size + name_length + extra_length)

    def read(self, member: str) -> memoryview:
        """Returns a view of a member, its checksum compared. Raises ModelError."""
        if member not in self._places:
            raise ModelError(f"{self._name}: damaged archive: {_short(member)} is missing")
        begin, end, checksum = self._places[member]
        view = self._content[begin:end]
        if zlib.crc32(view) != checksum:
            raise ModelError(f"{self._name}: damaged archive: {_short(member)} has changed")
        return view


def _short(key: str) -> str:
    return repr(key[-60:])


def _pickle_budget(name: str) -> ModelBudget:
    return ModelBudget(name, entries=MAX_ENTRIES)


def _legacy(content: bytes, name: str) -> Contents:
    budget = _pickle_budget(name)
    storages: dict[str, Stored] = {}
    head, position = list[Any](), 0
    for _ in range(3):
        found, position = pickles.load(content, position, budget, {})
        head.append(found)
    if head[0] != _LEGACY_MAGIC:
        raise ModelError(f"{name}: a pickle, but not a file of PyTorch")
    if head[1] != _PROTOCOL or not isinstance(head[2], dict):
        raise ModelError(f"{name}: not a file of PyTorch that is known")
    if head[2].get("little_endian") is not True:
        raise ModelError(f"{name}: its numbers are not little-endian: not supported")
    found, position = pickles.load(content, position, budget, storages, legacy=True)
    keys, position = pickles.load(content, position, budget, {})
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ModelError(f"{name}: damaged: no list of its data")
    view = memoryview(content)
    data: dict[str, _Read] = {}
    for key in keys:
        if key not in storages or key in data:
            raise ModelError(f"{name}: damaged: data that no tensor is of")
        size = storages[key].length * _itemsize(storages[key], name)
        count = int.from_bytes(view[position : position + 8], "little")
        position += 8
        if count != storages[key].length or position + size > len(content):
            raise ModelError(f"{name}: damaged: cut off, or data of another length")
        data[key] = partial(_same, view[position : position + size])
        position += size
    if position != len(content):
        raise ModelError(f"{name}: damaged: {len(content) - position} bytes more than its data")
    if data.keys() != storages.keys():
        raise ModelError(f"{name}: damaged: the data of a tensor are missing")
    return _contents(found, data, len(content), name)


def _same(view: memoryview) -> memoryview:
    return view


def _itemsize(stored: Stored, name: str) -> int:
    if stored.dtype not in _DTYPES:
        raise ModelError(f"{name}: holds numbers of the kind {stored.dtype[:30]!r}: not supported")
    return np.dtype(_DTYPES[stored.dtype]).itemsize


def _contents(found: object, data: Mapping[str, _Read], size: int, name: str) -> Contents:
    """Returns the tensors by name, views of their storage's bytes, which `data` has by key.

    `size` is the file's in bytes.
    """
    maker = ""
    if isinstance(found, Mapping) and isinstance(found.get("name"), str):
        maker = found["name"]
    weights, marks = unwrapped(found, Tensor, name)
    settings = found.get("kwargs") if isinstance(found, Mapping) else None
    if isinstance(settings, Mapping) and settings.get("pre_antialias") is True:
        marks |= {"pre_antialias"}
    check_size((tensor.shape for tensor in weights.values()), size, name)
    kept: dict[str, memoryview] = {}

    def storage(stored: Stored) -> memoryview:
        if stored.key not in kept:
            raw = data[stored.key]()
            if len(raw) != stored.length * _itemsize(stored, name):
                raise ModelError(f"{name}: damaged: data {stored.key[:30]!r} has {len(raw)} bytes")
            kept[stored.key] = raw
        return kept[stored.key]

    def read(tensor: Tensor) -> NDArray[Any]:
        _, offset, shape, strides = tensor
        view = view_of(
            storage(tensor.storage), _DTYPES[tensor.storage.dtype], offset, shape, strides
        )
        return from_bfloats(view) if tensor.storage.dtype == "BFloat16" else view

    return Contents(
        {
            key: TensorInfo(tensor.shape, tensor.storage.dtype, partial(read, tensor))
            for key, tensor in weights.items()
        },
        marks,
        maker,
    )
