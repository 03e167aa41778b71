"""Vector code in Numba: a thin layer over LLVM's builder, one method per instruction.

Numba writes scalar loops and hopes that LLVM turns them into vectors. The inner loops of a
convolution are too dear for hope: here they are emitted as LLVM vector instructions, whose width
and register budget come from the processor (`isa.VECTOR`). LLVM still chooses the machine
instructions, so one source serves AVX-512, AVX2, NEON and whatever else it knows.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from waifu2x.backends.cpu.isa import VECTOR, dot_instruction

_INDEX = ir.IntType(64)
_FLOAT = ir.FloatType()
_LANES = ir.VectorType(_FLOAT, VECTOR.lanes)
_INTEGER = ir.IntType(32)
_INTEGERS = ir.VectorType(_INTEGER, VECTOR.lanes)
_PAIRS = ir.VectorType(ir.IntType(16), 2 * VECTOR.lanes)
_DOT = dot_instruction(VECTOR.lanes)
_TILE = ir.IntType(8)
_BYTES = ir.IntType(8).as_pointer()


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, for which llvmlite has no name."""

    def _to_string(self) -> str:
        return "bfloat"


_BFLOAT_LANES = ir.VectorType(_BFloat(), VECTOR.lanes)


_EXPONENTIAL = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
"""(exp(r) - 1 - r) / r**2 for r within half the logarithm of two, the highest power first."""


