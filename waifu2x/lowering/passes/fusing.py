"""Fuses steps of a program into the convolutions beside them, for engines that can do so.

- A gate behind a convolution becomes its epilogue: the convolution's own result is neither stored
  nor rounded. So does a gate that another convolution makes of that result.
- Scaling of the input, or of the residual, of 1x1 convolutions becomes a factor at their loads.
- The picture as a further input that a shuffled convolution passes on (see `identities`) becomes
  its residual: its planes are not multiplied.
- A resize by one half behind a shuffled convolution becomes part of it: see `resizing`.
- Of two additions behind a convolution, the first becomes weights if it adds planes that the
  convolution reads.
- Convolutions write cropped maps directly into their concatenations: see `cropped_joins`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import MapStep, Step, compacted
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.passes.cropped_joins import joined
from waifu2x.lowering.passes.own_gates import taken_along
from waifu2x.lowering.passes.resizing import with_resizes
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Value, View
from waifu2x.networks.expressions import ADD, GATE, MULTIPLY, Expression

PLANES = 32
"""Only maps of a multiple of this many planes are scaled at loads: none is padding then."""
_Rule = Callable[[Program, int, Planewise], Conv | None]
"""Takes a program, a convolution's number and a step behind it; returns the fused convolution, or
None where they cannot be fused."""
_MOST_OF_SUM = 0.25
"""The largest factor of a sum by weights: the error of 16-bit weights is then below a rounding of
the result."""


def fused(
    program: Program,
    *,
    scales: bool = True,
    resizes: bool = True,
    sums: bool = True,
    own_gates: bool = True,
) -> Program:
    """Returns the same program in fewer steps; the program itself if nothing can be fused.

    Each flag permits one fusion: `scales`, factors at a convolution's loads; `resizes`, the resize
    behind the last convolution; `sums`, additions as weights; `own_gates`, gates that a convolution
    makes of its own result.
    """
    program = _without(program, program.values, joined(program))
    program = _with_pictures(_taken_along(program, GATE, _gated))
    if own_gates:
        program = _without(program, program.values, taken_along(program))
    if sums:
        program = _taken_along(program, ADD, _summed)
    if resizes:
        program = with_resizes(program)
    return _with_factors(program) if scales else program


def _taken_along(program: Program, join: Expression, rule: _Rule) -> Program:
    """Returns the program in which convolutions absorb the planewise steps behind them that join by
    `join` and that `rule` can fuse."""
    steps: list[Step | None] = list(program.steps)
    for number, step in enumerate(program.steps):
        if isinstance(step, Planewise) and step.join == join and step.vector is None:
            maker = _only_maker(program, number)
            made = None if maker is None else rule(program, maker, step)
            if maker is not None and made is not None:
                steps[maker], steps[number] = made, None
    return _without(program, program.values, steps)


def _summed(program: Program, maker: int, copy: Planewise) -> Conv | None:
    """Returns the convolution fused with the addition behind it, if weights can add its residual
    instead: an identity at the middle tap of the residual's planes. None otherwise."""
    conv, added = program.steps[maker], copy.residual
    assert isinstance(conv, Conv)
    own, source = conv.residual, conv.source
    if not copy.is_copy or own is None or added is None:
        return None
    target = program.values[copy.target.value]
    middle = conv.taps // 2
    first = own.first - source.first
    fits = (
        own == View(source.value, source.offset + middle, first=own.first)
        and 0 <= first < source.parts
        and conv.activation.is_linear
        and conv.depth_to_space == 1
        and conv.factor != 0
        and conv.adds
        and conv.factors is None
        and conv.residual_factors is None
        and abs(copy.factor) <= _MOST_OF_SUM
        and added.value != 0
        and program.values[added.value].space_to_depth == 1
        and program.values[source.value].space_to_depth == 1
        and target.space_to_depth == 1
        and copy.target.plane == 0
        and target.parts[copy.target.part] == conv.out_planes
        and copy.target.value != program.result
        and all(n < maker for n, _ in _writers(program, added))
    )
    if not fits:
        return None
    before = sum(program.values[source.value].parts[source.first : own.first])
    planes = np.arange(conv.out_planes)
    weight = conv.weight.copy()
    weight[planes, before + planes, middle, middle] += np.float32(1 / conv.factor)
    return replace(
        conv,
        weight=weight,
        target=copy.target,
        residual=added,
        factor=conv.factor * copy.factor,
    )


