"""Activations as CUDA C++: the macro ACTIVATE of kernels of matrix units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from waifu2x.backends.gpu.activation_text import cheapest
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import (
    Expression,
    Function,
    Operator,
    emitted,
)

_FUNCTIONS = {"exp": "expf", "tanh": "tanhf", "erf": "erff"}
_CHOICES = {"max": "fmaxf", "min": "fminf"}


def has_plane_slopes(activation: Activation) -> bool:
    """Whether a kernel reads a slope for each plane, rather than one for all as an argument."""
    slopes = activation.slopes
    is_common = bool((slopes == slopes[0]).all()) and 0 <= slopes[0] <= 1
    return activation.has_slopes and not is_common


def activation_macro(activation: Activation) -> dict[str, str]:
    """ACTIVATE of convolutions: of a sum x with its bias, and a slope."""
    is_plain = has_plane_slopes(activation)
    function = activation.function if is_plain else cheapest(activation)
    return {"ACTIVATE(x, slope)": _text(function)}


def numbered_macro(functions: Sequence[Expression]) -> dict[str, str]:
    """ACTIVATE of a kernel that computes several: one is chosen by its number among them."""
    *others, text = map(_text, functions)
    for number in reversed(range(len(others))):
        text = f"((number) == {number} ? {others[number]} : {text})"
    return {"ACTIVATE(number, x, slope)": text}


def _text(function: Expression) -> str:
    return emitted(function, _CudaText()).code


class _Code(NamedTuple):
    """Text for a value."""

    code: str
    divisor: str | None = None
    """If the value is 1 / divisor: a product with it is a division."""


class _CudaText:
    """Text of single floats."""

    def number(self, value: float) -> _Code:
        return _Code(f"{value!r}f")

    def input(self) -> _Code:
        return _Code("(x)")

    def parameter(self) -> _Code:
        return _Code("(slope)")

    def binary(self, operator: Operator, left: _Code, right: _Code) -> _Code:
        if operator in _CHOICES:
            return _Code(f"{_CHOICES[operator]}({left.code}, {right.code})")
        if operator == "*" and right.divisor is not None:
            return _Code(f"({left.code} / {right.divisor})")
        return _Code(f"({left.code} {operator} {right.code})")

    def call(self, function: Function, argument: _Code) -> _Code:
        if function == "sigmoid":
            divisor = f"(1.0f + expf(-{argument.code}))"
            return _Code(f"(1.0f / {divisor})", divisor)
        return _Code(f"{_FUNCTIONS[function]}({argument.code})")

    def where(self, test: _Code, positive: _Code, otherwise: _Code) -> _Code:
        return _Code(f"({test.code} > 0.0f ? {positive.code} : {otherwise.code})")
