"""Maps of attention put together and apart, and steps in another order: the same results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import weight_files
from tests.helpers.attention import WINDOWS, attention_model, channel_attention_model
from tests.helpers.family_weights import Shapes, dat, filled, swinir
from tests.helpers.graphs import residual_in_residual
from tests.helpers.steps import is_copy
from tests.helpers.verify import verify
from waifu2x.backends.call import Call
from waifu2x.backends.reference.backend import NumpyNetwork
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.attention import AttendWindows, CrossSums
from waifu2x.lowering.passes.attention_maps import joined, separated
from waifu2x.lowering.passes.ordering import ordered
from waifu2x.lowering.program import Program
from waifu2x.networks.readers import parse_named


def program(shapes: Shapes) -> Program:
    return lower(parse_named(weight_files.safetensors(filled(shapes)), "m.safetensors"))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "dat": lambda: program(dat()),
    "swinir": lambda: program(swinir()),
    "halves": lambda: lower(attention_model(WINDOWS["dat"], heads=4)),
    "cells": lambda: lower(attention_model(WINDOWS["srformer"])),
    "planes": lambda: lower(channel_attention_model(2, 5)),
    "convolutions": lambda: lower(residual_in_residual(1)),
}


@pytest.mark.parametrize("change", [joined, separated, ordered])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name: str, change: Callable[[Program], Program]) -> None:
    before = PROGRAMS[name]()
    after = change(before)
    verify(after)
    pixels = np.random.default_rng(0).random((16, 9, 3), np.float32)
    expected = NumpyNetwork([before]).run(Call(pixels, np.float32))
    # Convolutions of fewer planes may add up in another order.
    np.testing.assert_allclose(
        NumpyNetwork([after]).run(Call(pixels, np.float32)), expected, atol=1e-6
    )


def test_halves_of_heads_lie_in_one_part_without_copies() -> None:
    before = PROGRAMS["dat"]()
    after = joined(before)
    assert sum(is_copy(step) for step in before.steps) >= 2
    assert not any(is_copy(step) for step in after.steps)
    planes = [step.target.plane for step in after.steps if isinstance(step, AttendWindows)]
    assert max(planes) > 0
    assert all(len(value.parts) == 1 for value in after.values)


def test_cuts_stay_where_they_are() -> None:
    before = PROGRAMS["dat"]()
    position = next(n for n, step in enumerate(before.steps) if isinstance(step, CrossSums))
    for change in (joined, separated, ordered):
        after = change(replace(before, cuts=(position,)))
        (cut,) = after.cuts
        for steps, earlier in (
            (after.steps[:cut], before.steps[:position]),
            (after.steps[cut:], before.steps[position:]),
        ):
            assert {step.node for step in steps} <= {step.node for step in earlier}


def test_queries_keys_and_values_are_maps_of_their_own() -> None:
    after = separated(program(swinir(32, (2, 4))))
    for step in after.steps:
        if isinstance(step, AttendWindows):
            views = step.source, step.keys, step.values
            assert len({view.value for view in views}) == 3
            assert step.first == (0, 0, 0)


def test_few_planes_stay_together() -> None:
    """Apart they would take more memory: of parts of 32 planes there would be three."""
    before = lower(attention_model(WINDOWS["swin"], heads=2, depth=5))
    assert separated(before) is before


def test_sums_of_planes_come_before_values_are_made() -> None:
    """Queries and keys are gone then."""
    steps = ordered(PROGRAMS["dat"]()).steps
    for number, step in enumerate(steps):
        if isinstance(step, CrossSums):
            (maker,) = (n for n in range(number) if writes_to(steps[n], step.source.value))
            assert maker == number - 1


def writes_to(step: object, value: int) -> bool:
    return getattr(getattr(step, "target", None), "value", None) == value