class Emitter:
    """Emits vector instructions at the current place of an LLVM function.

    Pointers are to float32; every offset counts floats, and is a Python int (a constant of the
    code) or an LLVM i64 value.
    """

    def __init__(self, builder: ir.IRBuilder) -> None:
        self._builder = builder

    def index(self, value: int | ir.Value) -> ir.Value:
        """An i64 value from a constant or a value."""
        return ir.Constant(_INDEX, value) if isinstance(value, int) else value

    def add(self, left: int | ir.Value, right: int | ir.Value) -> ir.Value:
        """The sum of two offsets."""
        return self._builder.add(self.index(left), self.index(right))

    def mul(self, left: int | ir.Value, right: int | ir.Value) -> ir.Value:
        """The product of two offsets."""
        return self._builder.mul(self.index(left), self.index(right))

    def minus_offset(self, left: int | ir.Value, right: int | ir.Value) -> ir.Value:
        """The difference of two offsets."""
        return self._builder.sub(self.index(left), self.index(right))

    def smaller(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """The smaller of two offsets."""
        builder = self._builder
        return builder.select(builder.icmp_signed("<", left, right), left, right)

    def at(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """The pointer moved by `offset` floats."""
        return self._builder.gep(pointer, [self.index(offset)])

    def opaque(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """The pointer moved by `offset` floats, as a number of its own to LLVM: else it takes sums
        of offsets apart, computes what it can of each outside of loops, and spills them all."""
        place = self.at(pointer, offset)
        asm = ir.InlineAsm(ir.FunctionType(place.type, [place.type]), "", "=r,0")
        return self._builder.call(asm, [place])

    def opaque_count(self, count: int) -> ir.Value:
        """The count of a loop that LLVM shall not unroll, since it cannot know it."""
        asm = ir.InlineAsm(ir.FunctionType(_INDEX, [_INDEX]), "", "=r,0")
        return self._builder.call(asm, [self.index(count)])

    def stack_vectors(self, vectors: int) -> tuple[ir.Value, ir.Value]:
        """Memory for some vectors, as a pointer to write with and one to read with later.

        Where registers do not hold what lies between two steps, this beats what LLVM spills: it
        cannot see that both are the same, so it leaves each step in the order of its loads.
        """
        slot = cgutils.alloca_once(self._builder, _LANES, size=vectors)
        to = self.opaque(self._builder.bitcast(slot, _FLOAT.as_pointer()))
        return to, self.opaque(to)

    def load(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """A vector of neighbouring floats."""
        address = self._builder.bitcast(self.at(pointer, offset), _LANES.as_pointer())
        return self._builder.load(address, align=4)

    def store(self, vector: ir.Value, pointer: ir.Value, offset: int | ir.Value = 0) -> None:
        """Stores a vector to neighbouring floats."""
        address = self._builder.bitcast(self.at(pointer, offset), _LANES.as_pointer())
        self._builder.store(vector, address, align=4)

    def prefetch(self, pointer: ir.Value, offset: ir.Value, *, to_write: bool = False) -> None:
        """Asks for the cache line of a float, which need not be memory of ours."""
        kind = ir.IntType(32)
        place = self._builder.bitcast(self.at(pointer, offset), _BYTES)
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(ir.VoidType(), [_BYTES, kind, kind, kind]),
            "llvm.prefetch.p0",
        )
        to_every_cache, of_data = 3, 1
        settings = [ir.Constant(kind, n) for n in (int(to_write), to_every_cache, of_data)]
        self._builder.call(function, [place, *settings])

    def store_float(self, value: ir.Value, pointer: ir.Value, offset: int | ir.Value) -> None:
        """Stores one float."""
        self._builder.store(value, self.at(pointer, offset), align=4)

    def store_bfloats(
        self, vector: ir.Value, pointer: ir.Value, offset: int | ir.Value
    ) -> ir.Value:
        """Stores a vector rounded to bf16 (half to even), and gives what it stored, as floats.

        The offset counts bf16 values.
        """
        halves = self._builder.bitcast(pointer, ir.IntType(16).as_pointer())
        place = self._builder.gep(halves, [self.index(offset)])
        address = self._builder.bitcast(place, _BFLOAT_LANES.as_pointer())
        rounded = self._builder.fptrunc(vector, _BFLOAT_LANES)
        self._builder.store(rounded, address, align=2)
        return self._builder.fpext(rounded, _LANES)

    def field(self, record: ir.Value, kind: np.dtype[Any], name: str) -> ir.Value:
        """An integer, or a double, of a record of that dtype: one that no compiled code changes."""
        field, offset = kind.fields[name][:2]  # type: ignore[index]
        bytes_ = self._builder.bitcast(record, _BYTES)
        place = self._builder.gep(bytes_, [self.index(offset)])
        wide = _INDEX if field == np.int64 else ir.DoubleType()
        return self._constant(self._builder.load(self._builder.bitcast(place, wide.as_pointer())))

    def load_constant(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """A vector of neighbouring floats that no compiled code changes."""
        return self._constant(self.load(pointer, offset))

    def _constant(self, loaded: ir.Value) -> ir.Value:
        """Tells LLVM that a load may move out of loops, past any store."""
        loaded.set_metadata("invariant.load", self._builder.module.add_metadata([]))
        return loaded

    def integer(self, pointer: ir.Value, index: int | ir.Value) -> ir.Value:
        """One of many integers."""
        return self._builder.load(self._builder.gep(pointer, [self.index(index)]))

    def narrow(self, value: ir.Value) -> ir.Value:
        """A double as a float."""
        return self._builder.fptrunc(value, _FLOAT)

    def load_terms(
        self, pointer: ir.Value, offset: ir.Value, terms: int, rest: ir.Value
    ) -> ir.Value:
        """A vector of values in a number of bf16 terms, `rest` apart, or of floats for 0.

        The offset counts values of that form.
        """
        if not terms:
            return self.load(pointer, offset)
        first = self._load_bfloats(pointer, offset)
        if terms == 1:
            return first
        return self.plus(first, self._load_bfloats(pointer, self.add(offset, rest)))

    def store_terms(
        self, vector: ir.Value, pointer: ir.Value, offset: ir.Value, terms: int, rest: ir.Value
    ) -> None:
        """Stores what `load_terms` loads; a second term is what the first leaves."""
        if not terms:
            self.store(vector, pointer, offset)
            return
        rounded = self.store_bfloats(vector, pointer, offset)
        if terms == 2:
            self.store_bfloats(self.minus(vector, rounded), pointer, self.add(offset, rest))

    def pixel(self, strides: Sequence[ir.Value], x: ir.Value) -> ir.Value:
        """How far pixel x lies behind an even one, by the strides to the next and the one after."""
        builder = self._builder
        odd = builder.and_(x, self.index(1))
        pair = builder.lshr(x, self.index(1))
        return self.add(self.mul(strides[0], odd), self.mul(strides[1], pair))

    def half(self, value: ir.Value) -> ir.Value:
        """An even offset divided by two."""
        return self._builder.lshr(value, self.index(1))

    def remainder(self, value: ir.Value, by: ir.Value) -> ir.Value:
        """Of two offsets."""
        return self._builder.urem(value, by)

    def _load_bfloats(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        integers = ir.VectorType(ir.IntType(32), VECTOR.lanes)
        halves = ir.VectorType(ir.IntType(16), VECTOR.lanes)
        place = self._builder.gep(
            self._builder.bitcast(pointer, ir.IntType(16).as_pointer()), [offset]
        )
        loaded = self._builder.load(self._builder.bitcast(place, halves.as_pointer()), align=2)
        wide = self._builder.zext(loaded, integers)
        bits = self._builder.shl(wide, ir.Constant(integers, [16] * VECTOR.lanes))
        return self._builder.bitcast(bits, _LANES)

    def load_float(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """One float."""
        return self._builder.load(self.at(pointer, offset), align=4)

    def splat(self, value: float | ir.Value) -> ir.Value:
        """A vector with `value` in every lane."""
        if isinstance(value, (int, float)):
            return ir.Constant(_LANES, [float(value)] * VECTOR.lanes)
        undefined = ir.Constant(_LANES, ir.Undefined)
        first = self._builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR.lanes), [0] * VECTOR.lanes)
        return self._builder.shuffle_vector(first, undefined, mask)

    def first_lanes(self, a: ir.Value, count: ir.Value) -> ir.Value:
        """Zero in all lanes but so many."""
        lanes = VECTOR.lanes
        numbers = ir.Constant(_INTEGERS, list(range(lanes)))
        zeros = self.splat(0.0)
        first = self._builder.insert_element(
            ir.Constant(_INTEGERS, ir.Undefined),
            self._builder.trunc(count, _INTEGER),
            ir.Constant(_INTEGER, 0),
        )
        counts = self._builder.shuffle_vector(first, first, self.no_integers())
        return self._builder.select(self._builder.icmp_signed("<", numbers, counts), a, zeros)

    def fma(self, a: ir.Value, b: float | ir.Value, c: ir.Value) -> ir.Value:
        """`a * b + c`, fused where the processor fuses."""
        factor = self.splat(b) if isinstance(b, (int, float)) else b
        # fmuladd and not fma: without the instruction, fma would call a library function per lane.
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(_LANES, [_LANES] * 3),
            f"llvm.fmuladd.v{VECTOR.lanes}f32",
        )
        return self._builder.call(function, [a, factor, c])

    def plus(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a + b`."""
        return self._builder.fadd(a, b)

    def minus(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a - b`."""
        return self._builder.fsub(a, b)

    def times(self, a: ir.Value, b: float | ir.Value) -> ir.Value:
        """`a * b`."""
        factor = self.splat(b) if isinstance(b, (int, float)) else b
        return self._builder.fmul(a, factor)

    def divided(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a / b`."""
        return self._builder.fdiv(a, b)

    def larger(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger of both in each lane."""
        return self._builder.select(self._builder.fcmp_ordered(">", a, b), a, b)

    def magnitude(self, a: ir.Value) -> ir.Value:
        """`|a|`."""
        return self._call("llvm.fabs", _LANES, a)

    def most(self, a: ir.Value) -> ir.Value:
        """The largest of the lanes, in every lane."""
        lanes = VECTOR.lanes
        step = lanes // 2
        while step:
            mask = [(lane + step) % lanes for lane in range(lanes)]
            turned = ir.Constant(ir.VectorType(_INTEGER, lanes), mask)
            a = self.larger(a, self._builder.shuffle_vector(a, a, turned))
            step //= 2
        return a

    def first(self, a: ir.Value) -> ir.Value:
        """The first lane, a float."""
        return self._builder.extract_element(a, ir.Constant(_INTEGER, 0))

    def integers(self, a: ir.Value) -> ir.Value:
        """A vector of floats as 32-bit integers, rounded half to even."""
        lanes = VECTOR.lanes
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(_INTEGERS, [_LANES]),
            f"llvm.lrint.v{lanes}i32.v{lanes}f32",
        )
        return self._builder.call(function, [a])

    def floats(self, a: ir.Value) -> ir.Value:
        """32-bit integers as floats, rounded half to even."""
        return self._builder.sitofp(a, _LANES)

    def no_integers(self) -> ir.Value:
        """A vector of 32-bit zeros."""
        return ir.Constant(_INTEGERS, [0] * VECTOR.lanes)

    def load_integers(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """A vector of neighbouring 32-bit integers, or pairs of 16-bit ones; the offset counts
        them."""
        address = self._builder.bitcast(self.at(pointer, offset), _INTEGERS.as_pointer())
        return self._builder.load(address, align=4)

    def load_pair(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """One pair of 16-bit integers, in every lane."""
        place = self._builder.bitcast(self.at(pointer, offset), _INTEGER.as_pointer())
        undefined = ir.Constant(_INTEGERS, ir.Undefined)
        pair = self._builder.load(place, align=4)
        first = self._builder.insert_element(undefined, pair, ir.Constant(_INTEGER, 0))
        return self._builder.shuffle_vector(first, undefined, self.no_integers())

    def store_shorts(
        self, vectors: Sequence[ir.Value], pointer: ir.Value, offset: ir.Value
    ) -> None:
        """Stores 16 integers of 32 bits, in vectors of 16 or 8 lanes, as 16-bit ones.

        Of two vectors, the first four lanes of each come before their last four: as the
        instruction has it.
        """
        shorts = ir.VectorType(ir.IntType(16), 16)
        address = self._builder.bitcast(self.at(pointer, offset), shorts.as_pointer())
        if len(vectors) == 1:
            packed = self._builder.trunc(vectors[0], shorts)
        else:
            function = cgutils.get_or_insert_function(
                self._builder.module,
                ir.FunctionType(shorts, [_INTEGERS, _INTEGERS]),
                "llvm.x86.avx2.packssdw",
            )
            packed = self._builder.call(function, list(vectors))
        self._builder.store(packed, address, align=4)

    def load_shorts(self, pointer: ir.Value, offset: ir.Value) -> list[ir.Value]:
        """What `store_shorts` stored, as vectors of 32-bit integers."""
        builder, lanes = self._builder, VECTOR.lanes
        kind = ir.VectorType(ir.IntType(16), 16)
        address = builder.bitcast(self.at(pointer, offset), kind.as_pointer())
        packed = builder.load(address, align=4)
        vectors = []
        for n in range(16 // lanes):
            order = [lane // 4 * 16 // lanes * 4 + 4 * n + lane % 4 for lane in range(lanes)]
            mask = ir.Constant(ir.VectorType(_INTEGER, lanes), order)
            part = builder.shuffle_vector(packed, packed, mask)
            vectors.append(builder.sext(part, _INTEGERS))
        return vectors

    def dot(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """c plus the sums of products of pairs of 16-bit integers, lane by lane.

        LLVM cannot see through the result: else it would add in another order, out of more
        registers than there are, and take one instruction apart into two.
        """
        if _DOT:
            kind = ir.FunctionType(_INTEGERS, [_INTEGERS] * 3)
            asm = ir.InlineAsm(kind, f"{_DOT} $3, $2, $0", "=v,0,v,v")
            return self._builder.call(asm, [c, a, b])
        name = "llvm.x86.avx2.pmadd.wd" if VECTOR.lanes == 8 else "llvm.x86.avx512.pmaddw.d.512"
        function = cgutils.get_or_insert_function(
            self._builder.module, ir.FunctionType(_INTEGERS, [_PAIRS, _PAIRS]), name
        )
        pairs = [self._builder.bitcast(value, _PAIRS) for value in (a, b)]
        total = self._builder.add(c, self._builder.call(function, pairs))
        asm = ir.InlineAsm(ir.FunctionType(_INTEGERS, [_INTEGERS]), "", "=v,0")
        return self._builder.call(asm, [total])

    def _call(self, name: str, kind: ir.Type, *values: ir.Value) -> ir.Value:
        """An intrinsic of vectors that are all of a kind."""
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(kind, [kind] * len(values)),
            f"{name}.v{VECTOR.lanes}f32",
        )
        return self._builder.call(function, list(values))

    def leaky(self, a: ir.Value, slope: ir.Value) -> ir.Value:
        """Leaky ReLU, any slope: a above 0, else a * slope; both vectors, or both floats."""
        scaled = self._builder.fmul(a, slope)
        zero = ir.Constant(a.type, [0.0] * VECTOR.lanes if a.type == _LANES else 0.0)
        return self._builder.select(self._builder.fcmp_ordered(">", a, zero), a, scaled)

    def sigmoid(self, a: ir.Value) -> ir.Value:
        """1 / (1 + exp(-a)), within 2e-7: exp by Cephes's polynomial, of a within +-87."""
        builder, lanes = self._builder, VECTOR.lanes
        y = self.times(a, -1.0)
        for operation, bound in (("<", 87.0), (">", -87.0)):
            edge = self.splat(bound)
            y = builder.select(builder.fcmp_ordered(operation, y, edge), y, edge)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_LANES, [_LANES]), f"llvm.rint.v{lanes}f32"
        )
        whole = builder.call(function, [self.times(y, 1.44269504088896341)])
        rest = self.fma(whole, -0.693359375, y)
        rest = self.fma(whole, 2.12194440e-4, rest)
        result = self.splat(_EXPONENTIAL[0])
        for factor in _EXPONENTIAL[1:]:
            result = self.fma(result, rest, self.splat(factor))
        result = self.fma(self.times(rest, rest), result, self.plus(rest, self.splat(1.0)))
        integers = ir.VectorType(ir.IntType(32), lanes)
        power = builder.add(builder.fptosi(whole, integers), ir.Constant(integers, [127] * lanes))
        power = builder.shl(power, ir.Constant(integers, [23] * lanes))
        exponential = builder.fmul(result, builder.bitcast(power, _LANES))
        return builder.fdiv(self.splat(1.0), self.plus(exponential, self.splat(1.0)))

    def total(self, a: ir.Value) -> ir.Value:
        """The sum of the lanes, in an order that depends on the vector width alone."""
        name = f"llvm.vector.reduce.fadd.v{VECTOR.lanes}f32"
        function = cgutils.get_or_insert_function(
            self._builder.module, ir.FunctionType(_FLOAT, [_FLOAT, _LANES]), name
        )
        return self._builder.call(function, [ir.Constant(_FLOAT, -0.0), a], fastmath=("reassoc",))

    def add_fixed(
        self, a: ir.Value, bits: int, limit: float, sums: ir.Value, offset: ir.Value
    ) -> None:
        """Adds a * 2**bits, rounded half to even, to neighbouring integers; a within +-limit."""
        builder, lanes = self._builder, VECTOR.lanes
        for operation, bound in (("<", limit), (">", -limit)):
            edge = self.splat(bound)
            a = builder.select(builder.fcmp_ordered(operation, a, edge), a, edge)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_LANES, [_LANES]), f"llvm.rint.v{lanes}f32"
        )
        rounded = builder.call(function, [self.times(a, float(1 << bits))])
        integers = builder.fptosi(rounded, ir.VectorType(ir.IntType(32), lanes))
        kind = ir.VectorType(_INDEX, lanes)
        place = builder.bitcast(builder.gep(sums, [offset]), kind.as_pointer())
        total = builder.add(builder.load(place, align=8), builder.sext(integers, kind))
        builder.store(total, place, align=8)

    def tile(self, operation: str, *operands: int | ir.Value) -> None:
        """One AMX instruction; Python ints among the operands are numbers of tile registers."""
        if operation in ("ldtilecfg", "tileloadd64", "tilestored64"):
            operands = tuple(
                self._builder.bitcast(value, _BYTES)
                if isinstance(value, ir.Value) and isinstance(value.type, ir.PointerType)
                else value
                for value in operands
            )
        values = [ir.Constant(_TILE, v) if isinstance(v, int) else v for v in operands]
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(ir.VoidType(), [value.type for value in values]),
            f"llvm.x86.{operation}",
        )
        self._builder.call(function, values)

    def accumulators(self, initial: Sequence[ir.Value]) -> list[ir.Value]:
        """Variables that live across loop iterations, in registers once LLVM has promoted them."""
        slots = []
        for value in initial:
            slot = cgutils.alloca_once(self._builder, value.type)
            self._builder.store(value, slot)
            slots.append(slot)
        return slots

    def get(self, slot: ir.Value) -> ir.Value:
        """The value of an accumulator."""
        return self._builder.load(slot)

    def set(self, slot: ir.Value, value: ir.Value) -> None:
        """Gives an accumulator its next value."""
        self._builder.store(value, slot)

    def cases(self, value: ir.Value, constants: Sequence[int]) -> Iterator[int]:
        """Yields each constant in turn; what is emitted meanwhile runs if `value` equals it."""
        for constant in constants:
            equal = self._builder.icmp_signed("==", value, self.index(constant))
            with self._builder.if_then(equal):
                yield constant

    def at_least(self, value: ir.Value, least: int) -> ir.Value:
        """1 if an integer is that or more, else 0."""
        return self._builder.zext(self._builder.icmp_signed(">=", value, self.index(least)), _INDEX)

    @contextmanager
    def loop(self, count: ir.Value, step: int = 1) -> Iterator[ir.Value]:
        """A loop over 0, step, 2 step, … < count; yields the index."""
        with cgutils.for_range_slice(
            self._builder, self.index(0), count, self.index(step), intp=_INDEX
        ) as (index, _):
            yield index