def _with_pictures(program: Program) -> Program:
    number = 0
    while number < len(program.steps):
        step = program.steps[number]
        found = _picture_added(program, number, step) if isinstance(step, Conv) else None
        # A step before this one was removed: the next one has its number.
        program, number = (program, number + 1) if found is None else (found, number)
    return program


def _picture_added(program: Program, number: int, conv: Conv) -> Program | None:
    """Returns the program in which a convolution adds the picture as its residual, if its last
    inputs are the picture's planes, passed on; else None."""
    source, planes = conv.source, program.values[0].planes
    stored = program.values[source.value]
    last = source.first + source.parts - 1
    block = conv.depth_to_space
    fits = (
        source.parts > 1
        and last == len(stored.parts) - 1
        and stored.parts[last] == planes == conv.out_planes // block**2
        and conv.taps == 3
        and conv.activation.is_linear
        and conv.residual is None
        and conv.factor == 1
        and np.array_equal(conv.weight[:, -planes:], _passed_on(block, planes))
    )
    if not fits:
        return None
    view = View(source.value, first=last)
    copies = _writers(program, view)
    readers = [n for n in read_by(program)[source.value] if _reads(program.steps[n], view)]
    copied = copies[0][1]
    if readers != [number] or not isinstance(copied, Planewise) or copied.source.value != 0:
        return None
    if (
        not copied.is_copy
        or copied.source.enlarge > 1
        or copied.factor != 1
        or copied.residual is not None
    ):
        return None
    offset = (source.offset + 1 + copied.source.offset) * block
    steps: list[Step | None] = list(program.steps)
    steps[copies[0][0]] = None
    steps[number] = replace(
        conv,
        source=replace(source, parts=source.parts - 1),
        weight=np.ascontiguousarray(conv.weight[:, :-planes]),
        residual=View(0, offset, enlarge=block),
    )
    values = list(program.values)
    values[source.value] = replace(stored, parts=stored.parts[:-1])
    return _without(program, values, steps)


def _passed_on(block: int, planes: int) -> NDArray[np.float32]:
    """Returns the weights that pass planes on to all pixels [dy][dx][plane] of a result."""
    weight: NDArray[np.float32] = np.zeros((block**2, planes, planes, 3, 3), np.float32)
    weight[:, np.arange(planes), np.arange(planes), 1, 1] = 1
    return weight.reshape(-1, planes, 3, 3)


def _reads(step: Step, part: View) -> bool:
    """Returns whether a step reads a part of a value."""
    return any(
        view.value == part.value and view.first <= part.first < view.first + view.parts
        for view in step.reads
    )


def _with_factors(program: Program) -> Program:
    steps: list[Step | None] = list(program.steps)
    values = list(program.values)
    readers = read_by(program)
    makers: dict[int, list[Step]] = {}
    for step in program.steps:
        makers.setdefault(step.writes, []).append(step)
    for number, step in enumerate(program.steps):
        if isinstance(step, Planewise) and step.vector is not None:
            found = _scaled_where_read(program, number, step, steps, readers, makers)
            if found:
                steps[number] = None
                for n, reader in found.items():
                    steps[n] = reader
                stored, wanted = values[step.source.value], values[step.target.value]
                values[step.source.value] = replace(
                    stored,
                    space_to_depth=wanted.space_to_depth,
                    zero_outside=stored.zero_outside or wanted.zero_outside,
                )
    return _without(program, values, steps)


