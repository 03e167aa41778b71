"""Budgets and places the maps that are kept whole between phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.records import LINE_BYTES
from waifu2x.backends.cpu.run.strips import PhaseStrips
from waifu2x.lowering.plan.box import round_up
from waifu2x.networks.model import Size
from waifu2x.system.machine import total_memory

MOST_BYTES = 1100 << 20
"""The most memory for kept maps."""
MOST_BYTES_OF_MEANS = 520 << 20
"""The most memory for 16-bit kept maps of networks with means; maps of floats may take twice as
much. More memory saves recomputation for later phases: a sixth of the time of cunet at 1920x1080
for half as much again."""
MOST_BYTES_OF_ATTENTION = 2 << 30
"""The most memory for kept maps of networks with attention, whose large halos make recomputation
costly; three maps of 60 planes, which accompany each layer, fit for 1920x1080."""
_MACHINE_SHARE = 4
"""Kept maps take at most one over this of the machine's memory: a quarter."""


_ANY = 1 << 62
"""More bytes than any machine has."""


class Places(NamedTuple):
    """The places of the kept maps of a picture."""

    starts: dict[int, int]
    """The offset of each in floats, by value."""
    floats: int
    """The floats of all maps together."""


class KeptMap(NamedTuple):
    """The size and lifetime of a kept map."""

    floats: int
    first: int
    """The phase that writes it."""
    last: int
    """The last phase that reads it."""


def budget(packed: PackedProgram) -> int:
    """Returns the most bytes of a program's kept maps."""
    return min(MOST_BYTES_OF_ATTENTION if packed.attends else MOST_BYTES, machine_share())


def budget_of_means(packed: PackedProgram) -> int:
    """Returns the most bytes of the kept maps of a program with means."""
    most = budget(packed)
    if not packed.attends:
        most = min(most, MOST_BYTES_OF_MEANS * (2 if packed.arithmetic == "fp32" else 1))
    return most


@cache
def machine_share() -> int:
    """Returns the most bytes of the machine's memory for kept maps."""
    memory = total_memory()
    return _ANY if memory is None else memory // _MACHINE_SHARE


def map_bytes(packed: PackedProgram, value: int, sizes: Sequence[Size]) -> int:
    """Returns the bytes of a kept map, for values of those sizes."""
    rows, columns = packed.maps.layouts[value].memory_size(sizes[value])
    return rows * columns * packed.maps.kept_floats(value) * 4


def places(phases: Sequence[PhaseStrips]) -> Places:
    """Returns the places of all kept maps."""
    maps = {}
    for first, strips in enumerate(phases):
        for value in strips.phase.kept:
            floats = round_up(map_bytes(strips.packed, value, strips.sizes), LINE_BYTES) // 4
            last = first
            while value in phases[last].phase.live:
                last += 1
            maps[value] = KeptMap(floats, first, last)
    return placed(maps)


def placed(maps: Mapping[int, KeptMap]) -> Places:
    """Places maps; those that are never alive in the same phase may share memory.

    The largest maps are placed first. In the order in which they are made, long-lived small ones
    would leave gaps too small for large ones.
    """
    starts: dict[int, int] = {}
    for value in sorted(maps, key=lambda value: (-maps[value].floats, value)):
        own = maps[value]
        start = 0
        for other in sorted(starts, key=starts.__getitem__):
            taken, end = maps[other], starts[other] + maps[other].floats
            if taken.first > own.last or own.first > taken.last or end <= start:
                continue
            if starts[other] - start >= own.floats:
                break
            start = end
        starts[value] = start
    return Places(starts, max((starts[value] + maps[value].floats for value in maps), default=0))
