"""Object code as one piece of memory, which is put anywhere and called, without LLVM.

`linked` makes the image of an object file of one function and all that it calls, and `loaded` puts
one into memory. Only for Linux on x86-64, and for what Numba's code needs there: sections that are
never written, addresses of 64 bits and distances. For all else there is no image, and LLVM links.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable

import numpy as np

FORMAT = "1"
"""Changes with what an image holds."""
_HEADER = struct.Struct("<4Q")
"""Where the function begins; bytes of code; addresses inside it; addresses of others."""
_SECTION = np.dtype("u4,u4,u8,u8,u8,u8,u4,u4,u8,u8").newbyteorder("<")
_SYMBOL = np.dtype("u4,u1,u1,u2,u8,u8").newbyteorder("<")
_RELOCATION = np.dtype("u8,u4,u4,i8").newbyteorder("<")
_OUTSIDE = np.dtype([("place", "<u8"), ("added", "<i8"), ("name", "S32")])
_NAME_BYTES = 31
_ELF_X86_64 = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _NO_BITS, _UNWINDING = 2, 4, 8, 0x70000001
_WRITTEN, _IN_MEMORY, _THREADS = 1, 2, 0x400
_ADDRESS, _DISTANCE_32, _CALL, _DISTANCE = 1, 2, 4, 24
_NOWHERE = 0
_PAGE = mmap.PAGESIZE
_READ_AND_RUN = 0x1 | 0x4
Function = Callable[..., int]
"""What is called with addresses and integers, and gives a status."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32)


class UnlinkableError(Exception):
    """Code of which there is no image, or none that can be run here."""


def is_possible() -> bool:
    """Whether this system runs images."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def linked(code: bytes, function: str) -> bytes:
    """The image of an object file, which is called where `function` begins.

    Raises UnlinkableError for what is not as described above.
    """
    try:
        return _Object(code).image(function.encode())
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise UnlinkableError(str(error)) from error


class _Object:
    """A relocatable file in ELF (System V ABI, chapter 4)."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        kind, machine = struct.unpack_from("<HH", code, 16)
        if code[:7] != _ELF_X86_64 or (kind, machine) != (_RELOCATABLE, _X86_64):
            raise UnlinkableError("no object file of this processor")
        (start,) = struct.unpack_from("<Q", code, 40)
        _, count, _ = struct.unpack_from("<3H", code, 58)
        self._sections = np.frombuffer(code, _SECTION, count, start).tolist()
        self._places, self._memory = self._laid_out()
        (table,) = (one for one in self._sections if one[1] == _SYMBOLS)
        self._symbols = np.frombuffer(code, _SYMBOL, table[5] // 24, table[4]).tolist()
        self._names = self._sections[table[6]][4]

    def image(self, function: bytes) -> bytes:
        """See `linked`."""
        inside: list[int] = []
        outside: list[tuple[int, int, bytes]] = []
        for section in self._sections:
            target = section[7]
            if section[1] == _RELOCATIONS and target in self._places:
                count = section[5] // _RELOCATION.itemsize
                found = np.frombuffer(self._code, _RELOCATION, count, section[4])
                for offset, kind, symbol, added in found.tolist():
                    place = self._places[target] + offset
                    self._relocate(place, kind, symbol, added, inside, outside)
        (entry,) = (
            self._places[symbol[3]] + symbol[4]
            for symbol in self._symbols
            if symbol[3] in self._places and self._name(symbol) == function
        )
        return b"".join(
            (
                _HEADER.pack(entry, len(self._memory), len(inside), len(outside)),
                np.array(inside, "<u8").tobytes(),
                np.array(outside, _OUTSIDE).tobytes(),
                self._memory,
            )
        )

    def _laid_out(self) -> tuple[dict[int, int], bytearray]:
        """Where the sections that are needed begin, and what they hold, one behind the other."""
        places: dict[int, int] = {}
        memory = bytearray()
        for number, section in enumerate(self._sections):
            _, kind, flags, _, offset, size, _, _, alignment, _ = section
            if not flags & _IN_MEMORY or kind == _UNWINDING or not size:
                continue
            if flags & (_WRITTEN | _THREADS) or kind == _NO_BITS or alignment > _PAGE:
                raise UnlinkableError("a section that is written, or of another kind")
            memory.extend(bytes(-len(memory) % max(alignment, 1)))
            places[number] = len(memory)
            memory += self._code[offset : offset + size]
        return places, memory

    def _relocate(
        self,
        place: int,
        kind: int,
        number: int,
        added: int,
        inside: list[int],
        outside: list[tuple[int, int, bytes]],
    ) -> None:
        """Fills in what a place in memory refers to, or notes it for when that is known."""
        symbol = self._symbols[number]
        section, value = symbol[3], symbol[4]
        if section in self._places:
            to = self._places[section] + value + added
            if kind == _ADDRESS:
                struct.pack_into("<Q", self._memory, place, to)
                inside.append(place)
            elif kind == _DISTANCE:
                struct.pack_into("<q", self._memory, place, to - place)
            elif kind in (_DISTANCE_32, _CALL):
                struct.pack_into("<i", self._memory, place, to - place)
            else:
                raise UnlinkableError(f"relocation {kind}")
            return
        name = self._name(symbol)
        if section != _NOWHERE or kind != _ADDRESS or not 0 < len(name) <= _NAME_BYTES:
            raise UnlinkableError(f"relocation {kind} of {name!r}")
        outside.append((place, added, name))

    def _name(self, symbol: tuple[int, ...]) -> bytes:
        start = self._names + symbol[0]
        return self._code[start : self._code.index(b"\0", start)]


def loaded(image: bytes) -> tuple[Function, object]:
    """The function of an image in memory, and what holds that memory.

    Raises UnlinkableError if it is none of `linked`, or the system refuses to run it.
    """
    try:
        entry, size, inside_count, outside_count = _HEADER.unpack_from(image)
        start = _HEADER.size
        inside = np.frombuffer(image, "<u8", inside_count, start)
        start += inside.nbytes
        outside = np.frombuffer(image, _OUTSIDE, outside_count, start)
        start += outside.nbytes
        places = np.concatenate([inside, outside["place"]])
        if len(image) - start != size or entry >= size or (places > size - 8).any():
            raise UnlinkableError("an image that is not whole")
        memory = mmap.mmap(-1, size)
        address = np.frombuffer(memory, np.uint8).ctypes.data
        memory[:] = image[start:]
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
    """Where a function of the C library is. Raises AttributeError."""
    function = getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _let_run(address: int, size: int) -> None:
    """Makes pages code, which nobody can change any more. Raises OSError."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    length = -(-size // _PAGE) * _PAGE
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(length), _READ_AND_RUN):
        raise OSError(ctypes.get_errno(), "cannot run code")
