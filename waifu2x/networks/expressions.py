"""Elementwise functions as expressions, which every engine emits in its own language.

An expression is a tree of numbers, the input x, the plane's parameter and operations. `emitted`
walks one for an engine; `evaluate` computes it with NumPy. A function added to `ACTIVATIONS` is one
that every engine has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from waifu2x.system.lazy_dataclass import dataclass

Operator = Literal["+", "-", "*", "/", "max", "min"]
Function = Literal["exp", "tanh", "erf", "sigmoid"]
"""sigmoid(a) is 1 / (1 + exp(-a)); engines compute it as suits them."""


class Expression:
    """An elementwise function, or a part of one. Equal trees are equal; `repr` tells all of one."""

    def __add__(self, other: Expression | float) -> Expression:
        return Arithmetic("+", self, _expression(other))

    def __sub__(self, other: Expression | float) -> Expression:
        return Arithmetic("-", self, _expression(other))

    def __mul__(self, other: Expression | float) -> Expression:
        return Arithmetic("*", self, _expression(other))

    def __truediv__(self, other: Expression | float) -> Expression:
        return Arithmetic("/", self, _expression(other))


@dataclass(frozen=True)
class Number(Expression):
    """A constant."""

    value: float


@dataclass(frozen=True)
class Input(Expression):
    """x."""


@dataclass(frozen=True)
class Operand(Expression):
    """The value of the map that is joined to x."""


@dataclass(frozen=True)
class Parameter(Expression):
    """A number for each plane: the slope of a leaky ReLU."""


@dataclass(frozen=True)
class Arithmetic(Expression):
    """An operation of two values."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Elementary(Expression):
    """A function of one value."""

    function: Function
    argument: Expression


@dataclass(frozen=True)
class Where(Expression):
    """`positive` where `test` is above 0, else `otherwise`."""

    test: Expression
    positive: Expression
    otherwise: Expression


