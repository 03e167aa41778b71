"""Arguments of kernels as structs of C: named tuples here, with the fields of the struct there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NewType, Protocol, cast, get_args, get_origin, get_type_hints

import numpy as np

from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.device.launch import Arguments
from waifu2x.backends.gpu.device.runtime import Buffer

Address = NewType("Address", int)
"""A pointer to memory of the device."""

_CODES: dict[object, str] = {Address: "P", int: "i", np.float32: "f", float: "d"}
"""Codes of module struct, by the types that fields are declared with."""


class _Addressed(Protocol):
    address: int


def address_of(buffer: Buffer | Flags, offset: int = 0) -> Address:
    """The address of a byte of one of this backend's buffers, or flags."""
    return Address(cast(_Addressed, buffer).address + offset)


def structs(*made: tuple[Any, ...]) -> Arguments:
    """Arguments that are structs: named tuples whose fields are declared as Address, int (C's int),
    np.float32, float (double), as such a struct, or as a tuple of any number of one of these.

    Raises TypeError for a field that is declared otherwise.
    """
    codes, values = "", list[Any]()
    for fields in made:
        own = "".join(_codes(fields))
        codes += own + ("0P" if "P" in own else "")
        values += _flat(fields)
    return Arguments(codes, values)


def _codes(fields: tuple[Any, ...]) -> Iterator[str]:
    for kind, value in zip(_kinds(type(fields)), fields, strict=True):
        if kind in _CODES:
            yield _CODES[kind]
        elif get_origin(kind) is tuple:
            each = get_args(kind)[0]
            for one in value:
                yield from _codes(one) if isinstance(one, tuple) else _CODES[each]
        elif isinstance(value, tuple):
            yield from _codes(value)
        else:
            raise TypeError(f"a kernel's argument of type {kind}")


@cache
def _kinds(struct: type) -> tuple[Any, ...]:
    return tuple(get_type_hints(struct).values())


def _flat(fields: tuple[object, ...]) -> Iterator[object]:
    for field in fields:
        if isinstance(field, tuple):
            yield from _flat(field)
        else:
            yield field
