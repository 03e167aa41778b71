"""Reads PyTorch's files: a pickle of names and views, and the numbers that they view.

Since 1.6 they are zip files, `<root>/data.pkl` and `<root>/data/<key>`. PyTorch compresses nothing
in them, but people pack them anew. Before, they were five pickles in a row, followed by each
storage: its length as int64, then its numbers.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.readers import checkpoints
from waifu2x.networks.readers.limits import DAMAGED_ZIP, ModelBudget, open_archive
from waifu2x.networks.readers.pytorch import pickles
from waifu2x.networks.readers.pytorch.pickles import MAX_ENTRIES, Stored, Tensor
from waifu2x.networks.readers.tensors import (
    Contents,
    TensorInfo,
    check_size,
    from_bfloats,
    view_of,
)

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_TEXT_MAGIC = b"L119547037146038801333356L"
"""The same by protocol 1 of pickles, which has no header."""
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
_MOST_ITEM = 8
"""Bytes of the widest of them."""
_PROGRAM = "data.pkl"
_ENCRYPTED = 1
_SIGNATURE = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The header of a member of a zip file: a signature, and the lengths of name and extra."""

_Read = Callable[[], memoryview]


def parse(content: bytes, name: str) -> list[Contents]:
    """Returns the networks in the bytes of a file, as `checkpoints.find` does; `name` stands for it
    in messages."""
    if content[:2] == b"PK":
        return _zipped(content, name)
    if content.startswith((b"\x80", _TEXT_MAGIC)):
        return _legacy(content, name)
    if content[257:262] == b"ustar":
        raise ModelError(f"{name}: a tar file of PyTorch before 0.1.10", "save it anew")
    raise ModelError(f"{name}: not a file of PyTorch")


def _zipped(content: bytes, name: str) -> list[Contents]:
    try:
        with open_archive(io.BytesIO(content), ModelBudget(name)) as opened:
            members = opened.infolist()
    except DAMAGED_ZIP as error:
        raise ModelError(f"{name}: damaged archive: {error}") from error
    archive = _ZipMembers(content, members, name)
    roots = [each[: -len(_PROGRAM)] for each in archive.names if _is_program(each)]
    if not roots:
        raise ModelError(f"{name}: not a file of PyTorch: no data.pkl in it")
    if len(roots) > 1:
        raise ModelError(
            f"{name}: it holds {len(roots)} files of PyTorch", "unpack it, and use one"
        )
    (root,) = roots
    if any(each.startswith(f"{root}code/") for each in archive.names):
        raise ModelError(f"{name}: a TorchScript program, not weights: only weights are read")
    if f"{root}byteorder" in archive.names:
        order = archive.read(f"{root}byteorder", 16)
        if bytes(order).strip() != b"little":
            raise ModelError(f"{name}: its numbers are not little-endian: not supported")
    program = archive.read(f"{root}{_PROGRAM}", pickles.MAX_PICKLE)
    storages: dict[str, Stored] = {}
    found, _ = pickles.load(bytes(program), 0, _pickle_budget(name), storages)
    data = {
        key: partial(archive.read, f"{root}data/{key}", stored.length * _MOST_ITEM)
        for key, stored in storages.items()
    }
    return _contents(found, data, len(content), name)


def _is_program(member: str) -> bool:
    return member == _PROGRAM or member.endswith(f"/{_PROGRAM}")


