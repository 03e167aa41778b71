"""Emits arithmetic of vectors of 32-bit integers, and of pairs of 16-bit ones."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.compile.isa import VECTOR, dot_instruction
from waifu2x.backends.cpu.kernels.emit_floats import FloatEmitter
from waifu2x.backends.cpu.kernels.llvm_types import FLOATS, INDEX, INTEGER, INTEGERS

_PAIRS = ir.VectorType(ir.IntType(16), 2 * VECTOR.lanes)
_SHORTS = ir.VectorType(ir.IntType(16), VECTOR.lanes)
_DOT = dot_instruction(VECTOR.lanes)


class IntegerEmitter(FloatEmitter):
    """Emits arithmetic, loads and stores of vectors of integers."""

    def integers(self, a: ir.Value, factor: ir.Value) -> ir.Value:
        """Returns 32-bit integers whose low halves are a * factor, rounded once, half to even; the
        products must fit in 16 bits."""
        # Adding this number rounds the sum to an integer in its last bits.
        shifted = self.fma(a, factor, self.splat(1.5 * 2.0**23))
        return self._builder.bitcast(shifted, INTEGERS)

    def floats(self, a: ir.Value) -> ir.Value:
        """Returns 32-bit integers as floats, rounded half to even."""
        return self._builder.sitofp(a, FLOATS)

    def load_integers(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """Returns a vector of neighbouring 32-bit integers, or pairs of 16-bit ones; the offset
        counts them."""
        address = self._builder.bitcast(self.at(pointer, offset), INTEGERS.as_pointer())
        return self._builder.load(address, align=4)

    def load_pair(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """Returns one pair of 16-bit integers, in every lane."""
        place = self._builder.bitcast(self.at(pointer, offset), INTEGER.as_pointer())
        undefined = ir.Constant(INTEGERS, ir.Undefined)
        pair = self._builder.load(place, align=4)
        first = self._builder.insert_element(undefined, pair, ir.Constant(INTEGER, 0))
        return self._builder.shuffle_vector(first, undefined, self.no_integers())

    def store_pairs(
        self, first: ir.Value, second: ir.Value, pointer: ir.Value, offset: int | ir.Value
    ) -> None:
        """Stores the low halves of two vectors as pairs of a value of each."""
        builder, lanes = self._builder, VECTOR.lanes
        above = builder.shl(second, ir.Constant(INTEGERS, [16] * lanes))
        order = [lane if lane % 2 == 0 else 2 * lanes + lane for lane in range(2 * lanes)]
        mask = ir.Constant(ir.VectorType(INTEGER, 2 * lanes), order)
        halves = [builder.bitcast(vector, _PAIRS) for vector in (first, above)]
        address = builder.bitcast(self.at(pointer, offset), _PAIRS.as_pointer())
        builder.store(builder.shuffle_vector(*halves, mask), address, align=4)

    def load_pairs(self, pointer: ir.Value, offset: int | ir.Value) -> list[ir.Value]:
        """Loads pairs of `store_pairs` as two vectors of 32-bit integers."""
        builder, shift = self._builder, ir.Constant(INTEGERS, [16] * VECTOR.lanes)
        pairs = self.load_integers(pointer, offset)
        return [builder.ashr(builder.shl(pairs, shift), shift), builder.ashr(pairs, shift)]

    def store_shorts(self, vector: ir.Value, pointer: ir.Value, offset: int | ir.Value) -> None:
        """Stores the low halves of a vector contiguously."""
        address = self._builder.bitcast(self.at(pointer, offset), _SHORTS.as_pointer())
        self._builder.store(self._builder.trunc(vector, _SHORTS), address, align=4)

    def load_shorts(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """Loads values of `store_shorts` as 32-bit integers."""
        address = self._builder.bitcast(self.at(pointer, offset), _SHORTS.as_pointer())
        return self._builder.sext(self._builder.load(address, align=4), INTEGERS)

    def dot(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """Returns c plus the sums of products of pairs of 16-bit integers, lane by lane.

        The result is opaque to LLVM, which would otherwise reorder the sums, run out of registers,
        and split one instruction into two.
        """
        if _DOT:
            kind = ir.FunctionType(INTEGERS, [INTEGERS] * 3)
            asm = ir.InlineAsm(kind, f"{_DOT} $3, $2, $0", "=v,0,v,v")
            return self._builder.call(asm, [c, a, b])
        name = "llvm.x86.avx2.pmadd.wd" if VECTOR.lanes == 8 else "llvm.x86.avx512.pmaddw.d.512"
        function = cgutils.get_or_insert_function(
            self._builder.module, ir.FunctionType(INTEGERS, [_PAIRS, _PAIRS]), name
        )
        pairs = [self._builder.bitcast(value, _PAIRS) for value in (a, b)]
        total = self._builder.add(c, self._builder.call(function, pairs))
        asm = ir.InlineAsm(ir.FunctionType(INTEGERS, [INTEGERS]), "", "=v,0")
        return self._builder.call(asm, [total])

    def add_split(
        self,
        a: ir.Value,
        bits: tuple[int, int],
        limit: float,
        sums: ir.Value,
        offset: ir.Value,
        rest: ir.Value,
        *,
        is_narrow: bool = False,
    ) -> None:
        """Adds a, within +-limit, to sums of two 64-bit integers, `rest` apart: a * 2**bits[0],
        rounded, and the remainder times 2**bits[1]. `is_narrow`: 32 bits hold both addends."""
        a = self.minimum(self.maximum(a, self.splat(-limit)), self.splat(limit))
        whole = self._call("llvm.rint", FLOATS, self.times(a, float(1 << bits[0])))
        left = self.minus(a, self.times(whole, 1 / (1 << bits[0])))
        small = self._call("llvm.rint", FLOATS, self.times(left, float(1 << bits[1])))
        self._add_integers(whole, sums, offset, is_narrow=is_narrow)
        self._add_integers(small, sums, self.add(offset, rest), is_narrow=is_narrow)

    def _add_integers(
        self, a: ir.Value, sums: ir.Value, offset: ir.Value, *, is_narrow: bool
    ) -> None:
        """Adds floats with integral values to neighbouring 64-bit integers."""
        builder, kind = self._builder, ir.VectorType(INDEX, VECTOR.lanes)
        place = builder.bitcast(builder.gep(sums, [offset]), kind.as_pointer())
        if is_narrow:  # not all processors convert vectors of floats to 64-bit integers
            narrow = ir.VectorType(ir.IntType(32), VECTOR.lanes)
            integers = builder.sext(builder.fptosi(a, narrow), kind)
        else:
            integers = builder.fptosi(a, kind)
        total = builder.add(builder.load(place, align=8), integers)
        builder.store(total, place, align=8)
