"""Programs that passes make are sound; any change of one is found, and its place named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.helpers.graphs import random_graphs, residual_in_residual
from tests.helpers.steps import is_copy, is_scale
from tests.helpers.verify import verify, verify_phases, verify_places
from waifu2x.backends.cpu.pack.packer import with_picture
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.base import InvalidProgramError
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import Planewise, PoolMaxima, Resize
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.passes import segments
from waifu2x.lowering.passes.segments import cut, segmented
from waifu2x.lowering.plan import phases
from waifu2x.lowering.plan.liveness import Span
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, View
from waifu2x.networks.activations import leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import ADD, GATE
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Gate, GroupNorm, Interpolate, InterpolateTo, LayerNorm, MaxPool


def everything() -> Model:
    """A network whose program has a step of each class."""
    net = GraphBuilder("everything", 3)

    def conv(source: int, made: int, side: int = 3, stride: int = 1, padding: int = 1) -> int:
        weight = np.full((made, net.planes(source), side, side), 0.1, np.float32)
        bias = np.zeros(made, np.float32)
        return net.convolution(
            source, weight, bias, leaky(0.1, made), stride=stride, padding=padding
        )

    first = conv(0, 8)
    halved = conv(first, 8, side=2, stride=2, padding=0)
    mean = net.mean(halved)
    weight, bias = np.ones((8, 8), np.float32), np.zeros(8, np.float32)
    factors = net.dense(mean, weight, bias, leaky(0.0, 8))
    scaled = net.multiply(halved, factors)
    weight = np.full((8, 8, 2, 2), 0.1, np.float32)
    doubled = net.transposed(scaled, weight, bias, leaky(1.0, 8), stride=2)
    value = net.append(Gate(net.add(doubled, first), first))
    value = net.multiply(net.multiply(value, first), conv(first, 8))
    value = net.append(GroupNorm(value, np.ones(8, np.float32), np.zeros(8, np.float32), 2))
    value = net.append(LayerNorm(value, np.ones(8, np.float32), np.zeros(8, np.float32)))
    each = np.full((8, 1, 3, 3), 0.1, np.float32)
    value = net.convolution(value, each, np.zeros(8, np.float32), padding=1, groups=8)
    wide = net.concatenate(value, first)
    value = net.pixel_unshuffle(net.pixel_shuffle(wide, 2), 2)
    value = net.append(InterpolateTo(net.append(MaxPool(value, 3, 2)), value))
    value = net.append(Interpolate(net.append(Interpolate(conv(value, 12), 2, 1)), 1, 2))
    net.add(net.pixel_shuffle(conv(value, 12), 2), net.enlarge(0, 2))
    return net.model()


PROGRAM = lower(everything())
CUT = cut(lower(residual_in_residual(3)), [9])


def test_there_is_a_step_of_each_class() -> None:
    classes = {
        *(Conv, Depthwise, NormPlanes, Planewise, Resize, PoolMaxima),
        *(GlobalAvgPool, Linear, NormVector),
    }
    assert {type(step) for step in PROGRAM.steps} == classes
    verify(PROGRAM)
    verify(CUT)


def with_step(number: int, **fields: Any) -> Program:
    steps: list[Any] = list(PROGRAM.steps)
    steps[number] = replace(steps[number], **fields)
    return replace(PROGRAM, steps=tuple(steps))


def found(
    kind: type[Any] | tuple[type[Any], ...], which: Callable[[Any], bool] = lambda step: True
) -> tuple[int, Any]:
    """Number and step of the first of class `kind` for which `which` holds."""
    return next(
        (number, step)
        for number, step in enumerate(PROGRAM.steps)
        if isinstance(step, kind) and which(step)
    )


def of_value(number: int, **fields: Any) -> Program:
    values = list(PROGRAM.values)
    values[number] = replace(values[number], **fields)
    return replace(PROGRAM, values=tuple(values))


def without(number: int) -> Program:
    steps = PROGRAM.steps
    return replace(PROGRAM, steps=steps[:number] + steps[number + 1 :])


CONV, conv_step = found(Conv, lambda step: step.source.value)
STRIDED, strided = found(Conv, lambda step: PROGRAM.values[step.source.value].space_to_depth > 1)
SHUFFLED, shuffled = found(Conv, lambda step: step.depth_to_space > 1)
COPY, copy = found(Planewise, is_copy)
PARTS, into_part = found(
    (Conv, Planewise), lambda step: len(PROGRAM.values[step.target.value].parts) > 1
)
ADDED, adding = found((Conv, Planewise), lambda step: step.residual and step.join == ADD)
UP, up = found(Planewise, lambda step: step.depth_to_space > 1)
DOWN, down = found(Planewise, lambda step: step.space_to_depth > 1)
SCALE, scale = found(Planewise, is_scale)
GATED, gate = found(Planewise, lambda step: step.join == GATE)
RESIZE, resize = found(Resize, lambda step: step.taps == "bicubic")
BILINEAR, _ = found(Resize, lambda step: step.taps == "bilinear")
MAXIMA, maxima = found(PoolMaxima)
POOL, pool = found(GlobalAvgPool)
LINEAR, linear = found(Linear)
LAST = len(PROGRAM.values) - 1

MUTATIONS: dict[str, tuple[Callable[[], Program], str]] = {
    # Values.
    "no such graph value": (lambda: of_value(1, graph=99), "value 1: graph"),
    "no parts": (lambda: of_value(1, parts=()), "value 1: parts"),
    "a part of nothing": (lambda: of_value(1, parts=(8, 0)), "value 1: parts"),
    "another resolution": (lambda: of_value(1, resolution=Fraction(3)), "value 1: resolution"),
    "blocks and parts": (
        lambda: of_value(into_part.target.value, space_to_depth=2),
        "space_to_depth",
    ),
    "a picture by space-to-depth": (lambda: of_value(0, space_to_depth=2), "value 0: parts"),
    "a picture of more planes": (lambda: of_value(0, parts=(4,)), "value 0: parts"),
    "a result of more planes": (lambda: of_value(LAST, parts=(4,)), f"value {LAST}: parts"),
    # Reads.
    "an unknown source": (
        lambda: with_step(CONV, source=View(99)),
        rf"step {CONV} \(Conv\): source: there is no value 99",
    ),
    "the result is read": (
        lambda: with_step(CONV, source=View(LAST)),
        rf"step {CONV} \(Conv\): source: reads the result",
    ),
    "a part that is not there": (
        lambda: with_step(CONV, source=replace(conv_step.source, first=7)),
        rf"step {CONV} \(Conv\): source: parts 7",
    ),
    "no parts read": (
        lambda: with_step(CONV, source=replace(conv_step.source, parts=0)),
        rf"step {CONV} \(Conv\): source: parts",
    ),
    "shrunk by a view": (
        lambda: with_step(COPY, source=replace(copy.source, enlarge=0)),
        rf"step {COPY} \(Planewise\): source: enlarged 0",
    ),
    "read before it is written": (
        lambda: with_step(0, source=PROGRAM.steps[-1].reads[0]),
        r"step 0 \(Planewise\): source: part 0 of value \d+ is not written yet",
    ),
    "never written": (lambda: without(CONV), "is not written yet"),
    "a later step first": (
        lambda: replace(PROGRAM, steps=PROGRAM.steps[::-1]),
        "is not written yet",
    ),
    # Writes.
    "an unknown target": (
        lambda: with_step(CONV, target=Target(99)),
        rf"step {CONV} \(Conv\): target: no value to write",
    ),
    "the picture is written": (
        lambda: with_step(CONV, target=Target(0)),
        rf"step {CONV} \(Conv\): target: no value to write",
    ),
    "a target part that is not there": (
        lambda: with_step(CONV, target=replace(conv_step.target, part=5)),
        rf"step {CONV} \(Conv\): target: no part 5",
    ),
    "a convolution into the middle of a part": (
        lambda: with_step(CONV, target=replace(conv_step.target, plane=1)),
        rf"step {CONV} \(Conv\): target: begins within",
    ),
    "beyond a part": (
        lambda: with_step(COPY, target=replace(copy.target, plane=100)),
        rf"step {COPY} \(Planewise\): target: \d+ planes from 100",
    ),
    "less than a part": (
        lambda: of_value(
            gate.target.value, parts=(100, *PROGRAM.values[gate.target.value].parts[1:])
        ),
        "target: 8 planes of 100",
    ),
    "written twice": (
        lambda: replace(PROGRAM, steps=(*PROGRAM.steps, PROGRAM.steps[0])),
        rf"step {len(PROGRAM.steps)} \(Planewise\): target: planes that are written twice",
    ),
    "a target of another resolution": (
        lambda: with_step(UP, target=Target(scale.target.value)),
        rf"step {UP} \(Planewise\): target",
    ),
    "no result": (lambda: without(len(PROGRAM.steps) - 1), "nothing writes the whole result"),
    # Conv.
    "weights of other planes": (
        lambda: with_step(CONV, weight=conv_step.weight[:, :-1]),
        rf"step {CONV} \(Conv\): weight: reads",
    ),
    "two taps": (
        lambda: with_step(CONV, weight=np.zeros((*conv_step.weight.shape[:2], 2, 2), np.float32)),
        rf"step {CONV} \(Conv\): weight: shape",
    ),
    "taps that are not square": (
        lambda: with_step(CONV, weight=np.zeros((*conv_step.weight.shape[:2], 3, 1), np.float32)),
        rf"step {CONV} \(Conv\): weight: shape",
    ),
    "a bias too few": (
        lambda: with_step(CONV, bias=conv_step.bias[1:]),
        rf"step {CONV} \(Conv\): bias: shape",
    ),
    "a slope too few": (
        lambda: with_step(CONV, activation=leaky(0.1, conv_step.out_planes - 1)),
        rf"step {CONV} \(Conv\): activation: shape",
    ),
    "a map read enlarged": (
        lambda: with_step(CONV, source=replace(conv_step.source, enlarge=2)),
        rf"step {CONV} \(Conv\): source: a map that is enlarged",
    ),
    "a source that is not stored for the stride": (
        lambda: of_value(strided.source.value, space_to_depth=1),
        rf"step {STRIDED} \(Conv\): weight: reads",
    ),
    "planes that are no blocks": (
        lambda: with_step(SHUFFLED, depth_to_space=3),
        rf"step {SHUFFLED} \(Conv\): depth_to_space: 3",
    ),
    "depth-to-space into space-to-depth": (
        lambda: of_value(shuffled.target.value, space_to_depth=2),
        rf"step {SHUFFLED} \(Conv\): depth_to_space: into a value",
    ),
    # Residuals.
    "a residual of the picture": (
        lambda: with_step(GATED, residual=View(0)),
        rf"step {GATED} \(Planewise\): residual",
    ),
    "a residual of other planes": (
        lambda: with_step(ADDED, residual=View(up.target.value)),
        rf"step {ADDED} .*residual",
    ),
    "an enlarged residual": (
        lambda: with_step(GATED, residual=replace(gate.residual, enlarge=2)),
        rf"step {GATED} \(Planewise\): residual: enlarged",
    ),
    # The planewise.
    "several parts copied": (
        lambda: with_step(COPY, source=View(into_part.target.value, parts=2)),
        r"step \d+ \(Planewise\)",
    ),
    "planes that are no blocks of pixels": (
        lambda: with_step(UP, depth_to_space=3),
        rf"step {UP} \(Planewise\): depth_to_space: 3",
    ),
    "a block of nothing": (
        lambda: with_step(DOWN, space_to_depth=0),
        rf"step {DOWN} \(Planewise\): space_to_depth: 0",
    ),
    "a larger block": (
        lambda: with_step(DOWN, space_to_depth=4),
        rf"step {DOWN} \(Planewise\): target",
    ),
    "a vector that is not there yet": (
        lambda: replace(with_step(SCALE, vector=2), vectors=(*PROGRAM.vectors, 8)),
        rf"step {SCALE} \(Planewise\): vector: vector 2 is not written yet",
    ),
    "factors of other planes": (
        lambda: replace(PROGRAM, vectors=(9, *PROGRAM.vectors[1:])),
        "weight|vector",
    ),
    "resized by another factor": (
        lambda: with_step(RESIZE, up=3),
        rf"step {RESIZE} \(Resize\): target: resolution",
    ),
    "resized by nothing": (
        lambda: with_step(RESIZE, down=0),
        rf"step {RESIZE} \(Resize\): up",
    ),
    "a part of a map resized": (
        lambda: with_step(RESIZE, source=replace(resize.source, offset=1)),
        rf"step {RESIZE} \(Resize\): source",
    ),
    "the picture resized": (
        lambda: with_step(RESIZE, source=View(0)),
        rf"step {RESIZE} \(Resize\): source",
    ),
    "enlarged to a size by another factor": (
        lambda: with_step(BILINEAR, up=3),
        rf"step {BILINEAR} \(Resize\): target: resolution",
    ),
    "made smaller by what enlarges": (
        lambda: with_step(BILINEAR, down=9),
        rf"step {BILINEAR} \(Resize\): up",
    ),
    "places that are not read": (
        lambda: with_step(BILINEAR, radius=0),
        rf"step {BILINEAR} \(Resize\): radius",
    ),
    "the picture enlarged to a size": (
        lambda: with_step(BILINEAR, source=View(0)),
        rf"step {BILINEAR} \(Resize\): source",
    ),
    "maxima of nothing": (
        lambda: with_step(MAXIMA, kernel=0),
        rf"step {MAXIMA} \(PoolMaxima\): kernel",
    ),
    "maxima at other places": (
        lambda: with_step(MAXIMA, stride=3),
        rf"step {MAXIMA} \(PoolMaxima\): target: resolution",
    ),
    "maxima of a part of a map": (
        lambda: with_step(MAXIMA, source=replace(maxima.source, offset=1)),
        rf"step {MAXIMA} \(PoolMaxima\): source",
    ),
    # Vectors.
    "a mean of the picture": (
        lambda: with_step(POOL, source=View(0)),
        rf"step {POOL} \(GlobalAvgPool\): source",
    ),
    "a mean of what lies elsewhere": (
        lambda: with_step(POOL, source=replace(pool.source, offset=1)),
        rf"step {POOL} \(GlobalAvgPool\): source",
    ),
    "a mean into another vector's size": (
        lambda: replace(PROGRAM, vectors=(3, *PROGRAM.vectors[1:])),
        rf"step {POOL} \(GlobalAvgPool\): vector",
    ),
    "a vector that is not there": (
        lambda: with_step(POOL, vector=9),
        rf"step {POOL} \(GlobalAvgPool\): vector",
    ),
    "a vector written twice": (
        lambda: with_step(LINEAR, vector=linear.source),
        rf"step {LINEAR} \(Linear\): vector: written twice",
    ),
    "a vector read before it is written": (
        lambda: with_step(LINEAR, source=linear.vector),
        rf"step {LINEAR} \(Linear\): source",
    ),
    "weights of another vector": (
        lambda: with_step(LINEAR, weight=linear.weight[:, 1:]),
        rf"step {LINEAR} \(Linear\): weight",
    ),
    "a bias too few for a vector": (
        lambda: with_step(LINEAR, bias=linear.bias[1:]),
        rf"step {LINEAR} \(Linear\): bias",
    ),
    # Phases and cuts.
    "a map of an earlier phase that is not zero outside": (
        lambda: of_value(scale.source.value, zero_outside=False),
        f"value {scale.source.value} is read in a later phase",
    ),
    "a cut behind the end": (lambda: replace(CUT, cuts=(999,)), "cuts"),
    "cuts out of order": (lambda: replace(CUT, cuts=(5, 5)), "cuts"),
    "a cut through a map": (
        lambda: replace(CUT, cuts=(CUT.cuts[0] - 2,)),
        "cuts: values|is read in a later phase",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_in_a_program_is_named(name: str) -> None:
    make, message = MUTATIONS[name]
    with pytest.raises(InvalidProgramError, match=message):
        verify(make())


def test_every_program_that_is_run_is_verified_in_tests() -> None:
    make, message = MUTATIONS["a cut behind the end"]
    with pytest.raises(InvalidProgramError, match=message):
        phases.plan(make(), lambda step: 1.0, lambda value: 1.0, 1.0)
    make, _ = MUTATIONS["a vector written twice"]
    with pytest.raises(InvalidProgramError, match="vector: written twice"):
        segments.cut(make(), (3,))


@given(random_graphs())
@settings(max_examples=40, deadline=None)
def test_random_programs_are_whole(model: Model) -> None:
    program = lower(model)
    for made in (program, with_picture(program), segmented(program, (16, 16))):
        verify(made)
        for budget in (0.0, 1.0, float("inf")):
            plan = phases.plan(made, lambda step: 1.0, lambda value: 1.0, budget)
            verify_phases(made, plan)


def changed(number: int, **fields: Any) -> list[phases.Phase]:
    plan = phases.plan(PROGRAM, lambda step: 1.0, lambda value: 1.0, float("inf"))
    plan[number] = replace(plan[number], **fields)
    return plan


@pytest.mark.parametrize(
    ("number", "fields", "message"),
    [
        (0, {"given": (0, 2)}, "phase 0: given"),
        (0, {"steps": (1, 0)}, "phase 0: steps: out of order"),
        (0, {"steps": (1,)}, "phase 0: steps: step 1 reads"),
        (0, {"kept": (LAST,)}, "phase 0: kept: a value that is not made"),
        (0, {"live": frozenset([LAST])}, "phase 0: live"),
        (0, {"averages": ()}, "phase 0: averages: step 5"),
        (1, {"averages": (POOL,)}, "averages"),
        (2, {"steps": ()}, "phase 2: roots: it makes nothing"),
        (1, {"given": ()}, "steps: step .* reads"),
    ],
)
def test_a_fault_in_phases_is_named(number: int, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        verify_phases(PROGRAM, changed(number, **fields))


def test_a_phase_may_not_scale_by_a_mean_that_it_ends_with() -> None:
    plan = phases.plan(PROGRAM, lambda step: 1.0, lambda value: 1.0, float("inf"))
    both = replace(
        plan[0],
        steps=tuple(sorted({*plan[0].steps, *plan[1].steps})),
        dense=(*plan[0].dense, *plan[1].dense),
    )
    with pytest.raises(InvalidProgramError, match="before its mean is complete"):
        verify_phases(PROGRAM, [both])


@pytest.mark.parametrize(
    ("offsets", "total", "message"),
    [
        ({"a": 0, "b": 64}, 164, "overlap"),
        ({"a": 0, "b": 100}, 200, "map b: offset 100"),
        ({"a": 0, "b": 128}, 200, "map b: offset 128, to 228 of 200"),
        ({"a": -64, "b": 128}, 228, "map a: offset -64"),
    ],
)
def test_maps_that_overlap_are_found(offsets: dict[str, int], total: int, message: str) -> None:
    spans = {"a": Span(0, 2, 100), "b": Span(2, 3, 100)}
    verify_places(spans, {"a": 0, "b": 128}, 228, 64)
    verify_places({**spans, "b": Span(3, 4, 100)}, {"a": 0, "b": 0}, 100, 64)
    with pytest.raises(InvalidProgramError, match=message):
        verify_places(spans, offsets, total, 64)
