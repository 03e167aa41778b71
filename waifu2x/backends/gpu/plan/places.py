"""One phase on one tile, and where its maps lie."""

from __future__ import annotations

from collections.abc import Mapping

from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.geometry import Work
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class MapPlace:
    """Where a map lies: as a BufferPlace."""

    is_kept: bool
    """Whether it is kept from phase to phase: such maps have a block of memory of their own, but
    where pictures are computed undivided."""
    offset: int
    box: Box


@dataclass(frozen=True)
class Pass:
    """One phase on one tile: see Executor.run."""

    work: Work
    places: Mapping[int, MapPlace]
    sums: Mapping[int, Box]
    tile: Box
