"""Activations of planewise steps, emitted from their expressions: for vectors of planes, and for
single values.

A step knows its function by the number in `records.FUNCTIONS`, where 0 is none: convolutions
apply theirs themselves. Single values become the same as lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from waifu2x.backends.cpu.kernels.vector import Emitter
from waifu2x.backends.cpu.pack.records import FUNCTIONS
from waifu2x.networks.expressions import Expression, Function, Operator, emitted


def emit_activated(
    v: Emitter, function: Expression, value: ir.Value, parameter: ir.Value
) -> ir.Value:
    """Emits a function of a vector, with a vector of parameters; returns its results."""
    return emitted(function, _VectorEmitter(v, value, parameter))


class _VectorEmitter:
    """Emits a function of a vector of floats."""

    def __init__(self, v: Emitter, value: ir.Value, parameter: ir.Value) -> None:
        self._v, self._value, self._parameter = v, value, parameter

    def number(self, value: float) -> ir.Value:
        return self._v.splat(value)

    def input(self) -> ir.Value:
        return self._value

    def parameter(self) -> ir.Value:
        return self._parameter

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


@intrinsic  # type: ignore[untyped-decorator]
def activated(
    typing_context: Any, code: types.Type, value: types.Type, parameter: types.Type
) -> Any:
    """Returns the function of that number of one value, with its plane's parameter; 0 leaves it as
    it is."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        v = Emitter(builder)
        code, value, parameter = values
        (result,) = v.accumulators([value])
        v.set(result, value)
        for number in v.cases(code, range(1, len(FUNCTIONS))):
            made = emit_activated(v, FUNCTIONS[number], v.splat(value), v.splat(parameter))
            v.set(result, v.first(made))
        return v.get(result)

    return types.float32(types.int64, types.float32, types.float32), codegen
