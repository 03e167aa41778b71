"""Plans made of formulas against plans made of numbers, and how much is planned anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.test_cuda import Recorded, shipped, usual
from tests.helpers import obvious, weight_files
from tests.helpers.family_weights import filled, swinir
from tests.helpers.graphs import random_graphs, residual_in_residual
from tests.helpers.verify import verify_places
from waifu2x.backends.cuda.tensor import runs
from waifu2x.backends.cuda.tensor.conv import TensorConvStep
from waifu2x.backends.cuda.tensor.executor import TensorExecutor, arranged
from waifu2x.backends.cuda.tensor.layout import layouts
from waifu2x.backends.cuda.tensor.step import LARGEST
from waifu2x.backends.cuda.tensor.units import Units
from waifu2x.backends.gpu.device.flags import NO_FLAGS
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.plan import tile_plan
from waifu2x.backends.gpu.plan.launch_plan import Buffers, Ends, LaunchPlans, _OneSize
from waifu2x.backends.gpu.plan.tuning import StoredChoices
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan import liveness
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.liveness import Span
from waifu2x.lowering.plan.symbols import Trace
from waifu2x.networks.model import Model, Size
from waifu2x.networks.readers import parse_named

BYTES = np.dtype(np.uint8)
MODELS = {
    "vgg_7": lambda: shipped("vgg_7/art"),
    "cunet": lambda: shipped("cunet/art"),
    "deep": lambda: residual_in_residual(2),
    "attention": lambda: parse_named(
        weight_files.safetensors(filled(swinir(32, (2,), head="shuffle", blocks=1))),
        "m.safetensors",
    ),
    "scale": lambda: obvious.random_model([3, 32, 32, 3], seed=1, scale=2),
}
SIZES = [(1, 1), (3, 5), (64, 64), (63, 66), (540, 960), (541, 959), (2000, 1500), (37, 4000)]


def executors(runtime: Any, model: Model) -> list[Executor]:
    """One of each kind that can run a model."""
    program = lower(model)
    found: list[Executor] = [Fp32Executor(runtime, program, StoredChoices(runtime.device))]
    units: Units
    for units, terms, trusted in (("wgmma", 1, 128.0), ("wgmma", 1, LARGEST), ("mma", 2, LARGEST)):
        own = arranged(program, units, terms)
        if runs.runs(own, layouts(own, terms)):
            found.append(TensorExecutor(runtime, own, units, terms, usual, trusted))
    return found


def stacked(spans: Mapping[Any, Span], alignment: int) -> tuple[dict[Any, int], int]:
    """Places that no example decides: one behind the other."""
    offsets, end = {}, 0
    for name, span in spans.items():
        offsets[name] = end
        end += round_up(span.size, alignment)
    return offsets, end


class SomeFlags:
    """Flags somewhere."""

    address = 123456

    def take(self, pictures: int) -> list[int]:
        return []


def check_sizes(
    model: Model, pictures: int, sizes: Sequence[Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every argument of every launch by formulas, against those by numbers."""
    monkeypatch.setattr(liveness, "places", stacked)
    runtime: Any = Recorded((9, 0))
    ends = Ends(pictures, BYTES, BYTES)
    for executor in executors(runtime, model):
        plans = LaunchPlans(runtime, executor)
        buffers = Buffers(*(runtime.allocate(1 << 20) for _ in Buffers._fields))
        flags = SomeFlags()
        for side in range(90, 94):
            assert plans.plan(ends, (side, side)) is not None
        for size in sizes:
            found = tile_plan.whole(executor, size, pictures)
            plan = plans.plan(ends, size)
            assert (found is None) == (plan is None)
            if found is not None and plan is not None:
                numbers = _OneSize(runtime, ends, size, found)
                assert plan.maps == numbers.maps
                assert plan.launches(buffers, flags) == numbers.launches(buffers, flags)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pictures", [1, 3])
