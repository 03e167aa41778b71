"""Elementwise operators, collected until the graph needs their result.

Exporters take functions apart: SiLU becomes a sigmoid and a product. Joined again, they are one of
the functions that engines have, and part of the convolution before them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.expressions import (
    ACTIVATIONS,
    Arithmetic,
    Elementary,
    Expression,
    Input,
    Number,
    Operator,
    Where,
    evaluate,
    maximum,
    minimum,
    parts,
)
from waifu2x.networks.readers.onnx.values import NOTHING, PendingFunction
from waifu2x.system.lazy_dataclass import dataclass

_MOST_PARTS = 40
"""Parts of a function, each counted as often as it appears."""
_SAMPLES = np.linspace(-12, 12, 193)
_NO_SLOPES = np.ones(1, np.float32)


@dataclass(frozen=True)
class Softplus(Expression):
    """log(1 + exp(argument)): a step on the way to Mish, and nothing that engines have."""

    argument: Expression


def has_softplus(expression: Expression) -> bool:
    """Returns whether a Softplus is left in an expression."""
    return any(isinstance(part, Softplus) for part in parts(expression))


def expression_of(pending: PendingFunction) -> Expression | None:
    """Returns a pending function as an expression; None if planes differ, or it is too long."""
    if pending.function is not None:
        count = sum(1 for _ in parts(pending.function))
        return pending.function if count <= _MOST_PARTS else None
    if len(set(pending.factors)) > 1 or len(set(pending.shifts)) > 1:
        return None
    made: Expression = Input()
    if pending.factors[0] != 1:
        made = made * pending.factors[0]
    return made + pending.shifts[0] if pending.shifts[0] else made


def applied(operator: str, inner: Expression, constants: tuple[float, float]) -> Expression | None:
    """Returns an operator of one input behind a function; None for an unknown one.

    `constants` are the slope of a leaky ReLU, or the bounds of a clip.
    """
    first, second = constants
    match operator:
        case "Relu":
            return maximum(inner, 0)
        case "LeakyRelu":
            return Where(inner, inner, inner * first)
        case "Sigmoid":
            return Elementary("sigmoid", inner)
        case "Tanh":
            if isinstance(inner, Softplus):
                power = Elementary("exp", minimum(inner.argument, 20))
                sums = power * (power + 2)
                return sums / (sums + 2)
            return Elementary("tanh", inner)
        case "Softplus":
            return Softplus(inner)
        case "Exp":
            return Elementary("exp", inner)
        case "Erf":
            return Elementary("erf", inner)
        case "Neg":
            return inner * -1
        case "Mish":
            return inner * (applied("Tanh", Softplus(inner), constants) or inner)
        case "Gelu":
            return inner * 0.5 * (Elementary("erf", inner * math.sqrt(0.5)) + 1)
        case "Clip":
            bounded = maximum(inner, first) if first > -math.inf else inner
            return minimum(bounded, second) if second < math.inf else bounded
        case "HardSigmoid":
            return maximum(minimum(inner * first + second, 1), 0)
        case "HardSwish":
            return inner * maximum(minimum(inner * (1 / 6) + 0.5, 1), 0)
    return None


def with_constant(
    operator: Operator, pending: PendingFunction, values: tuple[float, ...], *, is_first: bool
) -> PendingFunction | None:
    """Returns a pending function with an operator and a constant, one or one for each plane.

    `is_first` puts the constant before the operator. None where that cannot be expressed.
    """
    if pending.function is None and not (operator == "/" and is_first):
        factors, shifts = _for_planes(pending, len(values))
        numbers = np.array(values * (len(factors) // len(values)))
        old = np.array(factors), np.array(shifts)
        with np.errstate(all="ignore"):
            match operator:
                case "+":
                    new = old[0], old[1] + numbers
                case "-" if is_first:
                    new = -old[0], numbers - old[1]
                case "-":
                    new = old[0], old[1] - numbers
                case "*":
                    new = old[0] * numbers, old[1] * numbers
                case "/":
                    new = old[0] / numbers, old[1] / numbers
                case _:
                    return None
        return replace(pending, factors=tuple(new[0].tolist()), shifts=tuple(new[1].tolist()))
    inner = expression_of(pending)
    if inner is None or len(set(values)) > 1:
        return None
    number = Number(values[0])
    left, right = (number, inner) if is_first else (inner, number)
    return replace(NOTHING, function=Arithmetic(operator, left, right))


def _for_planes(
    pending: PendingFunction, count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns factors and shifts, one for each of `count` planes at least."""
    most = max(count, len(pending.factors), len(pending.shifts))
    return tuple(
        each * (most if len(each) == 1 else 1) for each in (pending.factors, pending.shifts)
    )  # type: ignore[return-value]


def _samples(expression: Expression) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        return evaluate(expression, _SAMPLES, _NO_SLOPES) + np.zeros_like(_SAMPLES)


def is_the_same(expression: Expression, other: Expression) -> bool:
    """Returns whether two functions without parameters are the same to six digits."""
    if has_softplus(expression):
        return False
    made, expected = _samples(expression), _samples(other)
    return bool((abs(made - expected) <= 2e-6 * (1 + abs(expected))).all())


def canonical(expression: Expression) -> Expression:
    """Returns the function of ACTIVATIONS that equals an expression; else the expression."""
    for name, known in ACTIVATIONS.items():
        if name != "leaky" and is_the_same(expression, known):
            return known
    return expression


def leaky_slope(expression: Expression) -> float | None:
    """Returns the slope of a leaky ReLU of the input; None for other functions."""
    match expression:
        case Where(Input(), Input(), Arithmetic("*", Input(), Number(slope))):
            return slope
        case Arithmetic("max", Input(), Number(0)):
            return 0.0
    return None
