"""Lays out the maps of attention, for engines whose attention can write from any plane of a part.

- Several attentions whose results are concatenated, as those of half the heads each, write into one
  part, and the copies to it are dropped.
- Queries, keys and values made by one convolution become separate maps. Then each is freed after
  its last reader, and results may overwrite the queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.ops.base import Step, compacted
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.passes.fusing import PLANES
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, View
from waifu2x.networks.activations import Activation


def joined(program: Program) -> Program:
    """Returns the program in which attentions whose results are concatenated write into one part;
    the program itself if there is nothing to change."""
    for value, stored in enumerate(program.values):
        if len(stored.parts) > 1 and _is_of_attention(program, value):
            return joined(_in_one_part(program, value))
    return program


def _is_of_attention(program: Program, value: int) -> bool:
    """Returns whether attention makes all parts of a value, and each reader reads it whole or
    copies it.

    Pairs of planes are stored at once: parts must begin with even ones.
    """
    parts = program.values[value].parts
    makers = [step for step in program.steps if step.writes == value]
    readers = [step for step in program.steps if any(v.value == value for v in step.reads)]
    whole = View(value, parts=len(parts))
    copied = _copies(program, value)
    return (
        all(isinstance(step, AttendWindows) for step in makers)
        and all(sum(parts[:part]) % 2 == 0 for part in range(len(parts)))
        and all(
            step in copied
            or (isinstance(step, Conv) and {v for v in step.reads if v.value == value} == {whole})
            for step in readers
        )
    )


def _copies(program: Program, value: int) -> list[Planewise]:
    """Returns the copies, if any, that concatenate all parts of a value in one of another."""
    stored = program.values[value]
    found = list[Planewise]()
    for target, other in enumerate(program.values):
        if other != replace(stored, parts=(stored.planes,), zero_outside=other.zero_outside):
            continue
        copies = [step for step in program.steps if step.writes == target]
        expected = [
            Planewise(
                step.node, View(value, first=part), Target(target, 0, sum(stored.parts[:part]))
            )
            for part, step in enumerate(copies)
        ]
        if len(copies) == len(stored.parts) and copies == expected:
            found += expected
    return found


def _in_one_part(program: Program, value: int) -> Program:
    """Returns the program in which a value has one part, and no copies."""
    stored = program.values[value]
    copies = _copies(program, value)
    same = {step.target.value: value for step in copies}
    values = list(program.values)
    zero = stored.zero_outside or any(values[copy].zero_outside for copy in same)
    values[value] = replace(stored, parts=(stored.planes,), zero_outside=zero)
    steps = list[Step]()
    cuts = tuple(cut - sum(step in copies for step in program.steps[:cut]) for cut in program.cuts)
    for step in program.steps:
        if step in copies:
            continue
        if step.writes == value:
            step = step.redirected(target=lambda to: _moved(to, stored.parts))
        if any(view.value == value for view in step.reads):
            step = step.redirected(lambda view: _read_whole(view, value))
        steps.append(step.renumbered(same))
    compact, made = compacted(values, steps, program.result)
    return replace(program, values=compact, steps=made, cuts=cuts)


def _moved(target: Target, parts: Sequence[int]) -> Target:
    return Target(target.value, 0, sum(parts[: target.part]))


def _read_whole(view: View, value: int) -> View:
    return View(value) if view.value == value else view


def separated(program: Program) -> Program:
    """Returns the program in which queries, keys and values are separate maps; the program itself
    if no convolution makes several of them."""
    values, steps = list(program.values), list[Step]()
    places: dict[int, list[tuple[int, int]]] = {}
    """The new places of a value's planes: the first of each range, and its value."""
    cuts = list[int]()
    for number, step in enumerate(program.steps):
        cuts += [len(steps)] if number in program.cuts else []
        ranges = _roles(program, step) if isinstance(step, Conv) else []
        if isinstance(step, Conv) and len(ranges) > 1:
            places[step.target.value] = []
            for first, end in ranges:
                steps.append(_with_outputs(step, first, end, len(values)))
                places[step.target.value].append((first, len(values)))
                values.append(replace(values[step.target.value], parts=(end - first,)))
        elif isinstance(step, AttendWindows):
            steps.append(_of_ranges(step, places))
        else:
            steps.append(step)
    if not places:
        return program
    values.append(values[program.result])
    result = len(values) - 1
    steps = [step.renumbered({program.result: result}) for step in steps]
    compact, made = compacted(values, steps, result)
    return replace(program, values=compact, steps=made, cuts=tuple(cuts))


def _roles(program: Program, conv: Conv) -> list[tuple[int, int]]:
    """Returns the ranges of a convolution's planes that attention reads as queries, keys and
    values; none where they overlap, or take more memory one by one."""
    value = conv.target.value
    stored = program.values[value]
    readers = [step for step in program.steps if any(v.value == value for v in step.reads)]
    makers = [step for step in program.steps if step.writes == value]
    plain = (
        conv.residual is None
        and conv.depth_to_space == 1
        and conv.resized is None
        and makers == [conv]
        and len(stored.parts) == 1
    )
    if not plain:
        return []
    roles: list[list[tuple[int, int]]] = [[], [], []]
    for step in readers:
        if not isinstance(step, AttendWindows):
            return []
        for role, view, first in zip(roles, step.reads, step.first, strict=True):
            if view.value == value:
                role.append((first, first + step.planes))
    hulls = sorted((min(role)[0], max(end for _, end in role)) for role in roles if role)
    apart = all(one[1] <= other[0] for one, other in pairwise(hulls))
    padded = sum(round_up(end - first, PLANES) for first, end in hulls)
    return hulls if apart and padded <= round_up(stored.planes, PLANES) else []


def _with_outputs(conv: Conv, first: int, end: int, value: int) -> Conv:
    """Returns the convolution that makes some planes of another, into a value."""
    own = slice(first, end)
    function, slopes = conv.activation.function, conv.activation.slopes
    return replace(
        conv,
        weight=np.ascontiguousarray(conv.weight[own]),
        bias=conv.bias[own],
        activation=Activation(function, slopes[own]),
        target=Target(value),
    )


def _of_ranges(
    step: AttendWindows, places: Mapping[int, Sequence[tuple[int, int]]]
) -> AttendWindows:
    """Returns the attention reading planes at their new places."""
    views, firsts = list(step.reads), list(step.first)
    for role, (view, first) in enumerate(zip(step.reads, step.first, strict=True)):
        if view.value in places:
            start, value = max(place for place in places[view.value] if place[0] <= first)
            views[role], firsts[role] = View(value), first - start
    query, key, of_values = firsts
    source, keys, values = views
    return replace(step, source=source, keys=keys, values=values, first=(query, key, of_values))
