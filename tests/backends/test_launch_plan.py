"""Plans made of formulas against plans made of numbers, and how much is planned anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.test_cuda import Recorded, shipped, usual
from tests.helpers import obvious
from tests.helpers.graphs import residual_in_residual
from waifu2x.backends.cuda.tensor import TensorExecutor
from waifu2x.backends.cuda.tensor_conv import TensorConvStep
from waifu2x.backends.gpu import schedule
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.flags import NO_FLAGS
from waifu2x.backends.gpu.fp32 import Fp32Executor
from waifu2x.backends.gpu.launch_plan import Buffers, Ends, LaunchPlans, _OneSize
from waifu2x.backends.gpu.tuning import StoredChoices
from waifu2x.lowering import liveness
from waifu2x.lowering.geometry import round_up
from waifu2x.lowering.liveness import Span
from waifu2x.lowering.lower import lower
from waifu2x.lowering.steps import Conv
from waifu2x.lowering.symbols import Trace
from waifu2x.lowering.verify import verify_places
from waifu2x.networks.model import Model

BYTES = np.dtype(np.uint8)
MODELS = {
    "vgg_7": lambda: shipped("vgg_7/art"),
    "cunet": lambda: shipped("cunet/art"),
    "deep": lambda: residual_in_residual(2),
    "scale": lambda: obvious.random_model([3, 32, 32, 3], seed=1, scale=2),
}
SIZES = [(1, 1), (3, 5), (64, 64), (63, 66), (540, 960), (541, 959), (2000, 1500), (37, 4000)]


def executors(runtime: Any, model: Model) -> list[Executor]:
    """One of each kind."""
    program = lower(model)
    return [
        Fp32Executor(runtime, program, StoredChoices(runtime.device)),
        TensorExecutor(runtime, program, "wgmma", 1, usual),
        TensorExecutor(runtime, program, "mma", 2, usual),
    ]


def stacked(spans: Mapping[Any, Span], alignment: int) -> tuple[dict[Any, int], int]:
    """Places that no example decides: one behind the other."""
    offsets, end = {}, 0
    for name, span in spans.items():
        offsets[name] = end
        end += round_up(span.size, alignment)
    return offsets, end


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pictures", [1, 3])
def test_formulas_launch_what_numbers_do(
    name: str, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "places", stacked)
    runtime: Any = Recorded((9, 0))
    ends = Ends(pictures, BYTES, BYTES)
    for executor in executors(runtime, MODELS[name]()):
        plans = LaunchPlans(runtime, executor)
        buffers = Buffers(*(runtime.allocate(1 << 20) for _ in Buffers._fields))
        for side in range(90, 94):
            assert plans.plan(ends, (side, side)) is not None
        for size in SIZES:
            found = schedule.whole(executor, size, pictures)
            plan = plans.plan(ends, size)
            assert (found is None) == (plan is None)
            if found is not None and plan is not None:
                numbers = _OneSize(runtime, ends, size, found)
                assert (plan.scratch, plan.kept) == (numbers.scratch, numbers.kept)
                assert plan.launches(buffers, NO_FLAGS) == numbers.launches(buffers, NO_FLAGS)


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
    whole, launches = schedule.whole, TensorConvStep.launch

    def planned(*arguments: Any) -> Any:
        asked.append("plan")
        return whole(*arguments)

    def made(self: Any, task: Any) -> Any:
        asked.append(self.number)
        return launches(self, task)

    monkeypatch.setattr(schedule, "whole", planned)
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
