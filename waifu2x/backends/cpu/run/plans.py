"""Plans the run of a packed program for pictures of one size: phases, strips, kept maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.run import kept_memory
from waifu2x.backends.cpu.run.strips import PhaseStrips
from waifu2x.errors import BackendError
from waifu2x.lowering.passes.segments import is_segmented
from waifu2x.lowering.plan import geometry, phases
from waifu2x.lowering.plan.box import Box, hull, overlap, scaled
from waifu2x.lowering.plan.costs import cost_to_keep
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass

_MOST_VALUES = 1 << 46
"""The most values of a map: 64 TiB, as bytes."""


@dataclass(frozen=True, eq=False)
class SizePlan:
    """The plan for pictures of one size."""

    sizes: Sequence[Size]
    """Rows and columns of each value."""
    phases: list[PhaseStrips]
    kept: kept_memory.Places
    """The places of the maps that phases keep for later ones."""


def size_plan(packed: PackedProgram, height: int, width: int, inner: Box | None = None) -> SizePlan:
    """Returns the plan for pictures of that size; for `inner`, see Call. Raises BackendError if it
    is too large."""
    program = packed.program
    sizes = geometry.sizes(program, height, width)
    _check_maps(program, sizes)
    # A network that is cut keeps all maps: see `blocks`.
    cut = is_segmented(program)
    found = phases.plan(
        program,
        packed.costs.__getitem__,
        lambda value: kept_memory.map_bytes(packed, value, sizes),
        math.inf if cut else kept_memory.budget_of_means(packed),
        partial(cost_to_keep, program) if packed.attends and not cut else None,
    )
    extents = _extents(packed, found, sizes, inner)
    strips = [
        PhaseStrips(packed, phase, sizes, made) for phase, made in zip(found, extents, strict=True)
    ]
    return SizePlan(sizes, strips, kept_memory.places(strips))


def _extents(
    packed: PackedProgram, found: Sequence[Phase], sizes: Sequence[Size], inner: Box | None
) -> list[dict[int, Box]]:
    """Returns for each phase the boxes of its roots to make: whole values, or what the results of
    `inner` need."""
    program = packed.program
    whole = [Box(0, 0, *size) for size in sizes]
    roots = [phase.roots(program) for phase in found]
    if inner is None or any(phase.averages for phase in found):
        return [{value: whole[value] for value in some} for some in roots]
    top, left, height, width = scaled(inner, program.model.scale)
    wanted = {program.result: Box(top - 1, left - 1, height + 2, width + 2)}
    made: list[dict[int, Box]] = []
    for phase, some in zip(reversed(found), reversed(roots), strict=True):
        own = {value: overlap(wanted[value], whole[value]) for value in some if value in wanted}
        work = geometry.work(
            program, phase.steps, own, packed.unit, sizes if packed.attends else None
        )
        for value, box in work.needed.items():
            if value in phase.given:
                wanted[value] = hull(box, wanted.get(value))
        made.insert(0, own)
    return made


def _check_maps(program: Program, sizes: Sequence[Size]) -> None:
    """Raises BackendError if no memory can hold maps of those sizes."""
    for value, (rows, columns) in zip(program.values, sizes, strict=True):
        if rows * columns * value.planes > _MOST_VALUES:
            raise _too_large(program.model.name, (rows, columns, value.planes))


def check_result(shape: tuple[int, ...]) -> None:
    """Raises BackendError if no memory can hold a result of that shape."""
    if math.prod(shape) > _MOST_VALUES:
        raise _too_large("backend cpu", shape[-3:])


def _too_large(name: str, shape: tuple[int, ...]) -> BackendError:
    rows, columns, planes = shape
    return BackendError(
        f"{name}: the picture is too large: it takes {columns}x{rows} pixels of {planes} planes"
    )
