"""Fused convolutions, for engines that have them, give the same results in fewer steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.helpers import obvious
from tests.helpers.graphs import (
    RandomGraph,
    multiplied_maps,
    random_graphs,
    residual_in_residual,
)
from tests.helpers.steps import is_copy, is_scale
from tests.helpers.verify import verify
from waifu2x.backends.call import Call
from waifu2x.backends.reference.backend import NumpyNetwork
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.passes.fusing import fused
from waifu2x.lowering.passes.segments import cut
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import GATE
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Gate, Interpolate


def assert_same(program: Program, model: Model, size: tuple[int, int] = (19, 23)) -> None:
    verify(program)
    pixels = np.random.default_rng(3).random((*size, model.in_planes), np.float32)
    found = NumpyNetwork([program]).run(Call(pixels, np.float32))
    assert obvious.psnr(found, obvious.run([model], pixels)) > 120


@given(random_graphs())
@settings(max_examples=8, deadline=None)
def test_random_graphs_compute_the_same(model: Model) -> None:
    assert_same(fused(lower(model)), model)


def gated() -> Model:
    """Two gates behind convolutions; the second one reads what the first made."""
    builder = RandomGraph(3, 5)
    value = builder.random_convolution(0, 8, 3, 1, 1, "leaky")
    for kind in ("silu", "linear"):
        inner = builder.random_convolution(value, 8, 3, 1, 1, kind)
        value = builder.append(Gate(inner, value))
    builder.random_convolution(value, 3, 3, 1, 1, "linear")
    return builder.model("zero")


def test_a_gate_is_the_epilogue_of_its_convolution() -> None:
    model = gated()
    program = fused(lower(model))
    assert [type(step) for step in program.steps] == [Conv] * 4
    assert [step.join == GATE for step in program.steps if isinstance(step, Conv)] == [0, 1, 1, 0]
    assert_same(program, model)
    assert fused(program) is program


def test_a_gate_that_a_convolution_makes_is_the_epilogue_of_another_one() -> None:
    """Two of them; what is multiplied by gates of one plane, and by others, is not."""
    model = multiplied_maps()
    program, before = fused(lower(model)), lower(model)
    assert len([s for s in program.steps if isinstance(s, Conv) and s.own_gate]) == 2
    assert len(program.steps) == len(before.steps) - 4
    assert_same(program, model)
    assert fused(program) is program


@pytest.mark.parametrize("planes", [40, 32, 65])
@pytest.mark.parametrize(
    "change", ["nothing", "another reader", "a factor", "another sum", "slopes"]
)
def test_other_gates_that_a_convolution_makes_stay_steps(planes: int, change: str) -> None:
    net = RandomGraph(3, 5)
    value = net.random_convolution(0, planes, 3, 1, 1, "relu")
    made = net.random_convolution(value, planes, 3, 1, 1, "linear")
    total = net.add(value, made, 0.5) if change == "a factor" else net.add(value, made)
    kind = "slopes" if change == "slopes" else "tanh"
    factors = net.random_convolution(
        value if change == "another sum" else made, planes, 1, 1, 0, kind
    )
    value = net.multiply(total, factors)
    if change == "another reader":
        value = net.concatenate(value, made)
    net.random_convolution(value, 3, 3, 1, 1, "linear")
    model = net.model()
    program = fused(lower(model))
    taken = any(isinstance(step, Conv) and step.own_gate for step in program.steps)
    assert taken == (change == "nothing" and planes == 40)
    assert_same(program, model)


def test_a_convolution_that_something_else_reads_keeps_its_result() -> None:
    builder = RandomGraph(3, 5)
    inner = builder.random_convolution(0, 8, 3, 1, 1, "leaky")
    made = builder.random_convolution(inner, 8, 3, 1, 1, "leaky")
    joined = builder.concatenate(builder.append(Gate(made, inner)), made)
    builder.random_convolution(joined, 3, 3, 1, 1, "linear")
    model = builder.model("zero")
    program = fused(lower(model))
    assert sum(isinstance(step, Planewise) and step.join == GATE for step in program.steps) == 1
    assert_same(program, model)


def test_a_thousand_scaled_maps_are_one_pass() -> None:
    net = GraphBuilder("m", 3)
    zeros, kernel = np.zeros(32, np.float32), np.zeros((32, 32, 1, 1), np.float32)
    value = net.convolution(0, np.zeros((32, 3, 1, 1), np.float32), zeros)
    factors = net.dense(net.mean(value), kernel[:, :, 0, 0], zeros)
    for _ in range(1100):
        value = net.convolution(net.multiply(value, factors), kernel, zeros)
    net.convolution(value, kernel[:3], zeros[:3])
    program = fused(lower(net.model()))
    assert sum(isinstance(step, Conv) and step.factors == 1 for step in program.steps) == 1100
    assert not any(is_scale(step) for step in program.steps)


def test_cropped_maps_are_made_beside_each_other() -> None:
    builder = RandomGraph(3, 5)
    maps = [builder.random_convolution(0, 8, 3, 1, 0, "leaky")]
    for _ in range(2):
        maps.append(builder.random_convolution(maps[-1], 8, 3, 1, 0, "leaky"))
    joined = builder.concatenate(builder.crop(maps[0], 2), builder.crop(maps[1], 1), maps[2])
    builder.random_convolution(joined, 3, 1, 1, 0, "linear")
    model = builder.model("replicate")
    program = fused(lower(model))
    convolutions = [step for step in program.steps if isinstance(step, Conv)]
    assert len(convolutions) == len(program.steps) == 4
    assert [step.source.offset for step in convolutions] == [2, -1, -1, 0]
    assert len(program.values) == 3
    assert_same(program, model)
    assert_same(program, model, (1, 2))
    assert fused(program) is program


@pytest.mark.parametrize("padding", [0, 1])
def test_maps_that_end_in_zeros_are_copied(padding: int) -> None:
    builder = RandomGraph(3, 5)
    first = builder.random_convolution(0, 8, 3, 1, 0, "leaky")
    inner = builder.random_convolution(first, 8, 3, 1, padding, "leaky")
    last = builder.random_convolution(inner, 8, 3, 1, 0, "leaky")
    joined = builder.concatenate(builder.crop(first, 2 - padding), last)
    builder.random_convolution(joined, 3, 1, 1, 0, "linear")
    model = builder.model("zero")
    program = fused(lower(model))
    assert sum(is_copy(step) for step in program.steps) == padding
    assert_same(program, model)


@pytest.mark.parametrize("position", [1, 2, 3, 4])
def test_cuts_stay_where_they_are(position: int) -> None:
    model = gated()
    program = cut(lower(model), [position])
    found = fused(program)
    assert len(found.cuts) == len(program.cuts) == 1
    assert len(found.steps) < len(program.steps)
    assert_same(found, model)


def test_a_picture_passed_on_is_added() -> None:
    builder = RandomGraph(3, 7)
    value = builder.random_convolution(0, 8, 3, 1, 1, "leaky")
    value = builder.random_convolution(value, 12, 3, 1, 1, "linear")
    builder.add(builder.pixel_shuffle(value, 2), builder.enlarge(0, 2))
    model = builder.model("zero")
    program = fused(lower(model))
    _, last = program.steps
    assert isinstance(last, Conv)
    assert (last.in_planes, last.residual) == (8, View(0, enlarge=2))
    assert_same(program, model)


def test_what_a_mean_scales_is_scaled_where_it_is_read() -> None:
    builder = RandomGraph(3, 11)
    value = builder.random_convolution(0, 32, 3, 1, 0, "leaky")
    scaled = builder.squeeze(value)
    half = builder.random_convolution(scaled, 32, 2, 2, 0, "leaky")
    up = builder.random_transposed(half, 32, 2, 2, 0, "leaky")
    builder.random_convolution(builder.add(up, scaled), 3, 3, 1, 0, "linear")
    model = builder.model()
    program = fused(lower(model))
    assert not any(is_scale(step) for step in program.steps)
    assert_same(program, model)
    assert any(is_scale(step) for step in fused(lower(model), scales=False).steps)


@pytest.mark.parametrize("size", [(19, 23), (1, 1), (2, 3)])
@pytest.mark.parametrize("adds", [True, False])
def test_a_resize_is_one_with_the_convolution_before(size: tuple[int, int], *, adds: bool) -> None:
    builder = RandomGraph(3, 13)
    value = builder.random_convolution(0, 8, 3, 1, 1, "leaky")
    value = builder.random_convolution(value, 48, 3, 1, 1, "linear")
    large = builder.pixel_shuffle(value, 4)
    if adds:
        large = builder.add(large, builder.enlarge(0, 4))
    builder.append(Interpolate(large, 1, 2))
    model = builder.model("zero")
    program = fused(lower(model))
    assert [type(step) for step in program.steps] == [Conv, Conv]
    assert_same(program, model, size)
    assert len(fused(lower(model), resizes=False).steps) == 3


def test_of_two_sums_behind_a_convolution_weights_make_one() -> None:
    model = residual_in_residual(2)
    plain = lower(model)
    program = fused(plain)
    assert sum(is_copy(step) for step in plain.steps) == 2
    assert not any(is_copy(step) for step in program.steps)
    assert_same(program, model)
    assert fused(plain, sums=False) is plain
