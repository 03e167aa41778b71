"""Finds the maps that a step may overwrite in place with its result.

Kernels that make a pixel from that pixel only read it before they write it: norms, planewise steps,
and the residuals of convolutions; 1x1 convolutions where a block makes all planes of its pixels;
and attention, which reads the planes and windows of its queries that it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waifu2x.backends.cuda.tensor.layout import FewLayout, MapLayout
from waifu2x.backends.cuda.tensor.planewise import has_whole_vectors
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import PlanewiseStep
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, View


def in_place(
    program: Program, layouts: Sequence[MapLayout | FewLayout], undivided: frozenset[int]
) -> dict[int, tuple[int, ...]]:
    """Maps each value to those that it may overwrite; see Executor.

    `undivided` are the numbers of convolutions whose blocks make all planes of their pixels.
    """
    makers: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, MapStep):
            makers.setdefault(step.target.value, []).append(number)
    found: dict[int, tuple[int, ...]] = {}
    for value, numbers in makers.items():
        layout = layouts[value]
        if value == program.result or not isinstance(layout, MapLayout) or len(layout.parts) > 1:
            continue
        if len(numbers) == 1:
            own = _own_pixels(program, numbers[0], layouts, undivided)
        else:
            own = _queries(program, numbers)
        alike = tuple(other for other in own if other and layouts[other] == layout)
        if alike:
            found[value] = alike
    return found


def clipped(program: Program) -> frozenset[int]:
    """Returns the values that no kernel writes beyond the box in memory: those of attention."""
    others = {step.writes for step in program.steps if not isinstance(step, AttendWindows)}
    made = {step.writes for step in program.steps if isinstance(step, AttendWindows)}
    return frozenset(made - others)


def _own_pixels(
    program: Program,
    number: int,
    layouts: Sequence[MapLayout | FewLayout],
    undivided: frozenset[int],
) -> Iterator[int]:
    """Yields the values that a step reads only at the pixels that it writes."""
    step = program.steps[number]
    assert isinstance(step, MapStep)
    if step.target != Target(step.target.value):
        return
    residual = step.residual
    views = [residual] if residual else []
    match step:
        case AttendWindows():
            yield from _queries(program, [number])
            return
        case NormPlanes():
            views.append(step.source)
        case Conv() if number in undivided and not _folds(program, step):
            views.append(step.source)
        case Conv() | Depthwise():
            pass
        case _:
            if not isinstance(step, PlanewiseStep) or not has_whole_vectors(program, step, layouts):
                return
            views.append(step.source)
    if isinstance(step, Conv) and step.depth_to_space > 1:
        return
    for view in views:
        whole = view == View(view.value) and len(program.values[view.value].parts) == 1
        elsewhere = [other for other in step.reads if other.value == view.value]
        if whole and all(other in views and other == view for other in elsewhere):
            yield view.value


def _folds(program: Program, step: Conv) -> bool:
    """Returns whether a convolution makes a pixel of several, stored by space-to-depth: those of
    other cells than the one that it is stored in."""
    return program.values[step.source.value].space_to_depth > 1


def _queries(program: Program, numbers: Sequence[int]) -> Iterator[int]:
    """Yields the value of the queries of several attentions, if each overwrites the planes that it
    reads, and no other step reads the value from the first attention on."""
    steps = [program.steps[number] for number in numbers]
    queries = set[int]()
    for step in steps:
        if not isinstance(step, AttendWindows) or step.first[0] != step.target.plane:
            return
        queries.add(step.source.value)
    if len(queries) > 1:
        return
    (value,) = queries
    for number, step in enumerate(program.steps):
        count = [view.value for view in step.reads].count(value)
        if count > 1 or (count and number > numbers[0] and number not in numbers):
            return
        if count and number in numbers and step.reads[0] != View(value):
            return
    yield value
