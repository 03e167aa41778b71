"""Counts the work of the processor for a picture, over the strips that it is cut into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.run.strips import PhaseStrips
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program


class StripsWork(NamedTuple):
    """The work for one picture."""

    share: float
    """Multiply-adds of all strips, for each that the picture itself needs."""
    blocks: int
    """How many pictures of their own it is cut into."""
    kept_bytes: int
    """The most memory for kept maps."""


def strips_work(model: CpuModel, height: int, width: int, cores: int) -> StripsWork:
    """The work for a picture of that size on `cores` cores."""
    program = model.packed.program
    whole = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, MapStep):
            rows, columns = geometry.sizes(program, height, width)[step.target.value]
            whole[number] = Box(0, 0, rows // step.stored_block, columns // step.stored_block)
    blocks = [model.plan(halo.height, halo.width) for _, halo in model.blocks(height, width)]
    computed = sum(_of_phase(strips, cores) for plan in blocks for strips in plan.phases)
    kept = max(4 * plan.kept.floats for plan in blocks)
    return StripsWork(computed / _cost(program, whole), len(blocks), kept)


def _of_phase(strips: PhaseStrips, cores: int) -> float:
    """Multiply-adds of a phase, over all its strips."""
    packed, phase = strips.packed, strips.phase
    roots = phase.roots(packed.program)
    division = strips.division(1, cores)
    divided = [geometry.tiles(strips.sizes[v], *division, packed.cut(v)) for v in roots]
    total = 0.0
    for boxes in zip(*divided, strict=True):
        found = {v: box for v, box in zip(roots, boxes, strict=True) if box.height and box.width}
        sizes = strips.sizes if packed.attends else None
        work = geometry.work(packed.program, phase.steps, found, packed.unit, sizes)
        total += _cost(packed.program, work.steps)
    return total


def _cost(program: Program, boxes: Mapping[int, Box]) -> float:
    """Multiply-adds of steps for boxes of what they make."""
    return sum(
        float(program.steps[number].cost(program) * box.height * box.width)
        for number, box in boxes.items()
    )
