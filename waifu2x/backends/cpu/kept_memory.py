"""Memory for the maps that are kept whole between phases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from waifu2x.backends.cpu.packed import PackedProgram
from waifu2x.backends.cpu.records import LINE_BYTES
from waifu2x.backends.cpu.strips import PhaseStrips
from waifu2x.lowering.geometry import round_up
from waifu2x.networks.model import Size
from waifu2x.system.machine import total_memory

MOST_BYTES = 1100 << 20
"""The most memory for kept maps."""
_MACHINE_SHARE = 4
"""Kept maps take at most one part of the machine's memory of so many."""


class Places(NamedTuple):
    """Where each kept map of a picture begins."""

    starts: dict[int, int]
    """In floats, by value."""
    floats: int
    """How many they take together."""


@cache
def budget() -> int:
    """Bytes that kept maps may take."""
    memory = total_memory()
    return MOST_BYTES if memory is None else min(MOST_BYTES, memory // _MACHINE_SHARE)


def map_bytes(packed: PackedProgram, value: int, sizes: Sequence[Size]) -> int:
    """Bytes of a map that is kept whole, for values of those sizes."""
    rows, columns = packed.maps.layouts[value].memory_size(sizes[value])
    return rows * columns * packed.maps.kept_floats(value) * 4


def places(phases: Sequence[PhaseStrips]) -> Places:
    """The places of all kept maps: those that are never needed at the same time share memory."""
    held: dict[int, tuple[int, int]] = {}
    starts, total = {}, 0
    for strips in phases:
        for value in strips.phase.kept:
            floats = round_up(map_bytes(strips.packed, value, strips.sizes), LINE_BYTES) // 4
            start = 0
            for first, end in sorted(held.values()):
                if first - start >= floats:
                    break
                start = end
            starts[value], held[value] = start, (start, start + floats)
            total = max(total, start + floats)
        held = {value: place for value, place in held.items() if value in strips.phase.live}
    return Places(starts, total)
