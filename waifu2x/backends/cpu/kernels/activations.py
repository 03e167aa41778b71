"""Activations of planewise steps, emitted from their expressions: for vectors of planes, and for
single values.

A step knows its function by the number in `records.FUNCTIONS`, of which 0 is none: convolutions
apply that themselves. Single values become the same as lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.vector import Emitter, lane_kernel
from waifu2x.backends.cpu.pack.records import FUNCTIONS, JOINED
from waifu2x.networks.expressions import Expression, Function, Operator, emitted

Value = Callable[[Any, Any], Any]
"""A function of Numba code: of a value and its plane's parameter, or the value joined to it."""


def emit_activated(v: Emitter, function: Expression, value: ir.Value, other: ir.Value) -> ir.Value:
    """Emits a function of a vector, and of a vector of parameters or of the values joined to it."""
    return emitted(function, _VectorEmitter(v, value, other))


class _VectorEmitter:
    """Emits a function of a vector of floats."""

    def __init__(self, v: Emitter, value: ir.Value, other: ir.Value) -> None:
        self._v, self._value, self._other = v, value, other

    def number(self, value: float) -> ir.Value:
        return self._v.splat(value)

    def input(self) -> ir.Value:
        return self._value

    def operand(self) -> ir.Value:
        return self._other

    def parameter(self) -> ir.Value:
        return self._other

    def binary(self, operator: Operator, left: ir.Value, right: ir.Value) -> ir.Value:
        v = self._v
        operations = {
            "+": v.plus,
            "-": v.minus,
            "*": v.times,
            "/": v.divided,
            "max": v.maximum,
            "min": v.minimum,
        }
        return operations[operator](left, right)

    def call(self, function: Function, argument: ir.Value) -> ir.Value:
        v = self._v
        functions = {"exp": v.exp, "tanh": v.tanh, "erf": v.erf, "sigmoid": v.sigmoid}
        return functions[function](argument)

    def where(self, test: ir.Value, positive: ir.Value, otherwise: ir.Value) -> ir.Value:
        return self._v.where(test, positive, otherwise)


_FUNCTIONS: dict[Function, Any] = {
    "exp": lane_kernel(lambda v, a: v.exp(a)),
    "tanh": lane_kernel(lambda v, a: v.tanh(a)),
    "erf": lane_kernel(lambda v, a: v.erf(a)),
    "sigmoid": lane_kernel(lambda v, a: v.sigmoid(a)),
}


@native
def _plus(left, right):  # type: ignore[no-untyped-def]
    return left + right


@native
def _minus(left, right):  # type: ignore[no-untyped-def]
    return left - right


@native
def _times(left, right):  # type: ignore[no-untyped-def]
    return left * right


@native
def _divided(left, right):  # type: ignore[no-untyped-def]
    return left / right


@native
def _maximum(left, right):  # type: ignore[no-untyped-def]
    return left if left > right else right


@native
def _minimum(left, right):  # type: ignore[no-untyped-def]
    return left if left < right else right


_OPERATIONS: dict[Operator, Any] = {
    "+": _plus,
    "-": _minus,
    "*": _times,
    "/": _divided,
    "max": _maximum,
    "min": _minimum,
}


class _ValueEmitter:
    """Makes a function of single values, in Numba code."""

    def number(self, value: float) -> Value:
        constant = np.float32(value)
        return self._native(lambda value, parameter: constant)

    def input(self) -> Value:
        return self._native(lambda value, parameter: value)

    def operand(self) -> Value:
        return self._native(lambda value, operand: operand)

    def parameter(self) -> Value:
        return self._native(lambda value, parameter: parameter)

    def binary(self, operator: Operator, left: Value, right: Value) -> Value:
        operation = _OPERATIONS[operator]
        return self._native(
            lambda value, parameter: operation(left(value, parameter), right(value, parameter))
        )

    def call(self, function: Function, argument: Value) -> Value:
        called = _FUNCTIONS[function]
        return self._native(lambda value, parameter: called(argument(value, parameter)))

    def where(self, test: Value, positive: Value, otherwise: Value) -> Value:
        @native
        def chosen(value, parameter):  # type: ignore[no-untyped-def]
            if test(value, parameter) > 0:
                return positive(value, parameter)
            return otherwise(value, parameter)

        made: Value = chosen
        return made

    def _native(self, function: Value) -> Value:
        made: Value = native(function)
        return made


def _chosen(functions: Sequence[Expression], number: int) -> Any:
    """Returns the function that takes a number from this one on, and computes the function of that
    number among several; the value itself where there is none."""
    if number == len(functions):
        return native(lambda code, value, other: value)
    function, others = emitted(functions[number], _ValueEmitter()), _chosen(functions, number + 1)

    @native
    def choose(code, value, other):  # type: ignore[no-untyped-def]
        if code == number:
            return function(value, other)
        return others(code, value, other)

    return choose


activated = _chosen(FUNCTIONS, 1)
"""The function of that number of one value, with its plane's parameter; 0 leaves it as it is."""
joined = _chosen(JOINED, 0)
"""The join of that number of one value and another."""
