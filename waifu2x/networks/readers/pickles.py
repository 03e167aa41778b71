"""Pickles of PyTorch's tensors, read without PyTorch and without running anything.

A pickle is a program. Before it runs, its instructions are held against those that PyTorch writes;
while it runs, the only names that it can call are those of tensors, and they give records of our
own. What comes out are records of where each tensor lies in the data that follows: see
`torch_files`.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import reprlib
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from waifu2x.errors import ModelError
from waifu2x.networks.readers.tensors import MOST_DIMENSIONS

MAX_PICKLE = 16 << 20
"""Bytes of instructions, which name tensors and do not hold them."""

_INSTRUCTIONS = frozenset(
    (
        *("PROTO", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE"),
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"),
        *("GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
    )
)


class Stored(NamedTuple):
    """Numbers in a row, elsewhere in the file."""

    dtype: str
    """Of PyTorch, such as `Float`."""
    key: str
    length: int


class Tensor(NamedTuple):
    """A view of stored numbers, in numbers and not in bytes."""

    storage: Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Ordered(dict[Hashable, Any]):
    """In the place of OrderedDict. `state_dict` gives it attributes, which are dropped."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        """See pickle."""


class _Name:
    """What a name stands for: it can be called, and not be given attributes."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise _RefusedError("damaged: gives attributes to a name")


class _Kind(NamedTuple):
    """A class of storages, which is nothing but a dtype."""

    dtype: str


class _RefusedError(Exception):
    """What a pickle asks for and does not get."""


def load(file: io.BytesIO, name: str, *, legacy: bool = False) -> Any:
    """The object of one pickle, `file` left at its end. `name` stands for it in messages.

    Raises ModelError for damage, and for whatever is not made of plain numbers, strings, lists,
    dicts and tensors.
    """
    start = file.tell()
    _check(file, name)
    file.seek(start)
    try:
        return _Unpickler(file, legacy).load()
    except _RefusedError as error:
        raise ModelError(f"{name}: {error}") from error
    except Exception as error:  # whatever a damaged program makes the machine raise
        raise ModelError(f"{name}: damaged: {type(error).__name__} in its pickle") from error


def _check(file: io.BytesIO, name: str) -> None:
    """Refuses instructions that PyTorch does not write, and memory out of proportion."""
    length = min(len(file.getbuffer()) - file.tell(), MAX_PICKLE)
    view = io.BytesIO(file.read(length))
    try:
        for instruction, argument, _ in pickletools.genops(view):
            word = instruction.name
            if word not in _INSTRUCTIONS:
                raise ModelError(f"{name}: its pickle has the instruction {word}: not read")
            # An index makes the machine's table as long as that.
            if word in ("BINPUT", "LONG_BINPUT") and int(argument or 0) > length:
                raise ModelError(f"{name}: damaged: its pickle counts to {argument}")
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{name}: damaged: not a whole pickle") from error


class _Unpickler(pickle.Unpickler):
    """Gives records of ours for the names of tensors, and nothing for any other name."""

    def __init__(self, file: io.BytesIO, legacy: bool) -> None:
        super().__init__(file, encoding="utf-8")
        self._legacy = legacy

    def find_class(self, module: str, name: str) -> Any:
        """See pickle."""
        if module == "torch" and name.endswith("Storage"):
            return _Kind(name.removesuffix("Storage"))
        found = _NAMES.get((module, name))
        if found is None:
            asked = reprlib.repr(f"{module}.{name}")
            raise _RefusedError(f"asks for {asked}: only tensors are read, nothing is run")
        return found

    def persistent_load(self, pid: Any) -> Stored:
        """See pickle: PyTorch's names of storages."""
        length = 6 if self._legacy else 5
        if not isinstance(pid, tuple) or len(pid) != length or pid[0] != "storage":
            raise _RefusedError("names its data in a way that PyTorch does not")
        _, kind, key, _, count = pid[:5]
        if pid[5:] not in ((), (None,)):
            raise _RefusedError("holds storages that are parts of others: save it anew")
        if not isinstance(kind, _Kind) or not isinstance(key, str) or not _is_size(count):
            raise _RefusedError("names its data in a way that PyTorch does not")
        return Stored(kind.dtype, key, count)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    """In the place of torch._utils._rebuild_tensor and _rebuild_tensor_v2."""
    numbers = (offset, *shape, *strides)
    if (
        not isinstance(storage, Stored)
        or not isinstance(shape, tuple)
        or not isinstance(strides, tuple)
        or len(shape) != len(strides)
        or len(shape) > MOST_DIMENSIONS
        or not all(map(_is_size, numbers))
    ):
        raise _RefusedError("damaged: a tensor without a shape")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if 0 not in shape and last >= storage.length:
        raise _RefusedError("damaged: a tensor reaches beyond its data")
    return Tensor(storage, offset, shape, strides)


def _parameter(tensor: Any, *rest: Any) -> Tensor:
    """In the place of torch._utils._rebuild_parameter."""
    if not isinstance(tensor, Tensor):
        raise _RefusedError("damaged: a parameter without a tensor")
    return tensor


_NAMES = {
    ("collections", "OrderedDict"): _Name(_Ordered),
    ("torch._utils", "_rebuild_tensor"): _Name(_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Name(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Name(_parameter),
}