def _expression(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else Number(float(value))


def minimum(left: Expression, right: Expression | float) -> Expression:
    return Arithmetic("min", left, _expression(right))


def maximum(left: Expression, right: Expression | float) -> Expression:
    return Arithmetic("max", left, _expression(right))


def _mish(x: Expression) -> Expression:
    """Returns x * tanh(log(1 + exp(x))), without a logarithm; the factor is 1 from 20 on."""
    power = Elementary("exp", minimum(x, 20))
    sums = power * (power + 2)
    return x * (sums / (sums + 2))


_X = Input()
LEAKY: Expression = Where(_X, _X, _X * Parameter())
"""x above 0, else x * slope: ReLU with a slope of 0, PReLU with slopes of any sign and size."""
SIGMOID: Expression = Elementary("sigmoid", _X)
SILU: Expression = _X * Elementary("sigmoid", _X)
MISH: Expression = _mish(_X)
TANH: Expression = Elementary("tanh", _X)
GELU: Expression = _X * 0.5 * (Elementary("erf", _X * math.sqrt(0.5)) + 1)
"""x times the normal distribution up to x: the exact one, not its approximation by tanh."""

ACTIVATIONS: Mapping[str, Expression] = {
    "leaky": LEAKY,
    "sigmoid": SIGMOID,
    "silu": SILU,
    "mish": MISH,
    "tanh": TANH,
    "gelu": GELU,
}
"""The functions that networks use, by name."""

ADD: Expression = _X + Operand()
MULTIPLY: Expression = _X * Operand()
GATE: Expression = (_X + Operand()) * (Elementary("sigmoid", _X) - 0.5)
"""SPAN's gate, by its own name parameter-free attention."""

JOINS: Mapping[str, Expression] = {"copy": ADD, "product": MULTIPLY, "gate": GATE}
"""All ways in which steps join two maps, by the names that people are shown."""

Emitted = TypeVar("Emitted")


class ExpressionEmitter(Protocol[Emitted]):
    """Makes an engine's form of each kind of node: source text, an instruction, an array."""

    def number(self, value: float) -> Emitted:
        """Emits a constant."""

    def input(self) -> Emitted:
        """Emits x."""

    def operand(self) -> Emitted:
        """Emits the value that is joined to x."""

    def parameter(self) -> Emitted:
        """Emits the plane's parameter."""

    def binary(self, operator: Operator, left: Emitted, right: Emitted) -> Emitted:
        """Emits an operation of two values."""

    def call(self, function: Function, argument: Emitted) -> Emitted:
        """Emits a function of one value."""

    def where(self, test: Emitted, positive: Emitted, otherwise: Emitted) -> Emitted:
        """Emits `positive` where `test` is above 0, else `otherwise`."""


def emitted(expression: Expression, emitter: ExpressionEmitter[Emitted]) -> Emitted:
    """Returns what an emitter makes of an expression; equal parts are emitted once."""
    return _emitted(expression, emitter, {})


def _emitted(
    part: Expression, emitter: ExpressionEmitter[Emitted], made: dict[Expression, Emitted]
) -> Emitted:
    if part in made:
        return made[part]
    match part:
        case Number():
            found = emitter.number(part.value)
        case Input():
            found = emitter.input()
        case Operand():
            found = emitter.operand()
        case Parameter():
            found = emitter.parameter()
        case Arithmetic():
            left, right = (_emitted(one, emitter, made) for one in (part.left, part.right))
            found = emitter.binary(part.operator, left, right)
        case Elementary():
            found = emitter.call(part.function, _emitted(part.argument, emitter, made))
        case Where():
            parts = (part.test, part.positive, part.otherwise)
            found = emitter.where(*(_emitted(one, emitter, made) for one in parts))
        case _:
            raise AssertionError(part)
    made[part] = found
    return found


def parts(expression: Expression) -> Iterator[Expression]:
    """Yields an expression and the expressions in it, each as often as it appears."""
    yield expression
    for inner in vars(expression).values():
        if isinstance(inner, Expression):
            yield from parts(inner)


def has_parameter(expression: Expression) -> bool:
    """Returns whether a function depends on the plane's parameter."""
    return any(isinstance(part, Parameter) for part in parts(expression))


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns 1 / (1 + exp(-x)), which no x overflows."""
    result: NDArray[np.float64] = np.exp(-np.logaddexp(0, -values))
    return result


def evaluate(
    expression: Expression,
    values: NDArray[np.float64],
    parameters: NDArray[np.floating] | None = None,
    operand: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Computes a function of every value, in float64. `parameters` are those of the last axis;
    `operand` has the values that are joined, if the function reads them."""
    return np.asarray(emitted(expression, _Arrays(values, parameters, operand)))


_OPERATORS: Mapping[Operator, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
_FUNCTIONS: Mapping[Function, Callable[..., Any]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.frompyfunc(math.erf, 1, 1),
    "sigmoid": sigmoid,
}


class _Arrays:
    def __init__(
        self,
        values: NDArray[np.float64],
        parameters: NDArray[np.floating] | None,
        operand: NDArray[np.float64] | None,
    ) -> None:
        self._values = values
        self._parameters = parameters
        self._operand = operand

    def number(self, value: float) -> NDArray[np.float64]:
        return np.asarray(value)

    def input(self) -> NDArray[np.float64]:
        return self._values

    def operand(self) -> NDArray[np.float64]:
        assert self._operand is not None
        return self._operand

    def parameter(self) -> NDArray[np.float64]:
        assert self._parameters is not None
        return self._parameters.astype(np.float64)

    def binary(
        self, operator: Operator, left: NDArray[np.float64], right: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return np.asarray(_OPERATORS[operator](left, right))

    def call(self, function: Function, argument: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(_FUNCTIONS[function](argument), np.float64)

    def where(
        self,
        test: NDArray[np.float64],
        positive: NDArray[np.float64],
        otherwise: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        return np.where(test > 0, positive, otherwise)
