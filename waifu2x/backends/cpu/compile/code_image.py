"""Loads object code at any address and makes it callable, without LLVM.

An image holds the code of a function and of its callees, and a list of the places in it that hold
addresses: those inside it, and those of functions of the C library. `object_file` makes images.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

FORMAT = "1"
"""The version of the format of images."""
MOST_NAME = 31
"""The most bytes of the name of a function of the C library."""
_HEADER = struct.Struct("<4Q")
"""Offset of the entry; bytes of code; number of inner addresses; number of outer addresses."""
_OUTSIDE = np.dtype([("place", "<u8"), ("added", "<i8"), ("name", f"S{MOST_NAME + 1}")])
_READ_AND_RUN = 0x1 | 0x4
Function = Callable[..., int]
"""Takes addresses and integers, and returns a status."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32)


class UnlinkableError(Exception):
    """Says that code has no image, or none that can run here."""


class Image(NamedTuple):
    """Code before it is loaded at an address."""

    entry: int
    """The offset of the function's entry in bytes."""
    code: bytes
    """The code as linked for address 0."""
    inside: list[int]
    """The offsets of addresses of the code itself, 8 bytes each."""
    outside: list[tuple[int, int, bytes]]
    """Offset, addend and name of each address of a function of the C library."""


def is_possible() -> bool:
    """Returns whether this system can run images."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def packed(image: Image) -> bytes:
    """Serialises an image for the cache."""
    header = _HEADER.pack(image.entry, len(image.code), len(image.inside), len(image.outside))
    inside = np.array(image.inside, "<u8").tobytes()
    return header + inside + np.array(image.outside, _OUTSIDE).tobytes() + image.code


def loaded(stored: bytes) -> tuple[Function, object]:
    """Loads a packed image; returns its function, and the object that owns its memory.

    Raises UnlinkableError if it is no image, or the system refuses to run it.
    """
    try:
        entry, size, inside_count, outside_count = _HEADER.unpack_from(stored)
        start = _HEADER.size
        inside = np.frombuffer(stored, "<u8", inside_count, start)
        start += inside.nbytes
        outside = np.frombuffer(stored, _OUTSIDE, outside_count, start)
        start += outside.nbytes
        places = np.concatenate([inside, outside["place"]])
        if len(stored) - start != size or entry >= size or (places > size - 8).any():
            raise UnlinkableError("an image that is not whole")
        memory = mmap.mmap(-1, size)
        address = np.frombuffer(memory, np.uint8).ctypes.data
        memory[:] = stored[start:]
        # Addresses need not be aligned.
        code = np.frombuffer(memory, np.uint8)
        at = inside[:, np.newaxis] + np.arange(8, dtype=np.uint64)
        code[at] = (code[at].view("<u8") + np.uint64(address)).view(np.uint8)
        for place, added, name in outside.tolist():
            struct.pack_into("<Q", memory, place, _address_of(name.decode()) + added)
        _let_run(address, size)
    except (ValueError, OverflowError, struct.error, OSError, AttributeError) as error:
        raise UnlinkableError(str(error)) from error
    return _FUNCTION(address + entry), code


def _address_of(name: str) -> int:
    """Returns the address of a function of the C library. Raises AttributeError."""
    function = getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _let_run(address: int, size: int) -> None:
    """Makes pages executable and read-only. Raises OSError."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    length = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(length), _READ_AND_RUN):
        raise OSError(ctypes.get_errno(), "cannot run code")
