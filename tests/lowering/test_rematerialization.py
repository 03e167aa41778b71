"""Values that are made again from the picture behind attention."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.helpers import weight_files
from tests.helpers.attention import WINDOWS, attention_model
from tests.helpers.family_weights import Shapes, dat, filled, swinir
from tests.helpers.verify import verify
from waifu2x.backends.call import Call
from waifu2x.backends.reference.backend import NumpyNetwork
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.passes.rematerialization import cheap_values, rematerialized
from waifu2x.lowering.passes.segments import segmented
from waifu2x.lowering.plan import phases
from waifu2x.lowering.plan.costs import cost_of_pixel, cost_to_keep
from waifu2x.lowering.program import Program
from waifu2x.networks.readers import parse_named


def program(shapes: Shapes) -> Program:
    return lower(parse_named(weight_files.safetensors(filled(shapes)), "m.safetensors"))


@pytest.mark.parametrize("shapes", [swinir(), dat()], ids=["swinir", "dat"])
def test_they_are_the_same(shapes: Shapes) -> None:
    before = program(shapes)
    after = rematerialized(before)
    assert len(after.steps) > len(before.steps)
    verify(after)
    pixels = np.random.default_rng(0).random((16, 9, 3), np.float32)
    expected = NumpyNetwork([before]).run(Call(pixels, np.float32))
    np.testing.assert_array_equal(NumpyNetwork([after]).run(Call(pixels, np.float32)), expected)


def test_the_first_convolution_is_made_again_for_the_last_one() -> None:
    before = program(swinir(heads=(2, 2), blocks=3))
    after = rematerialized(before)
    made = Counter(step.node for step in after.steps if isinstance(step, Conv))
    first = before.steps[1]
    assert isinstance(first, Conv)
    assert first.in_planes == 3
    assert first.out_planes == 12
    # For the first layer, and for what is added behind its attention, behind the first group and at
    # the end.
    assert made[first.node] == 4
    assert max(count for node, count in made.items() if node > first.node) == 1
    kept = phases.crossing(segmented(after))
    assert kept
    assert max(len(phase.live) for phase in plan(segmented(after))) <= 2


def test_what_is_near_is_not_made_again() -> None:
    """The first layer adds what it reads behind its attention: that is there."""
    before = program(swinir(heads=(2, 2), blocks=3))
    again = [len(rematerialized(before, apart).steps) - len(before.steps) for apart in (1, 2, 9)]
    assert again[0] > again[1] > again[2] == 0


def test_what_attention_beside_it_reads_is_not_made_twice() -> None:
    """Both halves of the heads read one map of queries, which costs less to make than to keep."""
    before = lower(attention_model(WINDOWS["dat"], heads=4))
    assert len(rematerialized(before).steps) == len(before.steps) + 1


def test_values_are_cheap_that_cost_less_than_to_keep_them() -> None:
    before = program(swinir())
    for value, step in cheap_values(before).items():
        assert cost_of_pixel(before, step) <= cost_to_keep(before, value)
        assert value != before.result


def plan(made: Program) -> list[phases.Phase]:
    return phases.plan(made, lambda step: 1.0, lambda value: 1.0, float("inf"))


def test_what_is_cheaper_to_make_is_not_kept() -> None:
    made = rematerialized(program(dat()))

    def kept(budget: float) -> list[phases.Phase]:
        return phases.plan(
            made,
            lambda step: cost_of_pixel(made, made.steps[step]),
            lambda value: float(made.values[value].planes),
            budget,
            lambda value: cost_to_keep(made, value),
        )

    everything, less = plan(made), kept(float("inf"))
    assert max(len(phase.live) for phase in less) < max(len(phase.live) for phase in everything)
    # The residual stream is kept whatever the budget: else all before it would be computed again.
    assert sum(len(phase.steps) for phase in kept(0)) < 1.6 * len(made.steps)
