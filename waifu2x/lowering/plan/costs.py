"""Costs of steps and kept maps, in multiply-adds, by which tiles, cuts and kept maps are chosen."""

from __future__ import annotations

from waifu2x.lowering.ops.base import PLANEWISE_COST, MapStep, Step
from waifu2x.lowering.program import Program

_KEPT_COST = 100
"""Multiply-adds that take as long as storing one number of a map that is kept whole and loading it
again."""


def cost_of_pixel(program: Program, step: Step, planewise: int = PLANEWISE_COST) -> float:
    """Returns the cost of a step for one pixel of the picture; see `Step.cost`."""
    if not isinstance(step, MapStep):
        return 0.0
    resolution = program.values[step.target.value].resolution / step.stored_block
    return float(step.cost(program, planewise) * resolution**2)


def cost_to_keep(program: Program, value: int, part: int | None = None) -> float:
    """Returns the cost of keeping a value, or a part of it, for one pixel of the picture."""
    stored = program.values[value]
    planes = stored.planes if part is None else stored.parts[part]
    return float(_KEPT_COST * planes * stored.resolution**2)
