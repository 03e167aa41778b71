"""Arguments of kernels as structs of C: named tuples here, with the fields of the struct there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Protocol, cast

import numpy as np

from waifu2x.backends.gpu.flags import Flags
from waifu2x.backends.gpu.runtime import Buffer


class Address(int):
    """A pointer to memory of the device."""


_CODES: tuple[tuple[type, str], ...] = ((Address, "P"), (int, "i"), (np.float32, "f"), (float, "d"))
"""Codes of module struct for types of arguments; an address is an int, too."""


class _Addressed(Protocol):
    address: int


def address_of(buffer: Buffer | Flags, offset: int = 0) -> Address:
    """The address of a byte of one of this backend's buffers, or flags."""
    return Address(cast(_Addressed, buffer).address + offset)


def packed(fields: tuple[object, ...]) -> bytes:
    """A struct of these fields; tuples among them are structs of 4-byte fields, or aligned to 8.

    int is int, np.float32 float, float double. Raises TypeError for anything else.
    """
    codes, values = "", list[Any]()
    for field in _flat(fields):
        kind = next((code for form, code in _CODES if isinstance(field, form)), None)
        if kind is None:
            raise TypeError(f"a kernel's argument of type {type(field).__name__}")
        codes += kind
        values.append(field)
    return struct.pack(codes + ("0P" if "P" in codes else ""), *values)


def _flat(fields: tuple[object, ...]) -> Iterator[object]:
    for field in fields:
        if isinstance(field, tuple):
            yield from _flat(field)
        else:
            yield field
