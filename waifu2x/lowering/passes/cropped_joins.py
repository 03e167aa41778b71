"""Concatenations of cropped maps without copies, for engines that store parts apart.

Places beyond a value's size are computed like any other, so a map that is larger than the value
that it becomes a part of can stand there whole: what its crop drops lies beyond the value.
"""

from __future__ import annotations

from dataclasses import replace

from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View


def joined(program: Program) -> tuple[Step | None, ...]:
    """Returns the program's steps, in which convolutions write to the places to which copies would
    bring their results; None for such a copy."""
    steps: list[Step | None] = list(program.steps)
    if program.cuts:
        return tuple(steps)
    readers = read_by(program)
    for number, copy in enumerate(program.steps):
        if isinstance(copy, Planewise) and _is_plain(program, copy):
            value = copy.source.value
            makers = [n for n, step in enumerate(program.steps) if step.writes == value]
            if len(makers) == 1 and all(
                n == number or isinstance(program.steps[n], Conv) for n in readers[value]
            ):
                maker = steps[makers[0]]
                if isinstance(maker, Conv) and _can_move(program, maker):
                    steps[makers[0]] = replace(
                        maker,
                        source=_moved(maker.source, copy.source.offset),
                        target=copy.target,
                    )
                    steps[number] = None
                    _read_elsewhere(steps, copy)
    return tuple(steps)


def _is_plain(program: Program, copy: Planewise) -> bool:
    """Returns whether a copy brings an unchanged value to a part of another, both computed alike
    beyond their sizes."""
    source, target = program.values[copy.source.value], program.values[copy.target.value]
    return (
        copy.is_copy
        and copy.factor == 1
        and copy.residual is None
        and copy.source == View(copy.source.value, copy.source.offset)
        and copy.source.value != 0
        and len(source.parts) == 1
        and copy.target.plane == 0
        and target.parts[copy.target.part] == source.planes
        and source.space_to_depth == target.space_to_depth == 1
        and not (source.zero_outside or target.zero_outside)
    )


def _can_move(program: Program, conv: Conv) -> bool:
    """Returns whether a convolution can count its pixels from another one."""
    return (
        conv.residual is None
        and conv.depth_to_space == 1
        and program.values[conv.source.value].space_to_depth == 1
    )


def _read_elsewhere(steps: list[Step | None], copy: Planewise) -> None:
    """Has all steps read the target's part where they read the source."""
    value, offset, target = copy.source.value, copy.source.offset, copy.target

    def view(one: View) -> View:
        if one.value != value:
            return one
        return _moved(replace(one, value=target.value, first=target.part), -offset)

    for number, step in enumerate(steps):
        if step is not None and any(one.value == value for one in step.reads):
            steps[number] = step.redirected(view)


def _moved(view: View, by: int) -> View:
    return replace(view, offset=view.offset + by)
