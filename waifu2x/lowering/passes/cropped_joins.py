"""Concatenates cropped maps without copies, for engines that store parts apart.

Pixels beyond a value's size are computed like any other, so a map that is larger than the value
can be a part of it uncropped: the cropped pixels lie beyond the value's size.
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
    """Returns the program's steps with convolutions writing where copies would bring their results,
    and None in the place of each such copy."""
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
    """Returns whether a step copies a value unchanged to a part of another that is computed alike
    beyond its size."""
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
    """Returns whether a convolution's results can be shifted by an offset."""
    return (
        conv.residual is None
        and conv.depth_to_space == 1
        and program.values[conv.source.value].space_to_depth == 1
    )


def _read_elsewhere(steps: list[Step | None], copy: Planewise) -> None:
    """Redirects, in `steps`, all readers of the copy's source to its target's part."""
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
