"""What steps cost, in multiply-adds: what tiles, cuts and kept maps are chosen by."""

from __future__ import annotations

from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows, MixPlanes
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.program import MapStep, Program, Step
from waifu2x.lowering.step_facts import stored_block

PLANEWISE_COST = 16
"""Multiply-adds that take about as long as to move a plane of a pixel through memory."""
_KEPT_COST = 100
"""Multiply-adds that take as long as to keep a number of a map that is kept whole, and to read it
again."""


def cost_of_result(program: Program, step: Step, planewise: int = PLANEWISE_COST) -> int:
    """The cost of one pixel that a step makes, before depth-to-space; 0 if it makes a vector.

    `planewise` is what a planewise step costs for each plane.
    """
    if isinstance(step, Conv | Depthwise):
        gate = step.own_gate if isinstance(step, Conv) else None
        return step.weight.size + (gate.weight.size if gate else 0)
    if isinstance(step, MixPlanes | AttendPlanes):
        products = step.planes * (step.planes // step.heads)
        return products * 2 if isinstance(step, AttendPlanes) else products
    if isinstance(step, AttendWindows):
        return 2 * step.planes * step.windows.keys(0) * step.windows.keys(1)
    if isinstance(step, MapStep):
        return planewise * program.values[step.target.value].planes
    return 0


def cost_of_pixel(program: Program, step: Step, planewise: int = PLANEWISE_COST) -> float:
    """The cost of what a step makes for one pixel of the picture."""
    if not isinstance(step, MapStep):
        return 0.0
    resolution = program.values[step.target.value].resolution / stored_block(step)
    return float(cost_of_result(program, step, planewise) * resolution**2)


def cost_to_keep(program: Program, value: int, part: int | None = None) -> float:
    """The cost of keeping a value, or a part of it, for one pixel of the picture."""
    stored = program.values[value]
    planes = stored.planes if part is None else stored.parts[part]
    return float(_KEPT_COST * planes * stored.resolution**2)