class _ZipMembers:
    """The members of a zip file in memory; those that are not compressed are not copied."""

    def __init__(self, content: bytes, members: list[zipfile.ZipInfo], name: str) -> None:
        """Raises ModelError if any lies outside the file or inside another, or two have a name."""
        self._content = memoryview(content)
        self._name = name
        self._places: dict[str, tuple[int, zipfile.ZipInfo]] = {}
        """Where each begins."""
        end = 0
        for member in sorted(members, key=lambda each: each.header_offset):
            begin = self._begin(member)
            if member.header_offset < end or begin + member.compress_size > len(content):
                raise ModelError(f"{name}: damaged archive: its members overlap or are cut off")
            end = begin + member.compress_size
            key = member.filename.replace("\\", "/")  # as some programs on Windows write it
            if key in self._places:
                raise ModelError(f"{name}: damaged archive: names appear twice in it")
            self._places[key] = begin, member

    @property
    def names(self) -> Set[str]:
        """Returns the names of all members."""
        return self._places.keys()

    def _begin(self, member: zipfile.ZipInfo) -> int:
        at = member.header_offset
        header = self._content[max(at, 0) : max(at, 0) + _LOCAL_HEADER.size]
        if at < 0 or len(header) < _LOCAL_HEADER.size or header[:4].tobytes() != _SIGNATURE:
            raise ModelError(f"{self._name}: damaged archive: {_short(member.filename)} is missing")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        return int(at + _LOCAL_HEADER.size + name_length + extra_length)

    def read(self, member: str, most: int) -> memoryview:
        """Returns a member's bytes, its checksum compared.

        Raises ModelError for damage, for more than `most` bytes, before they are unpacked, and for
        a member that is encrypted, or compressed by anything but deflate.
        """
        if member not in self._places:
            raise ModelError(f"{self._name}: damaged archive: {_short(member)} is missing")
        begin, entry = self._places[member]
        if entry.flag_bits & _ENCRYPTED:
            raise ModelError(f"{self._name}: {_short(member)} is encrypted", "pack it anew")
        if entry.file_size > most:
            size = f"{entry.file_size} bytes, more than {most}"
            raise ModelError(f"{self._name}: damaged archive: {_short(member)} has {size}")
        view = self._content[begin : begin + entry.compress_size]
        if entry.compress_type == zipfile.ZIP_DEFLATED:
            view = self._inflated(view, member, entry.file_size)
        elif entry.compress_type != zipfile.ZIP_STORED:
            method = f"method {entry.compress_type} of zip files"
            raise ModelError(f"{self._name}: {_short(member)} is packed by {method}", "use deflate")
        if len(view) != entry.file_size or zlib.crc32(view) != entry.CRC:
            raise ModelError(f"{self._name}: damaged archive: {_short(member)} has changed")
        return view

    def _inflated(self, packed: memoryview, member: str, size: int) -> memoryview:
        try:
            # One byte more tells a longer one; 0 would mean any length.
            return memoryview(zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, size + 1))
        except zlib.error:
            raise ModelError(
                f"{self._name}: damaged archive: {_short(member)} cannot be unpacked"
            ) from None


def _short(key: str) -> str:
    return repr(key[-60:])


def _pickle_budget(name: str) -> ModelBudget:
    return ModelBudget(name, entries=MAX_ENTRIES)


def _legacy(content: bytes, name: str) -> list[Contents]:
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
        raise ModelError(
            f"{name}: it holds numbers of the kind {stored.dtype[:30]!r}: not supported"
        )
    return np.dtype(_DTYPES[stored.dtype]).itemsize


def _contents(found: object, data: Mapping[str, _Read], size: int, name: str) -> list[Contents]:
    """Returns the networks, their tensors views of their storage's bytes, which `data` has by key.

    `size` is the file's in bytes.
    """
    maker = ""
    if isinstance(found, Mapping) and isinstance(found.get("name"), str):
        maker = found["name"]
    networks = checkpoints.find(found, Tensor, lambda tensor: tensor.shape, name)
    said: frozenset[str] = frozenset()
    settings = found.get("kwargs") if isinstance(found, Mapping) else None
    if isinstance(settings, Mapping) and settings.get("pre_antialias") is True:
        said = frozenset(("pre_antialias",))
    for each in networks:
        check_size((tensor.shape for tensor in each.weights.values()), size, name)
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

    def info(tensor: Tensor) -> TensorInfo:
        return TensorInfo(tensor.shape, tensor.storage.dtype, partial(read, tensor))

    return [
        Contents(
            {key: info(tensor) for key, tensor in each.weights.items()},
            each.marks | said,
            maker,
            each.where,
        )
        for each in networks
    ]
