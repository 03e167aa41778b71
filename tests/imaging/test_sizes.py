"""Which size a result has: against fractions, worked out here once more."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waifu2x.errors import ImageError
from waifu2x.imaging.sizes import ResizePlan, request, scale_of

SIDES = st.integers(1, 3000)


def nearest(size: Fraction) -> int:
    """Returns the nearest whole number, halves up, at least 1."""
    whole = size.numerator // size.denominator
    return max(1, whole + (2 * (size - whole) >= 1))


def doubled(scale: Fraction) -> int:
    """Returns the power of two that is at least a scale."""
    return next(power for power in (1, 2, 4, 8, 16, 32) if power >= scale)


def check(plan: ResizePlan, height: int, width: int, factor: Fraction) -> None:
    """Checks a plan that keeps the proportions."""
    assert (plan.height, plan.width) == (nearest(height * factor), nearest(width * factor))
    assert plan.factor == doubled(factor)
    exact = (plan.height, plan.width) == (height * plan.factor, width * plan.factor)
    assert (plan.part is None) == exact
    if plan.part is not None:
        assert tuple(vars(plan.part).values()) == (0, 0, width, height)


@given(height=SIDES, width=SIDES, scale=st.fractions(Fraction(1, 100), 32))
def test_scales(height: int, width: int, scale: Fraction) -> None:
    check(request(scale).plan(height, width, doubled), height, width, scale)


@given(height=SIDES, width=SIDES, wanted=SIDES, kind=st.sampled_from(["width", "height"]))
def test_one_side(height: int, width: int, wanted: int, kind: str) -> None:
    own = width if kind == "width" else height
    sides: dict[str, Any] = {kind: wanted}
    if wanted > 32 * own:
        with pytest.raises(ImageError, match=r"would grow .* times; ask for at most 32 times"):
            request(**sides).plan(height, width, doubled)
        return
    plan = request(**sides).plan(height, width, doubled)
    check(plan, height, width, Fraction(wanted, own))
    assert (plan.width if kind == "width" else plan.height) == wanted
    longer = "longer_side" if own == max(height, width) else "shorter_side"
    other: dict[str, Any] = {longer: wanted}
    assert request(**other).plan(height, width, doubled) == plan


@given(height=SIDES, width=SIDES, wanted=st.tuples(SIDES, SIDES))
def test_both_sides(height: int, width: int, wanted: tuple[int, int]) -> None:
    down, across = Fraction(wanted[1], height), Fraction(wanted[0], width)
    sizes: dict[str, Any] = {"width": wanted[0], "height": wanted[1]}
    if min(down, across) <= 32:
        inside = request(**sizes).plan(height, width, doubled)
        check(inside, height, width, min(down, across))
        assert inside.width <= wanted[0]
        assert inside.height <= wanted[1]
    if max(down, across) > 32:
        with pytest.raises(ImageError):
            request(**sizes, fit="exact").plan(height, width, doubled)
        return
    exact = request(**sizes, fit="exact").plan(height, width, doubled)
    cover = request(**sizes, fit="cover").plan(height, width, doubled)
    for plan in (exact, cover):
        assert (plan.width, plan.height) == wanted
        assert plan.factor == doubled(max(down, across))
    if cover.part is not None:
        part = cover.part
        # The part shown has the result's proportions, and all of one side; the middle of the other.
        assert part.width * max(down, across) == wanted[0]
        assert part.height * max(down, across) == wanted[1]
        assert part.width == width or part.height == height
        assert part.left * 2 + part.width == width
        assert part.top * 2 + part.height == height


@given(height=SIDES, width=SIDES, least=st.tuples(SIDES, SIDES))
def test_min_size(height: int, width: int, least: tuple[int, int]) -> None:
    factor = max(Fraction(1), Fraction(least[0], width), Fraction(least[1], height))
    if factor <= 32:
        plan = request(min_size=least).plan(height, width, doubled)
        check(plan, height, width, factor)
        assert plan.width >= least[0]
        assert plan.height >= least[1]


@pytest.mark.parametrize(
    ("value", "scale"),
    [
        (1.15, Fraction(23, 20)),  # and not the float below it
        (np.float32(1.15), Fraction(23, 20)),
        (np.int64(3), Fraction(3)),
        ("4/3", Fraction(4, 3)),
        ("2.50", Fraction(5, 2)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Fraction(32), Fraction(32)),
    ],
)
def test_scales_are_the_numbers_that_were_typed(value: Any, scale: Fraction) -> None:
    assert scale_of(value) == scale


@pytest.mark.parametrize(
    "value",
    ["1e999999999", "1e-999999999", 0, -1, 32.1, "x", "", "1/0", True, None, float("nan"), [2]],
)
def test_what_is_no_scale(value: Any) -> None:
    with pytest.raises(ValueError, match="Expected a scale above 0, at most 32, but got"):
        scale_of(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 2, "width": 3}, "Expected one of scale, width and height"),
        ({"longer_side": 2, "shorter_side": 3}, "Expected one of"),
        ({"width": 0}, "Expected a width of at least 1 pixel, but got 0"),
        ({"height": 2.5}, "Expected a height of at least 1 pixel, but got 2.5"),
        ({"min_size": (True, 2)}, "Expected a min_size"),
        ({"width": 3, "fit": "cover"}, "A fit of cover needs a width and a height"),
        ({"width": 3, "height": 3, "fit": "round"}, "Expected a fit of inside, cover, exact"),
        ({"only_smaller_than": -5}, "Expected a only_smaller_than"),
    ],
)
def test_sizes_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        request(**arguments)


def test_networks_may_enlarge_by_any_whole_number() -> None:
    assert request(3).plan(5, 7, lambda scale: 3) == ResizePlan(3, 15, 21, None)
    plan = request("5/2").plan(5, 7, lambda scale: 3)
    assert (plan.factor, plan.height, plan.width) == (3, 13, 18)
    assert plan.part is not None


def test_nothing_is_a_scale_of_two() -> None:
    assert request().plan(5, 7, doubled) == ResizePlan(2, 10, 14, None)
    assert request(only_smaller_than=7).leaves(5, 7)
    assert not request(only_smaller_than=8).leaves(5, 7)
