"""Files with something wrong in them: bits, sizes and counts, parts that are missing or twice."""

from __future__ import annotations

import struct

import numpy as np

_HEAD = 240
"""Bytes in which most formats have their sizes and counts."""
_EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def mutated(content: bytes, generator: np.random.Generator) -> bytes:
    """The content with one to four faults of one kind."""
    kind = int(generator.integers(6))
    data = bytearray(content)
    for _ in range(int(generator.integers(1, 5))):
        if kind == 0:
            data[_place(data, generator)] ^= 1 << int(generator.integers(8))
        elif kind == 1:
            _overwrite(data, generator)
        elif kind == 2:
            data[_place(data, generator)] = int(generator.integers(256))
        elif kind == 3:
            return bytes(data[: int(generator.integers(1, len(data)))])
        else:
            start = _place(data, generator)
            end = start + int(generator.integers(1, 40))
            part = data[start:end]
            data[start:end] = part + part if kind == 4 else b""
        if not data:
            break
    return bytes(data)


def _place(data: bytearray, generator: np.random.Generator) -> int:
    """Somewhere; half of the times near the start."""
    reach = min(len(data), _HEAD) if generator.integers(2) else len(data)
    return int(generator.integers(reach))


def _overwrite(data: bytearray, generator: np.random.Generator) -> None:
    """A number of two or four bytes, in either byte order, becomes an extreme one."""
    value = _EXTREMES[int(generator.integers(len(_EXTREMES)))]
    code = "<>"[int(generator.integers(2))] + "HI"[int(generator.integers(2))]
    packed = struct.pack(code, value & (0xFFFF if code[1] == "H" else 0xFFFFFFFF))
    at = _place(data, generator)
    data[at : at + len(packed)] = packed
