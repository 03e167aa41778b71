"""A picture that is added to the result: read by the step that makes the result."""

from __future__ import annotations

from dataclasses import replace

from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target
from waifu2x.networks.expressions import MULTIPLY


def with_picture(program: Program) -> Program:
    """A program with one step less where the step that makes the result adds a copy of the picture,
    perhaps enlarged: it reads the picture itself, since a copy is slow to make, keep and read.

    The residual is then a view of value 0, and of as many planes.
    """
    steps = program.steps
    last = next(step for step in steps if step.writes == program.result)
    if not isinstance(last, Planewise) or last.residual is None:
        return program
    if last.join == MULTIPLY:
        return program
    added = last.residual
    writers = [step for step in steps if step.writes == added.value]
    copy = writers[0]
    if not isinstance(copy, Planewise) or copy != Planewise(
        copy.node, copy.source, Target(added.value)
    ):
        return program
    if len(writers) > 1 or copy.source.value or len(read_by(program)[added.value]) > 1:
        return program
    source = replace(copy.source, offset=copy.source.offset + added.offset)
    short = {id(last): replace(last, residual=source), id(copy): None}
    changed = (short.get(id(step), step) for step in steps)
    return replace(program, steps=tuple(step for step in changed if step is not None))
