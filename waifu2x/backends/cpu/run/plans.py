"""How pictures of one size run through a packed program: phases, strips, kept maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.run import kept_memory
from waifu2x.backends.cpu.run.limits import check_maps
from waifu2x.backends.cpu.run.strips import PhaseStrips
from waifu2x.lowering.passes.segments import is_segmented
from waifu2x.lowering.plan import geometry, phases
from waifu2x.lowering.plan.costs import cost_to_keep
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class SizePlan:
    """How pictures of one size run."""

    sizes: Sequence[Size]
    """Rows and columns of each value."""
    phases: list[PhaseStrips]
    kept: kept_memory.Places
    """Where the maps lie that phases keep for later ones."""


def size_plan(packed: PackedProgram, height: int, width: int) -> SizePlan:
    """The plan for pictures of that size. Raises BackendError for one whose maps no memory
    holds."""
    program = packed.program
    sizes = geometry.sizes(program, height, width)
    check_maps(program, sizes)
    # Of a network that is cut, all is kept: see `blocks`.
    cut = is_segmented(program)
    found = phases.plan(
        program,
        packed.costs.__getitem__,
        lambda value: kept_memory.map_bytes(packed, value, sizes),
        math.inf if cut else kept_memory.budget_of_means(packed),
        partial(cost_to_keep, program) if packed.attends and not cut else None,
    )
    strips = [PhaseStrips(packed, phase, sizes) for phase in found]
    return SizePlan(sizes, strips, kept_memory.places(strips))
