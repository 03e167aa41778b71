"""Where maps lie that are computed undivided: none is written over while a step still needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.test_cuda import Recorded, shipped, usual
from tests.helpers import weight_files
from tests.helpers.attention import WINDOWS, attention_model, channel_attention_model
from tests.helpers.family_weights import Shapes, dat, filled, mosr, swinir
from tests.helpers.operations import OPERATIONS
from waifu2x.backends.cuda.tensor.executor import TensorExecutor, arranged
from waifu2x.backends.cuda.tensor.units import Units
from waifu2x.backends.gpu.backend import lowered
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.plan import tile_plan
from waifu2x.backends.gpu.plan.tile_plan import Schedule
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.model import Model, Size
from waifu2x.networks.readers import parse_named
from waifu2x.system.size_class import size_class

LIGHT_WINDOW = (8, 32)


def family(shapes: Shapes, window: tuple[int, int] | None = None) -> Model:
    weights = filled(shapes, window=window) if window else filled(shapes)
    return parse_named(weight_files.safetensors(weights), "m.safetensors")


def dat_light() -> Model:
    """With a third of its blocks."""
    return family(dat(60, (6,), (6,), 2, 2, LIGHT_WINDOW), LIGHT_WINDOW)


def swinir_light() -> Model:
    return family(swinir(60, (6, 6)))


MODELS: dict[str, Callable[[], Model]] = {
    "dat": dat_light,
    "swinir": swinir_light,
    "mosr": lambda: family(mosr(64, 3)),
    "halves": lambda: attention_model(WINDOWS["dat, shifted"], heads=4, depth=8),
    "cells": lambda: attention_model(WINDOWS["srformer"], depth=16),
    "planes": lambda: channel_attention_model(2, 16),
    "cunet": lambda: shipped("cunet/art"),
    "strides": OPERATIONS["convolutions, stride 2, in a row"],
}


def executor_of(model: Model, units: Units, terms: int) -> TensorExecutor:
    runtime: Any = Recorded((9, 0))
    return TensorExecutor(runtime, arranged(lowered(model), units, terms), units, terms, usual)


def planes_of(step: MapStep, program: Program) -> set[int]:
    """The planes that a step writes."""
    count = program.values[step.target.value].planes
    if isinstance(step, AttendWindows):
        return set(range(step.target.plane, step.target.plane + step.planes))
    return set(range(count))


def check_places(executor: Executor, found: Schedule) -> None:
    """Follows which planes are still where they were written, step by step."""
    program = executor.program
    there: dict[int, set[int]] = {}
    where: dict[int, tuple[int, int]] = {}
    boxes: dict[int, Box] = {}
    for one in (one for rows in found.passes for row in rows for one in row):
        for number in sorted({*one.work.steps, *one.sums}):
            step = program.steps[number]
            read = {view.value for view in step.reads} - {0}
            for index, view in enumerate(step.reads):
                if not view.value:
                    continue
                wanted = set(range(program.values[view.value].planes))
                if isinstance(step, AttendWindows):
                    wanted = set(range(step.first[index], step.first[index] + step.planes))
                assert wanted <= there[view.value], f"step {number}: value {view.value} is gone"
                assert one.places[view.value].box == boxes[view.value]
                assert one.places[view.value].offset == where[view.value][0]
            if not isinstance(step, MapStep) or step.target.value == program.result:
                continue
            value, place = step.target.value, one.places[step.target.value]
            start = place.offset
            end = start + executor.map_bytes(value, place.box, 1)
            assert end <= found.scratch
            made = planes_of(step, program)
            for other in [other for other in there if other != value]:
                first, behind = where[other]
                if behind <= start or end <= first:
                    continue
                in_place = other in executor.in_place.get(value, ())
                in_place = in_place and first == start and boxes[other] == place.box
                assert in_place or other not in read, f"step {number} writes over {other}"
                there[other] = there[other] - made if in_place else set()
            if where.get(value) == (start, end) and isinstance(step, AttendWindows):
                there[value] |= made
            else:
                there[value] = made
            where[value], boxes[value] = (start, end), place.box


@pytest.mark.parametrize("units", ["wgmma", "mma"])
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_written_over_that_is_still_read(name: str, terms: int, units: Units) -> None:
    executor = executor_of(MODELS[name](), units, terms)
    for size in ((540, 960), (37, 70)):
        found = tile_plan.whole(executor, size, 1)
        assert found is not None
        check_places(executor, found)


@pytest.mark.parametrize("name", MODELS)
def test_kernels_read_nothing_but_their_own_pixels_of_what_they_write_over(name: str) -> None:
    executor = executor_of(MODELS[name](), "wgmma", 2)
    steps = executor.program.steps
    for value, others in executor.in_place.items():
        for step in (step for step in steps if step.writes == value):
            assert isinstance(step, MapStep)
            for other in others:
                assert executor._layouts[other] == executor._layouts[value]
                views = [view for view in step.reads if view.value == other]
                if isinstance(step, Depthwise) or (isinstance(step, Conv) and step.taps > 1):
                    assert views == [step.residual]
                elif isinstance(step, Conv):
                    # By space-to-depth, its source has its pixels in other cells.
                    assert executor.program.values[other].space_to_depth == 1
                if isinstance(step, AttendWindows):
                    assert views == [step.source]
                    assert step.first[0] == step.target.plane
                assert set(views) == {View(other)}


@pytest.mark.parametrize(
    ("make", "terms", "size", "most"),
    [
        (dat_light, 2, (540, 960), 0.6),
        (dat_light, 1, (540, 960), 0.6),
        (swinir_light, 1, (540, 960), 0.6),
        (dat_light, 2, (1080, 1920), 4.0),
    ],
    ids=["dat-light", "dat-light in 16 bits", "swinir-light", "dat-light at 1080p"],
)
def test_light_transformers_take_little_memory(
    make: Callable[[], Model], terms: int, size: Size, most: float
) -> None:
    """GiB of maps, as they are allocated; 0.01 are for weights and pixels."""
    found = tile_plan.whole(executor_of(make(), "wgmma", terms), size, 1)
    assert found is not None
    assert size_class(found.scratch) / 2**30 <= most - 0.01


def test_what_is_enlarged_is_made_in_bands() -> None:
    executor = executor_of(dat_light(), "wgmma", 2)
    large, small = (tile_plan.whole(executor, size, 1) for size in ((540, 960), (100, 100)))
    assert large is not None
    assert small is not None
    counts = [len(rows) for rows in large.passes]
    assert set(counts[:-1]) == {1}
    assert counts[-1] > 1
    assert {len(rows) for rows in small.passes} == {1}
    tiles = [row[0].tile for row in large.passes[-1]]
    assert [tile.top for tile in tiles[1:]] == [tile.bottom for tile in tiles[:-1]]
    assert tiles[-1].bottom == 1080
