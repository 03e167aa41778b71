"""Combinations of parameters, and which of them run with every run of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def thinned(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of one value of each axis, as `pytest.mark.parametrize` takes them.

    Those of a diagonal, which has each value of each axis once at least, run always; all others
    have the mark `matrix`.
    """
    longest = max(map(len, axes))
    always = {tuple(number % len(axis) for axis in axes) for number in range(longest)}
    return [
        pytest.param(
            *(axis[number] for axis, number in zip(axes, place, strict=True)),
            marks=() if place in always else pytest.mark.matrix,
        )
        for place in product(*(range(len(axis)) for axis in axes))
    ]