def test_formulas_launch_what_numbers_do(
    name: str, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_sizes(MODELS[name](), pictures, SIZES, monkeypatch)


@pytest.mark.matrix
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pictures", [1, pytest.param(3, marks=pytest.mark.long)])
def test_formulas_launch_what_numbers_do_for_many_sizes(
    name: str, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiny ones, usual ones, long ones, and those that kernels cannot count."""
    rng = np.random.default_rng(7)
    sizes = list[Size]()
    for _ in range(40):
        sizes += [random_size(rng, most) for most in ((40, 40), (700, 700), (2200, 2200))]
        sizes += [random_size(rng, most) for most in ((8, 9000), (9000, 8), (70_000, 70_000))]
    check_sizes(MODELS[name](), pictures, sizes, monkeypatch)


@pytest.mark.matrix
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(model=random_graphs(), seed=st.integers(0, 1 << 30))
def test_formulas_launch_what_numbers_do_for_random_networks(model: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [random_size(rng, (700, 700)) for _ in range(10)]
    with pytest.MonkeyPatch.context() as patch:
        check_sizes(model, 1 + seed % 3, sizes, patch)


def random_size(rng: np.random.Generator, most: Size) -> Size:
    """Rows and columns."""
    rows, columns = (int(rng.integers(1, each)) for each in most)
    return rows, columns


def test_sizes_that_kernels_cannot_count_leave_formulas_alone() -> None:
    runtime: Any = Recorded((9, 0))
    plans = LaunchPlans(runtime, executors(runtime, MODELS["scale"]())[1])
    ends = Ends(1, BYTES, BYTES)
    for side in range(90, 100):
        assert plans.plan(ends, (side, side)) is not None
    (usual_sizes,) = plans._any_size[ends]
    for side in range(60_000, 60_040):
        assert plans.plan(ends, (side, side)) is None
    assert plans._any_size[ends] == [usual_sizes]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)), min_size=1),
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
)
def test_places_for_one_size_are_right_for_any(
    spans: list[tuple[int, int, int]], sizes: list[int]
) -> None:
    def made(rows: int) -> dict[int, Span]:
        return {
            number: Span(first, first + more, 100 * kind + rows * (7 - kind))
            for number, (first, more, kind) in enumerate(spans)
        }

    trace = Trace()
    with trace.common():
        offsets, total = liveness.places(made(trace.input(100)), 32)
        formula = trace.common_formula((*offsets.values(), total))
    for rows in sizes:
        _, (*found, end) = formula(rows)
        verify_places(made(rows), dict(zip(offsets, found, strict=True)), end, 32)


def test_sizes_are_planned_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime: Any = Recorded((9, 0))
    executor = TensorExecutor(runtime, lower(shipped("cunet/art")), "wgmma", 1, usual)
    plans = LaunchPlans(runtime, executor)
    buffers = Buffers(*(runtime.allocate(1 << 20) for _ in Buffers._fields))
    asked: list[object] = []
    whole, launches = tile_plan.whole, TensorConvStep.launch

    def planned(*arguments: Any) -> Any:
        asked.append("plan")
        return whole(*arguments)

    def made(self: Any, task: Any) -> Any:
        asked.append(self.number)
        return launches(self, task)

    monkeypatch.setattr(tile_plan, "whole", planned)
    monkeypatch.setattr(TensorConvStep, "launch", made)
    rng = np.random.default_rng(0)
    sizes = [(int(rows), int(columns)) for rows, columns in rng.integers(300, 1620, (400, 2))]
    for size in sizes:
        plan = plans.plan(Ends(1, BYTES, BYTES), size)
        assert plan is not None
        plan.launches(buffers, NO_FLAGS)
    # The first sizes by themselves, then all others together.
    assert asked.count("plan") <= 6
    steps = sum(isinstance(step, Conv) for step in executor.program.steps)
    assert len(asked) <= 14 * steps
    assert len(plans._plans) <= 256
    assert all(
        len(formulas) <= 16
        for one in plans._any_size.values()
        for each in one
        for formulas in each._formulas
    )
