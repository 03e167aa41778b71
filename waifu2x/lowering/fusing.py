"""Steps of a program taken along by the convolution before them, for engines that have it so.

- A gate behind a convolution is its epilogue: the convolution's own result is never stored, nor
  rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from waifu2x.lowering.geometry import read_by
from waifu2x.lowering.steps import Conv, GatedAdd, MapStep, Program, Step, View, compacted, writes


def fused(program: Program) -> Program:
    """The same program in fewer steps; the very program if there is nothing to do."""
    steps: list[Step | None] = list(program.steps)
    for number, step in enumerate(program.steps):
        if isinstance(step, GatedAdd):
            maker = _only_maker(program, number)
            made = None if maker is None else _gated(program, maker, step)
            if made is not None:
                steps[maker or 0], steps[number] = made, None
    if None not in steps:
        return program
    kept = [step for step in steps if step is not None]
    cuts = tuple(cut - steps[:cut].count(None) for cut in program.cuts)
    values, renumbered = compacted(program.values, kept, program.result)
    return replace(program, values=values, steps=renumbered, cuts=cuts)


def _only_maker(program: Program, number: int) -> int | None:
    """The convolution that makes all that a step reads as its source, if no other step reads it and
    no cut lies between."""
    step = program.steps[number]
    assert isinstance(step, MapStep)
    value = step.source.value
    whole = step.source == View(value) and len(program.values[value].parts) == 1
    if not whole or read_by(program)[value] != [number]:
        return None
    makers = [n for n, other in enumerate(program.steps) if writes(other) == value]
    if len(makers) != 1 or not isinstance(program.steps[makers[0]], Conv):
        return None
    same_phase = bisect_right(program.cuts, makers[0]) == bisect_right(program.cuts, number)
    return makers[0] if same_phase else None


def _gated(program: Program, maker: int, gate: GatedAdd) -> Conv | None:
    """The convolution with the gate behind it, if it can take it along."""
    conv, added = program.steps[maker], gate.residual
    assert isinstance(conv, Conv)
    fits = (
        conv.residual is None
        and conv.factor == 1
        and conv.depth_to_space == 1
        and added.value != 0
        and program.values[added.value].space_to_depth == 1
        and program.values[gate.target.value].space_to_depth == 1
        and all(writes(other) != added.value or n < maker for n, other in _writers(program, added))
    )
    if not fits:
        return None
    return replace(conv, target=gate.target, residual=added, gated=True)


def _writers(program: Program, view: View) -> list[tuple[int, Step]]:
    """The steps that write what a view reads."""
    return [
        (number, step)
        for number, step in enumerate(program.steps)
        if isinstance(step, MapStep)
        and step.target.value == view.value
        and view.first <= step.target.part < view.first + view.parts
    ]
