"""Emits activations and joins as CUDA C++ macros of the kernels of matrix units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from waifu2x.backends.gpu.fp32.activation import cheapest
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import (
    ADD,
    Expression,
    Function,
    Operator,
    emitted,
)

_FUNCTIONS = {"tanh": "tanhf", "erf": "erff"}
_CHOICES = {"max": "fmaxf", "min": "fminf"}


def has_plane_slopes(activation: Activation) -> bool:
    """Returns whether a kernel reads a slope for each plane, instead of one argument for all."""
    slopes = activation.slopes
    is_common = bool((slopes == slopes[0]).all()) and 0 <= slopes[0] <= 1
    return activation.has_slopes and not is_common


def activation_macro(activation: Activation, terms: int) -> dict[str, str]:
    """Returns the macro ACTIVATE(x, slope), of a sum x with its bias.

    For results of one 16-bit term, exp and the division of a sigmoid are instructions with 21
    correct bits: exact ones took most of the time of a convolution that ends with them. A tanh by
    such instructions errs by at most 2**-21, even if it is tiny.
    """
    is_plain = has_plane_slopes(activation)
    function = activation.function if is_plain else cheapest(activation)
    return {"ACTIVATE(x, slope)": _text(function, is_fast=terms == 1)}


def join_macro(join: Expression, terms: int) -> dict[str, str]:
    """Returns the macro JOIN(made, residual), with the instructions of `activation_macro`; none for
    a sum, which kernels compute together with a factor."""
    return {} if join == ADD else {"JOIN(x, residual)": _text(join, is_fast=terms == 1)}


def numbered_macro(functions: Sequence[Expression]) -> dict[str, str]:
    """Returns the macro ACTIVATE of a kernel that chooses among several activations by number."""
    *others, text = map(_text, functions)
    for number in reversed(range(len(others))):
        text = f"((number) == {number} ? {others[number]} : {text})"
    return {"ACTIVATE(number, x, slope)": text}


def _text(function: Expression, *, is_fast: bool = False) -> str:
    return emitted(function, _CudaText(is_fast)).code


class _Code(NamedTuple):
    """The text of a value."""

    code: str
    divisor: str | None = None
    """The divisor if the value is 1 / divisor: products with it become divisions."""


class _CudaText:
    """Emits single floats; fast functions have 21 correct bits, relative to 1 in a tanh."""

    def __init__(self, is_fast: bool) -> None:
        self._exp = "__expf" if is_fast else "expf"
        self._is_fast = is_fast

    def number(self, value: float) -> _Code:
        return _Code(f"{value!r}f")

    def input(self) -> _Code:
        return _Code("(x)")

    def operand(self) -> _Code:
        return _Code("(residual)")

    def parameter(self) -> _Code:
        return _Code("(slope)")

    def binary(self, operator: Operator, left: _Code, right: _Code) -> _Code:
        if operator in _CHOICES:
            return _Code(f"{_CHOICES[operator]}({left.code}, {right.code})")
        if operator == "*" and right.divisor is not None:
            if self._is_fast:
                return _Code(f"__fdividef({left.code}, {right.divisor})")
            return _Code(f"({left.code} / {right.divisor})")
        return _Code(f"({left.code} {operator} {right.code})")

    def call(self, function: Function, argument: _Code) -> _Code:
        if function == "sigmoid":
            divisor = f"(1.0f + {self._exp}(-{argument.code}))"
            one = f"__fdividef(1.0f, {divisor})" if self._is_fast else f"(1.0f / {divisor})"
            return _Code(one, divisor)
        if function == "tanh" and self._is_fast:
            return _Code(f"(1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * {argument.code})))")
        name = self._exp if function == "exp" else _FUNCTIONS[function]
        return _Code(f"{name}({argument.code})")

    def where(self, test: _Code, positive: _Code, otherwise: _Code) -> _Code:
        return _Code(f"({test.code} > 0.0f ? {positive.code} : {otherwise.code})")
