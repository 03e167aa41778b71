"""Fuses into a convolution the gate that a 1x1 convolution makes of its result.

Behind a convolution of 3x3 taps that makes m, SPANF3 computes (m + x) * tanh(weight m + bias): a
sum, a 1x1 convolution and a product, and each of these loads and stores whole maps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from waifu2x.lowering.ops.base import MapStep, Step
from waifu2x.lowering.ops.conv import Conv, OwnGate
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.expressions import LEAKY, MULTIPLY

_PLANES = range(33, 65)
"""Planes of maps that such convolutions read and make: one tile of matrix units holds both."""


class _Behind(NamedTuple):
    """The steps behind a convolution, by their numbers."""

    total: int
    """The step that adds a map to the convolution's result."""
    added: View
    """That map."""
    gate: int
    """The convolution that makes a gate, and multiplies the sum by it."""


def taken_along(program: Program) -> list[Step | None]:
    """Returns the steps of a program with such gates fused, and None in the place of each absorbed
    step."""
    steps: list[Step | None] = list(program.steps)
    readers = read_by(program)
    makers: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, MapStep):
            makers.setdefault(step.target.value, []).append(number)
    for number, step in enumerate(program.steps):
        if not isinstance(step, Conv) or not _may_gate(program, step):
            continue
        found = _behind(program, step.target.value, readers)
        if found is None or makers[step.target.value] != [number]:
            continue
        phases = {bisect_right(program.cuts, n) for n in (number, found.total, found.gate)}
        if len(phases) == 1:
            gate = program.steps[found.gate]
            assert isinstance(gate, Conv)
            steps[number] = steps[found.total] = None
            own = OwnGate(gate.weight[:, :, 0, 0], gate.bias, gate.activation)
            steps[found.gate] = replace(
                step, target=gate.target, residual=found.added, own_gate=own
            )
    return steps


def _may_gate(program: Program, conv: Conv) -> bool:
    source = program.values[conv.source.value]
    return (
        conv.taps == 3
        and conv.out_planes in _PLANES
        and conv.source.value != 0
        and conv.source.parts == 1
        and source.space_to_depth == 1
        and all(planes in _PLANES for planes in source.parts)
        and conv.residual is None
        and conv.factor == 1
        and conv.activation.function == LEAKY
        and conv.depth_to_space == 1
        and conv.factors is None
    )


def _behind(program: Program, value: int, readers: Mapping[int, Sequence[int]]) -> _Behind | None:
    """Returns the readers of a value if they are exactly a sum and its gate; else None."""
    made = View(value)
    if len(readers[value]) != 2:
        return None
    total, number = readers[value]
    copy, gate = program.steps[total], program.steps[number]
    if not (
        isinstance(copy, Planewise) and copy.is_copy and copy.residual and isinstance(gate, Conv)
    ):
        return None
    added = copy.residual if copy.source == made else copy.source
    fits = (
        {copy.source, copy.residual} == {made, added}
        and copy.factor == 1
        and added.value not in (0, value)
        and readers[copy.target.value] == [number]
        and gate.taps == 1
        and gate.join == MULTIPLY
        and gate.source == made
        and gate.residual == View(copy.target.value)
        and gate.factors is gate.residual_factors is None
        and not gate.activation.has_slopes
        and all(
            program.values[between].space_to_depth == len(program.values[between].parts) == 1
            for between in (value, copy.target.value)
        )
        and program.values[added.value].space_to_depth == 1
        and program.values[gate.target.value].space_to_depth == 1
    )
    return _Behind(total, added, number) if fits else None