def _without(program: Program, values: Sequence[Value], steps: Sequence[Step | None]) -> Program:
    """Returns the program of the remaining steps, in the same order."""
    if None not in steps:
        return program
    kept = [step for step in steps if step is not None]
    cuts = tuple(cut - steps[:cut].count(None) for cut in program.cuts)
    compact, renumbered = compacted(values, kept, program.result)
    return replace(program, values=compact, steps=renumbered, cuts=cuts)


def _scaled_where_read(
    program: Program,
    number: int,
    scale: Planewise,
    steps: Sequence[Step | None],
    readers: Mapping[int, Sequence[int]],
    makers: Mapping[int, Sequence[Step]],
) -> dict[int, Step]:
    """Returns the readers of a scaled map, by number, each scaling it at its loads instead; empty
    if one of them cannot. `steps` are the program's, with earlier changes."""
    value, scaled = scale.source.value, scale.target.value
    stored, wanted = program.values[value], program.values[scaled]
    made = makers.get(value, ())
    fits = (
        scale.residual is None
        and scale.factor == 1
        and scale.shifts is None
        and scale.source == View(value)
        and value != 0
        and len(stored.parts) == len(wanted.parts) == 1
        and stored.planes % PLANES == 0
        and len(made) == 1
        and isinstance(made[0], Conv)
        and (made[0].depth_to_space == 1 or wanted.space_to_depth == 1)
        and (made[0].residual is None or wanted.space_to_depth == 1)
        and all(n == number or isinstance(program.steps[n], GlobalAvgPool) for n in readers[value])
    )
    found: dict[int, Step] = {}
    for n in readers[scaled] if fits else ():
        reader = steps[n]
        if not isinstance(reader, Conv):
            return {}
        if reader.source.value == scaled:
            if reader.taps > 1 or reader.source.parts > 1 or reader.factors is not None:
                return {}
            source = replace(reader.source, value=value)
            reader = replace(reader, source=source, factors=scale.vector)
        if reader.residual is not None and reader.residual.value == scaled:
            if reader.join == MULTIPLY:
                return {}
            residual = replace(reader.residual, value=value)
            reader = replace(reader, residual=residual, residual_factors=scale.vector)
        found[n] = reader
    return found


def _only_maker(program: Program, number: int) -> int | None:
    """Returns the number of the convolution that makes the source of a step, if it makes all of it,
    no other step reads it and no cut lies between."""
    step = program.steps[number]
    assert isinstance(step, MapStep)
    value = step.source.value
    whole = step.source == View(value) and len(program.values[value].parts) == 1
    if not whole or read_by(program)[value] != [number]:
        return None
    makers = [n for n, other in enumerate(program.steps) if other.writes == value]
    if len(makers) != 1 or not isinstance(program.steps[makers[0]], Conv):
        return None
    same_phase = bisect_right(program.cuts, makers[0]) == bisect_right(program.cuts, number)
    return makers[0] if same_phase else None


def _gated(program: Program, maker: int, gate: Planewise) -> Conv | None:
    """Returns the convolution fused with the gate behind it; None if it cannot be."""
    conv, added = program.steps[maker], gate.residual
    assert isinstance(conv, Conv)
    assert added is not None
    fits = (
        conv.residual is None
        and conv.factor == 1
        and conv.depth_to_space == 1
        and added.value != 0
        and program.values[added.value].space_to_depth == 1
        and program.values[gate.target.value].space_to_depth == 1
        and all(other.writes != added.value or n < maker for n, other in _writers(program, added))
    )
    if not fits:
        return None
    return replace(conv, target=gate.target, residual=added, join=gate.join)


def _writers(program: Program, view: View) -> list[tuple[int, Step]]:
    """Returns the steps that write the parts that a view reads."""
    return [
        (number, step)
        for number, step in enumerate(program.steps)
        if isinstance(step, MapStep)
        and step.target.value == view.value
        and view.first <= step.target.part < view.first + view.parts
    ]
