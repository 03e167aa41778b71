"""Formulas of traced computation against the computation itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waifu2x.lowering.plan.symbols import (
    Code,
    Formula,
    Trace,
    called,
    example,
    larger,
    least,
    smaller,
)

Pair = tuple[Any, Any]
OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a + 7,
    lambda a, b: 3 - a,
    lambda a, b: a * 3,
    lambda a, b: a * -2,
    lambda a, b: a * b,
    lambda a, b: a // 4,
    lambda a, b: a // -3,
    lambda a, b: -(-a // 8) * 8,
    lambda a, b: (4 * a + 6) // 2,
    lambda a, b: a % 5,
    lambda a, b: larger(a, b),
    lambda a, b: smaller(a, b + 3),
    lambda a, b: larger(a + 1, a),
    lambda a, b: max(a, b),
    lambda a, b: min(b, 40),
    lambda a, b: a if a else b,
    lambda a, b: b if a <= b else a - b,
    lambda a, b: a + 1 if a + 1 > a else b,
    lambda a, b: {a: 5}[a] + a,
    lambda a, b: len(range(a % 7)),
]


def traced(work: Callable[[Any, Any], Any], one: int, other: int) -> Formula:
    """A formula of what some work makes of two numbers, with these as examples."""
    trace = Trace()
    with trace.common():
        made = work(trace.input(one), trace.input(other))
        return trace.common_formula((made,))


@given(
    st.lists(st.tuples(st.sampled_from(OPERATIONS), st.booleans()), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(-50, 200), st.integers(-50, 200)), min_size=2, max_size=6),
)
def test_formulas_give_what_is_computed_or_do_not_hold(
    operations: list[tuple[Callable[[Any, Any], Any], bool]], numbers: list[tuple[int, int]]
) -> None:
    def work(one: Any, other: Any) -> Any:
        for operation, swaps in operations:
            one, other = (other, operation(one, other)) if swaps else (operation(one, other), other)
        return one

    formula = traced(work, *numbers[0])
    found = formula(*numbers[0])
    assert found is not None
    assert found[1] == (work(*numbers[0]),)
    for pair in numbers[1:]:
        found = formula(*pair)
        assert found is None or found[1] == (work(*pair),)


@pytest.mark.parametrize(
    ("work", "holds"),
    [
        (lambda a, b: a + 5 if a + 5 > a else b, True),
        (lambda a, b: larger(a, b), True),
        (lambda a, b: a if a < float("inf") else b, True),
        (lambda a, b: a if a < b else b, False),
        (lambda a, b: least([a * 9, b * 9, 1, a, 1]), True),
        (lambda a, b: least([a, b]), False),
        (lambda a, b: {a: 1}[a], False),
        (lambda a, b: int(a), False),
        (lambda a, b: float(a), False),
    ],
)
def test_what_is_decided_by_a_number_is_checked(
    work: Callable[[Any, Any], Any], holds: bool
) -> None:
    formula = traced(work, 3, 8)
    assert formula(3, 8)[1] == (work(3, 8),)
    found = formula(9, 2)
    assert (found is not None) == holds
    assert found is None or found[1] == (work(9, 2),)


def test_sums_with_constants_are_one_term() -> None:
    formula = traced(lambda a, b: ((a + 3) * 4 + 8) // 4 - 5 - a + b, 10, 20)
    assert formula(1, 2) == ((1, 2), (2,))


def test_parts_are_traced_for_each_decision() -> None:
    trace = Trace()
    place = trace.given(0)
    with trace.common():
        half = -(-trace.input(9) // 2)
        formula = trace.common_formula((half,))

    def part(limit: int) -> Callable[[], tuple[Any, dict[str, Any]]]:
        def made() -> tuple[Any, dict[str, Any]]:
            kind = 1 if half < limit else 2
            values = [half + kind, place + half, Code("one")]
            return (kind, called("joined", values)), {"joined": lambda *found: found, "one": "x"}

        return made

    small = trace.part(formula(9)[0], part(10))
    large = trace.part(formula(50)[0], part(10))
    for size in (3, 18, 19, 60):
        terms, _ = formula(size)
        made = -(-size // 2)
        kind = 1 if made < 10 else 2
        expected = kind, (made + kind, 100 + made, "x")
        assert (small if kind == 1 else large)(terms, [100]) == expected
        assert (large if kind == 1 else small)(terms, [100]) is None


def test_numbers_are_their_own_examples() -> None:
    assert example(5) == 5
    assert larger(2, 3) == 3
    assert smaller(2, 3) == 2
