"""Emits the scalar parts of vector code: offsets, loops, cases, variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.kernels.llvm_types import INDEX


class ControlEmitter:
    """Emits offsets and control flow at the builder's position in an LLVM function.

    An offset counts floats, and is a Python int (a constant of the code) or an LLVM i64 value.
    """

    def __init__(self, builder: ir.IRBuilder) -> None:
        self._builder = builder

    def index(self, value: int | ir.Value) -> ir.Value:
        """Returns an i64 value from a constant or a value."""
        return ir.Constant(INDEX, value) if isinstance(value, int) else value

    def add(self, left: int | ir.Value, right: int | ir.Value) -> ir.Value:
        """Returns the sum of two offsets."""
        return self._builder.add(self.index(left), self.index(right))

    def mul(self, left: int | ir.Value, right: int | ir.Value) -> ir.Value:
        """Returns the product of two offsets."""
        return self._builder.mul(self.index(left), self.index(right))

    def minus_offset(self, left: int | ir.Value, right: int | ir.Value) -> ir.Value:
        """Returns the difference of two offsets."""
        return self._builder.sub(self.index(left), self.index(right))

    def smaller(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Returns the smaller of two offsets."""
        builder = self._builder
        return builder.select(builder.icmp_signed("<", left, right), left, right)

    def half(self, value: ir.Value) -> ir.Value:
        """Returns an even offset divided by two."""
        return self._builder.lshr(value, self.index(1))

    def remainder(self, value: ir.Value, by: ir.Value) -> ir.Value:
        """Returns the remainder of an offset divided by another."""
        return self._builder.urem(value, by)

    def pixel(self, strides: Sequence[ir.Value], x: ir.Value) -> ir.Value:
        """Returns the offset of pixel x from an even pixel, by the strides to the next pixel and to
        the one after."""
        builder = self._builder
        odd = builder.and_(x, self.index(1))
        pair = builder.lshr(x, self.index(1))
        return self.add(self.mul(strides[0], odd), self.mul(strides[1], pair))

    def at_least(self, value: ir.Value, least: int) -> ir.Value:
        """Returns 1 if an integer is at least `least`, else 0."""
        return self._builder.zext(self._builder.icmp_signed(">=", value, self.index(least)), INDEX)

    def at(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """Returns the pointer moved by `offset` floats."""
        return self._builder.gep(pointer, [self.index(offset)])

    def opaque(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """Returns the pointer moved by `offset` floats, opaque to LLVM, which would otherwise split
        sums of offsets, hoist their parts out of loops, and spill them all."""
        place = self.at(pointer, offset)
        asm = ir.InlineAsm(ir.FunctionType(place.type, [place.type]), "", "=r,0")
        return self._builder.call(asm, [place])

    def opaque_number(self, number: int | ir.Value) -> ir.Value:
        """Returns an integer opaque to LLVM, so that it does not unroll loops of that count."""
        asm = ir.InlineAsm(ir.FunctionType(INDEX, [INDEX]), "", "=r,0")
        return self._builder.call(asm, [self.index(number)])

    def accumulators(self, initial: Sequence[ir.Value]) -> list[ir.Value]:
        """Returns variables that persist across iterations; LLVM promotes them to registers. They
        get their initial values here, each time that this place is reached."""
        slots = []
        for value in initial:
            slot = cgutils.alloca_once(self._builder, value.type)
            self._builder.store(value, slot)
            slots.append(slot)
        return slots

    def get(self, slot: ir.Value) -> ir.Value:
        """Returns the value of an accumulator."""
        return self._builder.load(slot)

    def set(self, slot: ir.Value, value: ir.Value) -> None:
        """Sets the value of an accumulator."""
        self._builder.store(value, slot)

    def cases(self, value: ir.Value, constants: Sequence[int]) -> Iterator[int]:
        """Yields each constant in turn; code emitted in the meantime runs if `value` equals it."""
        for constant in constants:
            equal = self._builder.icmp_signed("==", value, self.index(constant))
            with self._builder.if_then(equal):
                yield constant

    @contextmanager
    def loop(self, count: ir.Value, step: int = 1) -> Iterator[ir.Value]:
        """Emits a loop over 0, step, 2 step, … < count, and yields the index."""
        with cgutils.for_range_slice(
            self._builder, self.index(0), count, self.index(step), intp=INDEX
        ) as (index, _):
            yield index
