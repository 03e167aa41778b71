"""Emits arithmetic of vectors of floats."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels.emit_control import ControlEmitter
from waifu2x.backends.cpu.kernels.llvm_types import FLOATS, INTEGER, INTEGERS


class FloatEmitter(ControlEmitter):
    """Emits arithmetic of vectors of floats; a Python number stands for a vector of it."""

    def splat(self, value: float | ir.Value) -> ir.Value:
        """Returns a vector with `value` in every lane."""
        if isinstance(value, (int, float)):
            return ir.Constant(FLOATS, [float(value)] * VECTOR.lanes)
        undefined = ir.Constant(FLOATS, ir.Undefined)
        first = self._builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR.lanes), [0] * VECTOR.lanes)
        return self._builder.shuffle_vector(first, undefined, mask)

    def no_integers(self) -> ir.Value:
        """Returns a vector of 32-bit zeros."""
        return ir.Constant(INTEGERS, [0] * VECTOR.lanes)

    def first_lanes(self, a: ir.Value, count: ir.Value) -> ir.Value:
        """Returns a vector whose lanes behind the first `count` are zeros."""
        return self._builder.select(self.lanes_below(count), a, self.splat(0.0))

    def transposed(self, rows: Sequence[ir.Value]) -> list[ir.Value]:
        """Transposes a square of vectors: as many as each has lanes."""
        lanes, made = VECTOR.lanes, list(rows)
        step = 1
        while step < lanes:
            below, above = [], []
            for lane in range(lanes):
                is_low = lane & step == 0
                below.append(lane if is_low else lanes + lane - step)
                above.append(lane + step if is_low else lanes + lane)
            kind = ir.VectorType(INTEGER, lanes)
            for row in range(lanes):
                if row & step == 0:
                    pair = made[row], made[row + step]
                    for n, mask in ((row, below), (row + step, above)):
                        made[n] = self._builder.shuffle_vector(*pair, ir.Constant(kind, mask))
            step *= 2
        return made

    def lanes_below(self, count: ir.Value) -> ir.Value:
        """Returns, for each lane, whether it is one of the first `count`."""
        numbers = ir.Constant(INTEGERS, list(range(VECTOR.lanes)))
        first = self._builder.insert_element(
            ir.Constant(INTEGERS, ir.Undefined),
            self._builder.trunc(count, INTEGER),
            ir.Constant(INTEGER, 0),
        )
        counts = self._builder.shuffle_vector(first, first, self.no_integers())
        return self._builder.icmp_signed("<", numbers, counts)

    def fma(self, a: ir.Value, b: float | ir.Value, c: ir.Value) -> ir.Value:
        """Returns `a * b + c`, fused if the processor has fused multiply-adds."""
        factor = self.splat(b) if isinstance(b, (int, float)) else b
        # fmuladd and not fma: without the instruction, fma would call a library function per lane.
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(FLOATS, [FLOATS] * 3),
            f"llvm.fmuladd.v{VECTOR.lanes}f32",
        )
        return self._builder.call(function, [a, factor, c])

    def plus(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Returns `a + b`."""
        return self._builder.fadd(a, b)

    def minus(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Returns `a - b`."""
        return self._builder.fsub(a, b)

    def times(self, a: ir.Value, b: float | ir.Value) -> ir.Value:
        """Returns `a * b`."""
        factor = self.splat(b) if isinstance(b, (int, float)) else b
        return self._builder.fmul(a, factor)

    def divided(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Returns `a / b`."""
        return self._builder.fdiv(a, b)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Returns the larger of both in each lane."""
        return self._builder.select(self._builder.fcmp_ordered(">", a, b), a, b)

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Returns the smaller of both in each lane."""
        return self._builder.select(self._builder.fcmp_ordered("<", a, b), a, b)

    def where(self, test: ir.Value, positive: ir.Value, otherwise: ir.Value) -> ir.Value:
        """Returns `positive` in the lanes in which `test` is above 0, else `otherwise`."""
        is_positive = self._builder.fcmp_ordered(">", test, self.splat(0.0))
        return self._builder.select(is_positive, positive, otherwise)

    def root(self, a: ir.Value) -> ir.Value:
        """Returns the square root."""
        return self._call("llvm.sqrt", FLOATS, a)

    def magnitude(self, a: ir.Value) -> ir.Value:
        """Returns `|a|`."""
        return self._call("llvm.fabs", FLOATS, a)

    def most(self, a: ir.Value) -> ir.Value:
        """Returns the largest of the lanes, in every lane."""
        lanes = VECTOR.lanes
        step = lanes // 2
        while step:
            mask = [(lane + step) % lanes for lane in range(lanes)]
            turned = ir.Constant(ir.VectorType(INTEGER, lanes), mask)
            a = self.maximum(a, self._builder.shuffle_vector(a, a, turned))
            step //= 2
        return a

    def first(self, a: ir.Value) -> ir.Value:
        """Returns the first lane, a float."""
        return self._builder.extract_element(a, ir.Constant(INTEGER, 0))

    def total(self, a: ir.Value) -> ir.Value:
        """Returns the sum of the lanes, in an order that depends only on the vector width."""
        # LLVM's own reduction would choose its order by processor: the last bits of ARM64 would
        # differ from those of x86-64.
        half = VECTOR.lanes // 2
        while half:
            low, high = (
                self._builder.shuffle_vector(
                    a,
                    a,
                    ir.Constant(ir.VectorType(INTEGER, half), [start + n for n in range(half)]),
                )
                for start in (0, half)
            )
            a = self._builder.fadd(low, high)
            half //= 2
        return self._builder.extract_element(a, ir.Constant(INTEGER, 0))

    def leaky(self, a: ir.Value, slope: ir.Value) -> ir.Value:
        """Returns leaky ReLU of any slope: a if above 0, else a * slope; both are vectors, or both
        floats."""
        scaled = self._builder.fmul(a, slope)
        zero = ir.Constant(a.type, [0.0] * VECTOR.lanes if a.type == FLOATS else 0.0)
        return self._builder.select(self._builder.fcmp_ordered(">", a, zero), a, scaled)

    def _call(self, name: str, kind: ir.Type, *values: ir.Value) -> ir.Value:
        """Returns the result of an intrinsic of vectors of one type."""
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(kind, [kind] * len(values)),
            f"{name}.v{VECTOR.lanes}f32",
        )
        return self._builder.call(function, list(values))
