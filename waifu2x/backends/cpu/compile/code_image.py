"""Object code as one piece of memory, which is put anywhere and called, without LLVM.

An image is the code of one function and what it calls, with a list of the places in it that
hold addresses: those inside it, and those of functions of the C library. `object_file` makes one.
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
"""Changes with what the bytes of an image mean."""
MOST_NAME = 31
"""Bytes of the name of a function of the C library."""
_HEADER = struct.Struct("<4Q")
"""Where the function begins; bytes of code; addresses inside it; addresses of others."""
_OUTSIDE = np.dtype([("place", "<u8"), ("added", "<i8"), ("name", f"S{MOST_NAME + 1}")])
_READ_AND_RUN = 0x1 | 0x4
Function = Callable[..., int]
"""Takes addresses and integers, and gives a status."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32)


class UnlinkableError(Exception):
    """Code that has no image, or none that can be run here."""


class Image(NamedTuple):
    """Code that is not in its place yet."""

    entry: int
    """Where the function begins, in bytes."""
    code: bytes
    """As it would be at address 0."""
    inside: list[int]
    """The places of addresses of the code itself, 8 bytes each."""
    outside: list[tuple[int, int, bytes]]
    """The same of functions of the C library: with what is added to their address, and names."""


def is_possible() -> bool:
    """Whether this system runs images."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def packed(image: Image) -> bytes:
    """Returns an image as bytes, to be kept."""
    header = _HEADER.pack(image.entry, len(image.code), len(image.inside), len(image.outside))
    inside = np.array(image.inside, "<u8").tobytes()
    return header + inside + np.array(image.outside, _OUTSIDE).tobytes() + image.code


def loaded(stored: bytes) -> tuple[Function, object]:
    """Returns the function of a packed image in memory, and what holds that memory.

    Raises UnlinkableError if it is none, or the system refuses to run it.
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
        # Addresses may be anywhere, not only at multiples of their size.
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
    """Returns where a function of the C library is. Raises AttributeError."""
    function = getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _let_run(address: int, size: int) -> None:
    """Makes pages code, which nothing can change any more. Raises OSError."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    length = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(length), _READ_AND_RUN):
        raise OSError(ctypes.get_errno(), "cannot run code")
