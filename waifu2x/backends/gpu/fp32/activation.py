"""Emits activations and joins as macros of `.cl` files."""

from __future__ import annotations

from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import (
    ADD,
    LEAKY,
    Expression,
    Function,
    Input,
    Operator,
    Parameter,
    emitted,
    maximum,
)

_LARGER = maximum(Input(), Input() * Parameter())


def cheapest(activation: Activation) -> Expression:
    """Returns the activation's function, or max(x, x * slope) for leaky ReLU of slopes up to 1."""
    if activation.function == LEAKY and (activation.slopes <= 1).all():
        return _LARGER
    return activation.function


def activation_macro(function: Expression) -> dict[str, str]:
    """Returns the macro ACTIVATE(sum, slope), for any type of `kernels/dialect.h`."""
    return {"ACTIVATE(type, x, slope)": emitted(function, _DialectText())}


def join_macro(join: Expression) -> dict[str, str]:
    """Returns the macro JOIN(made, residual), for any type of `kernels/dialect.h`; none for a sum,
    which kernels add without it."""
    return {} if join == ADD else {"JOIN(type, x, residual)": emitted(join, _DialectText())}


class _DialectText:
    """Emits expressions in the dialect of `kernels/dialect.h`."""

    def number(self, value: float) -> str:
        return f"SPLAT(type, {value!r}f)"

    def input(self) -> str:
        return "(x)"

    def operand(self) -> str:
        return "(residual)"

    def parameter(self) -> str:
        return "(slope)"

    def binary(self, operator: Operator, left: str, right: str) -> str:
        if operator in ("max", "min"):
            return f"{operator.upper()}({left}, {right})"
        return f"({left} {operator} {right})"

    def call(self, function: Function, argument: str) -> str:
        return f"{function.upper()}(type, {argument})"

    def where(self, test: str, positive: str, otherwise: str) -> str:
        return f"WHERE(type, {test}, {positive}, {otherwise})"
