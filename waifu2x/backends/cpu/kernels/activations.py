"""Emits activations and joins from their expressions, for vectors of planes and for single values.

A task has the number of its function in `records.FUNCTIONS`, where 0 is none: convolutions apply
theirs themselves. Single values give the same bits as lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from waifu2x.backends.cpu.kernels.vector import Emitter
from waifu2x.backends.cpu.pack.records import FUNCTIONS, JOINED
from waifu2x.networks.expressions import Expression, Function, Operator, emitted


def emit_activated(v: Emitter, function: Expression, value: ir.Value, other: ir.Value) -> ir.Value:
    """Emits a function of the vector `value` and of `other`, its parameters or the values joined to
    it; returns the results."""
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


def _of_numbers(functions: Sequence[Expression], first: int) -> Any:
    """Returns an intrinsic that applies a function by its number to a value and its plane's
    parameter, or the value joined to it. Numbers below `first` leave the value unchanged."""

    @intrinsic  # type: ignore[untyped-decorator]
    def computed(
        typing_context: Any, code: types.Type, value: types.Type, other: types.Type
    ) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
            v = Emitter(builder)
            code, value, other = values
            (result,) = v.accumulators([value])
            for number in v.cases(code, range(first, len(functions))):
                made = emit_activated(v, functions[number], v.splat(value), v.splat(other))
                v.set(result, v.first(made))
            return v.get(result)

        return types.float32(types.int64, types.float32, types.float32), codegen

    return computed


activated = _of_numbers(FUNCTIONS, 1)
joined = _of_numbers(JOINED, 0)
