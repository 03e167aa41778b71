"""Links an object file (ELF, x86-64) to an image, except for its final address.

It supports only what Numba's code needs: sections that are never written, addresses of 64 bits, and
distances. LLVM links all other files, which get no image.
"""

from __future__ import annotations

import mmap
import struct

import numpy as np

from waifu2x.backends.cpu.compile.code_image import MOST_NAME, Image, UnlinkableError

_SECTION = np.dtype("<u4,<u4,<u8,<u8,<u8,<u8,<u4,<u4,<u8,<u8")
_SYMBOL = np.dtype("<u4,u1,u1,<u2,<u8,<u8")
_RELOCATION = np.dtype("<u8,<u4,<u4,<i8")
_ELF_X86_64 = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _NO_BITS, _UNWINDING = 2, 4, 8, 0x70000001
"""Types of sections (System V ABI, chapter 4)."""
_WRITTEN, _IN_MEMORY, _THREADS = 1, 2, 0x400
"""Flags of sections."""
_ADDRESS, _DISTANCE_32, _CALL, _DISTANCE = 1, 2, 4, 24
"""Types of relocations: R_X86_64_64, PC32, PLT32, PC64."""
_NOWHERE = 0


def linked(code: bytes, function: str) -> Image:
    """Returns the image of an object file, with `function` as its entry.

    Raises UnlinkableError for a file with anything not named above.
    """
    try:
        return _Object(code).image(function.encode())
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise UnlinkableError(str(error)) from error


class _Object:
    """A relocatable object file."""

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

    def image(self, function: bytes) -> Image:
        """Returns the image of its sections, with `function` as its entry."""
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
        return Image(entry, bytes(self._memory), inside, outside)

    def _laid_out(self) -> tuple[dict[int, int], bytearray]:
        """Joins the sections needed; returns the offset of each, and their contents."""
        places: dict[int, int] = {}
        memory = bytearray()
        for number, section in enumerate(self._sections):
            _, kind, flags, _, offset, size, _, _, alignment, _ = section
            if not flags & _IN_MEMORY or kind == _UNWINDING or not size:
                continue
            if flags & (_WRITTEN | _THREADS) or kind == _NO_BITS or alignment > mmap.PAGESIZE:
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
        """Applies a relocation at `place`. Adds the place to `inside` if it needs the address at
        which the image is loaded, or to `outside` if it needs that of another library's symbol."""
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
        if section != _NOWHERE or kind != _ADDRESS or not 0 < len(name) <= MOST_NAME:
            raise UnlinkableError(f"relocation {kind} of {name!r}")
        outside.append((place, added, name))

    def _name(self, symbol: tuple[int, ...]) -> bytes:
        start = self._names + symbol[0]
        return self._code[start : self._code.index(b"\0", start)]