def vector_kernel(emit: Callable[..., None]) -> Any:
    """A function of Numba code whose body is `emit(emitter, *arguments)`.

    Pointers to float32 arrive as such, integers as i64 and floats as float32 values.
    """

    def kernel(typing_context: Any, *arguments: types.Type) -> Any:
        signature = types.void(*(_canonical(argument) for argument in arguments))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
            emit(Emitter(builder), *values)
            return context.get_dummy_value()

        return signature, codegen

    # Numba counts the arguments of an intrinsic by its signature.
    _, *operands = inspect.signature(emit).parameters.values()
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kernel.__signature__ = inspect.Signature([context, *operands])  # type: ignore[attr-defined]
    return intrinsic(kernel)


@intrinsic  # type: ignore[untyped-decorator]
def ticks(typing_context: Any) -> Any:
    """A counter that runs at a steady rate on x86; elsewhere 0, for it may be out of bounds."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return ir.Constant(_INDEX, 0)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_INDEX, []), "llvm.readcyclecounter"
        )
        return builder.call(function, [])

    return types.int64(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pause(typing_context: Any) -> Any:
    """Tells an x86 processor that this thread waits for others: it does less for some cycles."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(ir.InlineAsm(kind, "pause", "~{memory}", side_effect=True), [])
        return context.get_dummy_value()

    return types.void(), codegen


def _canonical(kind: types.Type) -> types.Type:
    if isinstance(kind, types.Integer):
        return types.int64
    if isinstance(kind, types.Float):
        return types.float32
    return kind
