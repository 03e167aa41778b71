"""Checkpoints as PyTorch writes them, by any protocol of pickles, without PyTorch."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

STORAGES = {"float32": "Float", "float16": "Half", "float64": "Double", "int64": "Long"}


@dataclass(frozen=True)
class Global:
    """A class or function by its name."""

    module: str
    name: str

    def __call__(self) -> None:
        """For pickle, which asks whether it can be called."""


@dataclass(frozen=True)
class Made:
    """An object that a global makes of its arguments."""

    maker: Global
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class _Storage:
    key: str
    kind: str
    count: int


_PythonPickler: Any = pickle._Pickler


class _Writer(_PythonPickler):  # type: ignore[misc]
    """Python's own pickler, less its check that a global can be imported."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(_PythonPickler.dispatch)

    def __init__(self, file: io.BytesIO, protocol: int, *, legacy: bool) -> None:
        super().__init__(file, protocol)
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._legacy = legacy

    def persistent_id(self, obj: object) -> tuple[Any, ...] | None:
        if not isinstance(obj, _Storage):
            return None
        kind = Global("torch", f"{obj.kind}Storage")
        return ("storage", kind, obj.key, "cpu", obj.count, *([None] if self._legacy else []))

    def _save_global(self, obj: Global) -> None:
        if self.proto >= 4:
            self.save(obj.module)
            self.save(obj.name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())

    def _save_made(self, obj: Made) -> None:
        self.save_reduce(obj.maker, obj.arguments)

    def _save_array(self, obj: np.ndarray[Any, Any]) -> None:
        key = str(len(self.arrays))
        self.arrays[key] = obj
        strides = tuple(step // obj.itemsize for step in np.ascontiguousarray(obj).strides)
        storage = _Storage(key, STORAGES[obj.dtype.name], obj.size)
        arguments: tuple[Any, ...]
        arguments = (storage, 0, obj.shape, strides[: obj.ndim], False, collections.OrderedDict())
        self.save_reduce(Global("torch._utils", "_rebuild_tensor_v2"), arguments)

    dispatch[Global] = _save_global
    dispatch[Made] = _save_made
    dispatch[np.ndarray] = _save_array


def zipped(content: object, protocol: int = 2) -> bytes:
    """A file of PyTorch since 1.6."""
    written = io.BytesIO()
    writer = _Writer(written, protocol, legacy=False)
    writer.dump(content)
    members = {"archive/data.pkl": written.getvalue(), "archive/version": b"3\n"}
    members |= {f"archive/data/{key}": each.tobytes() for key, each in writer.arrays.items()}
    return packed(members.items(), zipfile.ZIP_STORED)


def legacy(content: object, protocol: int = 2) -> bytes:
    """A file of PyTorch before 1.6."""
    body = io.BytesIO()
    writer = _Writer(body, protocol, legacy=True)
    writer.dump(content)
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    head = [pickle.dumps(each, protocol) for each in (0x1950A86A20F9469CFC6C, 1001, system)]
    keys = pickle.dumps(list(writer.arrays), protocol)
    data = [each.size.to_bytes(8, "little") + each.tobytes() for each in writer.arrays.values()]
    return b"".join([*head, body.getvalue(), keys, *data])


def members(content: bytes) -> dict[str, bytes]:
    """The members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(found: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file of members."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in found:
            archive.writestr(name, content)
    return made.getvalue()


def prefixed(prefix: str, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights with a prefix before each name."""
    return {prefix + key: each for key, each in weights.items()}
