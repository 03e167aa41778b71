"""Graphs to steps: what is fused, where boxes lie, what is kept between phases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import obvious
from tests.helpers.graphs import fit_padding, residual_in_residual
from tests.helpers.steps import is_copy, is_scale
from waifu2x.backends.call import Call
from waifu2x.backends.reference.backend import NumpyNetwork
from waifu2x.errors import ModelError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise, PlanewiseStep
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.passes import segments
from waifu2x.lowering.plan import geometry, phases
from waifu2x.lowering.plan.box import Box, aligned, overlap
from waifu2x.lowering.values import View
from waifu2x.networks import model_set
from waifu2x.networks.activations import leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Enlarge,
    InterpolateTo,
    MaxPool,
    Mean,
    Multiply,
    Node,
    PixelShuffle,
)

SIDES = st.integers(1, 300)


def convolution(source: int, read: int, made: int, side: int = 3, **more: int) -> Convolution:
    weight = np.ones((made, read, side, side), np.float32)
    return Convolution(source, weight, np.zeros(made, np.float32), leaky(0.1, made), **more)


def test_vgg_7_is_nothing_but_convolutions() -> None:
    program = lower(obvious.random_model([3, 32, 32, 3], seed=1, scale=2))
    assert [type(step) for step in program.steps] == [Conv] * 3
    first = program.steps[0]
    assert isinstance(first, Conv)
    # Three layers lose three pixels of the doubled picture, which four pixels of padding cover.
    assert (first.source.enlarge, first.source.offset) == (2, 1)
    assert program.model.padding == 2


def test_cunet_moves_only_what_a_mean_scales() -> None:
    (model,) = model_set.find("cunet/art").models(2, None)
    program = lower(model)
    moves = [step for step in program.steps if isinstance(step, PlanewiseStep)]
    assert len(moves) == 4
    assert all(is_scale(move) and move.residual is None for move in moves)
    convolutions = [step for step in program.steps if isinstance(step, Conv)]
    assert len(convolutions) == 22
    assert [p.depth_to_space for p in convolutions].count(2) == 4
    assert sum(p.residual is not None for p in convolutions) == 4
    assert sum(value.space_to_depth == 2 for value in program.values) == 3


def test_a_kernel_with_too_many_taps_is_a_sentence() -> None:
    model = fit_padding("wide", 1, (convolution(0, 1, 1, 19),))
    with pytest.raises(ModelError, match=r"wide: node 1: a kernel of 19 taps .* 18 at most"):
        lower(model)


@given(height=SIDES, width=SIDES, down=st.integers(1, 7), across=st.integers(1, 7))
@settings(deadline=None)
def test_tiles_cover_each_pixel_once(height: int, width: int, down: int, across: int) -> None:
    covered = np.zeros((height, width), int)
    for box in geometry.tiles((height, width), down, across, 4):
        assert 0 <= box.top <= box.bottom <= height
        assert 0 <= box.left <= box.right <= width
        covered[box.top : box.bottom, box.left : box.right] += 1
    assert (covered == 1).all()


def test_a_box_needs_three_rows_more_for_each_side_of_three_layers() -> None:
    program = lower(obvious.random_model([3, 8, 8, 3], seed=1))
    work = geometry.work(program, range(3), {3: Box(8, 4, 4, 8)})
    assert work.values[0] == Box(8, 4, 10, 14)
    assert work.steps[2] == Box(8, 4, 4, 8)
    cells = geometry.work(program, range(3), {3: Box(9, 4, 2, 8)}, (4, 4))
    assert cells.steps[2] == Box(8, 4, 4, 8)
    assert cells.steps[1] == Box(8, 4, 8, 12)
    assert cells.values[0] == Box(8, 4, 14, 18)


@pytest.mark.parametrize("unit", [1, 4])
def test_around_a_picture_nothing_is_computed_but_zeros_that_are_read(unit: int) -> None:
    program = lower(residual_in_residual(4))
    sizes = geometry.sizes(program, 23, 18)
    assert segments.receptive_radius(program) == 28
    everything = Box(0, 0, *sizes[program.result])
    work = geometry.work(
        program, range(len(program.steps)), {program.result: everything}, (unit, unit), sizes
    )
    for number, box in work.steps.items():
        step = program.steps[number]
        assert isinstance(step, MapStep)
        rows, columns = sizes[step.target.value]
        if isinstance(step, Conv):
            rows, columns = rows // step.depth_to_space, columns // step.depth_to_space
        inside = aligned(Box(0, 0, rows, columns), (unit, unit))
        most = Box(-1, -1, inside.height + 2, inside.width + 2)
        assert overlap(box, aligned(most, (unit, unit))) == box


def kept(program: object, budget: float) -> list[tuple[int, ...]]:
    plan = phases.plan(program, lambda step: 1.0, lambda value: 1.0, budget)  # type: ignore[arg-type]
    return [phase.kept for phase in plan]


def test_what_is_kept_fits_the_budget() -> None:
    (model,) = model_set.find("cunet/art").models(2, None)
    program = lower(model)
    plan = phases.plan(program, lambda step: 1.0, lambda value: 1.0, float("inf"))
    assert len(plan) == 5
    # Everything that a later phase reads is kept, so nothing is computed twice.
    steps = [number for phase in plan for number in phase.steps]
    assert len(steps) == len(set(steps))
    averages = [program.steps[number] for phase in plan for number in phase.averages]
    assert all(isinstance(step, GlobalAvgPool) for step in averages)
    assert len(averages) == 4
    for budget in (0, 1, 2, 3):
        plan = phases.plan(program, lambda step: 1.0, lambda value: 1.0, budget)
        for before, phase in zip([None, *plan], plan, strict=False):
            held = set(before.live if before else ()) | set(phase.kept)
            assert len(held) <= budget
    assert kept(program, 0) == [()] * 5


def test_less_memory_means_more_work() -> None:
    (model,) = model_set.find("cunet/art").models(2, None)
    program = lower(model)
    counts = [
        sum(len(p.steps) for p in phases.plan(program, lambda s: 1.0, lambda v: 1.0, budget))
        for budget in (0, 1, 2, 4, 100)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_many_maps_that_cross_a_mean_are_chosen_from_in_no_time() -> None:
    """Each choice of 40 would be a million million."""
    net = GraphBuilder("m", 4)
    kernel = np.zeros((4, 4, 3, 3), np.float32), np.zeros(4, np.float32)
    value, across = 0, []
    for _ in range(40):
        value = net.convolution(value, *kernel, padding=1)
        across.append(value)
    factors = net.dense(net.mean(value), np.eye(4, dtype=np.float32), np.zeros(4, np.float32))
    value = net.multiply(value, factors)
    for other in reversed(across):
        value = net.add(net.convolution(value, *kernel, padding=1), other, 0.5)
    program = lower(net.model())
    counts = []
    for budget in (0, 10, 20, 100):
        first, last = phases.plan(program, lambda step: 1.0, lambda value: 1.0, budget)
        assert len(first.kept) <= budget
        counts.append(len(first.steps) + len(last.steps))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[2] > counts[3]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_deep_network_in_segments_computes_the_same(count: int) -> None:
    model = residual_in_residual(3)
    program = lower(model)
    positions = sorted(np.random.default_rng(count).choice(range(1, 20), count, replace=False))
    cut = segments.cut(program, list(map(int, positions)))
    assert len(cut.cuts) == count
    plan = phases.plan(cut, lambda step: 1.0, lambda value: 1.0, float("inf"))
    assert len(plan) == count + 1
    steps = [number for phase in plan for number in phase.steps]
    assert len(steps) == len(set(steps)) == len(cut.steps)
    pixels = np.random.default_rng(0).random((21, 17, 3), np.float32)
    network = NumpyNetwork([cut])
    result = network.run(Call(pixels, np.float32))
    assert obvious.psnr(result, obvious.run([model], pixels)) > 140
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=5)), result)


def test_what_is_concatenated_behind_several_cuts_is_copied_once() -> None:
    nodes: list[Node] = [convolution(0, 3, 8, padding=1)]
    for _ in range(8):
        nodes.append(convolution(len(nodes), 8, 8, padding=1))
    nodes.append(Concatenate((len(nodes), 1, 3)))
    nodes.append(convolution(len(nodes), 24, 3, padding=1))
    model = fit_padding("concatenated", 3, tuple(nodes))
    cut = segments.cut(lower(model), (2, 4, 7))
    copies = [number for number, step in enumerate(cut.steps) if is_copy(step)]
    assert copies == [cut.cuts[-1], cut.cuts[-1] + 1]
    pixels = np.random.default_rng(0).random((21, 17, 3), np.float32)
    network = NumpyNetwork([cut])
    result = network.run(Call(pixels, np.float32))
    assert obvious.psnr(result, obvious.run([model], pixels)) > 140
    np.testing.assert_array_equal(network.run(Call(pixels, np.float32, tile=5)), result)


def test_what_is_kept_over_several_cuts_is_copied_once() -> None:
    model = residual_in_residual(4)
    program = lower(model)
    cut = segments.cut(program, (8, 16, 24))
    first = next(value for value, stored in enumerate(cut.values) if len(stored.parts) > 1)
    copied = {
        step.target.value
        for step in cut.steps
        if is_copy(step) and step.source == View(first) and step.residual is None
    }
    assert len(copied) == 1
    assert not any(
        is_copy(step) and step.residual is None and step.source.value in copied
        for step in cut.steps
    )
    pixels = np.random.default_rng(0).random((21, 17, 3), np.float32)
    assert (
        obvious.psnr(
            NumpyNetwork([cut]).run(Call(pixels, np.float32)), obvious.run([model], pixels)
        )
        > 140
    )


def test_only_deep_networks_are_cut() -> None:
    for name in ("vgg_7/art", "upconv_7/art", "cunet/art"):
        (model,) = model_set.find(name).models(2, None)
        assert segments.segmented(lower(model)).cuts == ()
    deep = lower(residual_in_residual(8, 64, 32))
    cut = segments.segmented(deep)
    assert segments.receptive_radius(deep) == 52
    # Every residual block reaches seven pixels: none is worth computing twice.
    assert len(cut.cuts) >= 8
    for phase in phases.plan(cut, lambda step: 1.0, lambda value: 1.0, float("inf")):
        assert len(phase.live) <= 3


def test_what_depends_on_the_size_of_the_whole_is_not_cut() -> None:
    """Blocks of a network that is cut run as pictures of their own size."""
    net = GraphBuilder("deep", 3)
    value = net.extend(residual_in_residual(3).nodes)
    net.append(InterpolateTo(net.append(MaxPool(value, 2, 2)), value))
    program = lower(net.model())
    assert segments.segmented(program) is program
    assert segments.segmented(lower(residual_in_residual(3))).cuts


def test_two_networks_in_a_row_keep_nothing_of_the_first_for_the_second() -> None:
    (model,) = model_set.find("cunet/art").models(2, None)
    whole = lower(model)
    assert segments.at_bottlenecks(lower(residual_in_residual(3))).cuts == ()
    program = segments.at_bottlenecks(whole)
    (cut,) = program.cuts
    behind = phases.plan(program, lambda step: 1.0, lambda value: 1.0, float("inf"))
    assert len(behind) == len(phases.plan(whole, lambda s: 1.0, lambda v: 1.0, float("inf"))) + 1
    (end,) = [phase for phase in behind if max(phase.steps) == cut - 1]
    (left,) = end.live
    assert program.values[left].planes == 3
    pixels = np.random.default_rng(0).random((13, 10, 3), np.float32)
    expected = NumpyNetwork([whole]).run(Call(pixels, np.float32))
    np.testing.assert_array_equal(NumpyNetwork([program]).run(Call(pixels, np.float32)), expected)


@pytest.mark.parametrize(("planes", "is_cut"), [(4, False), (5, True)])
def test_no_part_of_few_planes_is_copied(planes: int, is_cut: bool) -> None:
    nodes: list[Node] = [
        convolution(0, 3, planes, padding=1),
        convolution(1, planes, 32, padding=1),
    ]
    for _ in range(12):
        nodes.append(convolution(len(nodes), 32, 32, padding=1))
    nodes.append(Concatenate((len(nodes), 1)))
    nodes.append(convolution(len(nodes), 32 + planes, 3, padding=1))
    program = lower(fit_padding("few", 3, tuple(nodes)))
    assert bool(segments.segmented(program, (16, 16)).cuts) == is_cut


def test_what_is_enlarged_is_computed_small() -> None:
    weight = np.random.default_rng(5).normal(size=(4, 3, 3, 3)).astype(np.float32)
    bias = np.arange(4, dtype=np.float32)
    same = Convolution(1, weight, bias, leaky(0.1, 4), padding=1)
    model = fit_padding("enlarged", 3, (Enlarge(0, 2), same, convolution(2, 4, 3, padding=1)))
    program = lower(model)
    assert [type(step) for step in program.steps] == [Conv] * 2
    pixels = np.random.default_rng(6).random((5, 7, 3), np.float32)
    result = NumpyNetwork([program]).run(Call(pixels, np.float32))
    assert obvious.psnr(result, obvious.run([model], pixels)) > 140


def test_what_is_enlarged_by_much_is_computed_as_it_is() -> None:
    """81,920 planes of the small map, 20 x 64 x 64, are more than a value may have."""
    net = GraphBuilder("m", 1)
    rng = np.random.default_rng(3)
    value = net.enlarge(0, 64)
    for planes, read, taps in ((20, 1, 3), (1, 20, 1)):
        weight = rng.standard_normal((planes, read, taps, taps), np.float32) / np.float32(4)
        value = net.convolution(value, weight, np.zeros(planes, np.float32), padding=taps // 2)
    model, pixels = net.model(), rng.random((2, 3, 1), dtype=np.float32)
    made = NumpyNetwork([lower(model)]).run(Call(pixels, np.float32))
    assert obvious.psnr(made, obvious.run([model], pixels)) > 120


@pytest.mark.parametrize("kind", ["crops", "concatenations"])
def test_a_thousand_nodes_in_a_row_that_make_nothing(kind: str) -> None:
    net = GraphBuilder("m", 1)
    kernel = np.ones((1, 1, 3, 3), np.float32), np.zeros(1, np.float32)
    value = net.convolution(0, *kernel, padding=1)
    for _ in range(3000):
        value = net.crop(value, 0) if kind == "crops" else net.concatenate(value)
    net.convolution(value, *kernel, padding=1)
    assert sum(isinstance(step, Conv) for step in lower(net.model()).steps) == 2


def test_a_picture_that_is_added_enlarged_is_an_input_of_the_last_product() -> None:
    nodes = (
        convolution(0, 3, 8, padding=1),
        replace(convolution(1, 8, 12, padding=1), activation=leaky(1.0, 12)),
        PixelShuffle(2, 2),
        Enlarge(0, 2),
        Add(3, 4),
    )
    model = fit_padding("added", 3, nodes)
    program = lower(model)
    assert [type(step) for step in program.steps] == [Conv, Planewise, Conv]
    pixels = np.random.default_rng(6).random((5, 7, 3), np.float32)
    result = NumpyNetwork([program]).run(Call(pixels, np.float32))
    assert obvious.psnr(result, obvious.run([model], pixels)) > 140


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ((), "a network without nodes"),
        ((convolution(1, 1, 1),), r"node 1 \(Convolution\): it reads value 1, which is not made"),
        ((convolution(0, 3, 1),), r"weight reads 3 planes, but the picture makes 1"),
        ((convolution(0, 1, 1), Add(1, 0)), "its sources lie at different places"),
        ((Mean(0),), "its result is a vector, but expected a picture"),
        ((Mean(0), Crop(1, 1)), "reads a vector, but expected a map"),
        (
            (convolution(0, 1, 2), Mean(0), Multiply(1, 2)),
            "multiplies the 2 planes of .* by the 1 factors of",
        ),
        ((convolution(0, 1, 1, 2, stride=2),), "its result is 1/2 times the picture"),
        ((Crop(0, 500),), "its result begins 500 pixels off the picture's"),
    ],
)
def test_graphs_that_are_not_whole(nodes: tuple[object, ...], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        Model("broken", 1, nodes, 0)  # type: ignore[arg-type]


def test_padding_that_does_not_fit_the_network() -> None:
    with pytest.raises(ModelError, match="its result begins -1 pixels off the picture's"):
        Model("broken", 1, (convolution(0, 1, 1),), 2)
