"""Vectors of 32-bit integers, and pairs of 16-bit ones."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.isa import VECTOR, dot_instruction
from waifu2x.backends.cpu.kernels.emit_floats import FloatEmitter
from waifu2x.backends.cpu.kernels.llvm_types import FLOATS, INDEX, INTEGER, INTEGERS

_PAIRS = ir.VectorType(ir.IntType(16), 2 * VECTOR.lanes)
_DOT = dot_instruction(VECTOR.lanes)


class IntegerEmitter(FloatEmitter):
    """Emits what computes with vectors of integers."""

    def integers(self, a: ir.Value) -> ir.Value:
        """A vector of floats as 32-bit integers, rounded half to even."""
        lanes = VECTOR.lanes
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(INTEGERS, [FLOATS]),
            f"llvm.lrint.v{lanes}i32.v{lanes}f32",
        )
        return self._builder.call(function, [a])

    def floats(self, a: ir.Value) -> ir.Value:
        """32-bit integers as floats, rounded half to even."""
        return self._builder.sitofp(a, FLOATS)

    def load_integers(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """A vector of neighbouring 32-bit integers, or pairs of 16-bit ones; the offset counts
        them."""
        address = self._builder.bitcast(self.at(pointer, offset), INTEGERS.as_pointer())
        return self._builder.load(address, align=4)

    def load_pair(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """One pair of 16-bit integers, in every lane."""
        place = self._builder.bitcast(self.at(pointer, offset), INTEGER.as_pointer())
        undefined = ir.Constant(INTEGERS, ir.Undefined)
        pair = self._builder.load(place, align=4)
        first = self._builder.insert_element(undefined, pair, ir.Constant(INTEGER, 0))
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
                ir.FunctionType(shorts, [INTEGERS, INTEGERS]),
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
            mask = ir.Constant(ir.VectorType(INTEGER, lanes), order)
            part = builder.shuffle_vector(packed, packed, mask)
            vectors.append(builder.sext(part, INTEGERS))
        return vectors

    def dot(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """c plus the sums of products of pairs of 16-bit integers, lane by lane.

        LLVM cannot see through the result: else it would add in another order, out of more
        registers than there are, and take one instruction apart into two.
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

    def add_fixed(
        self, a: ir.Value, bits: int, limit: float, sums: ir.Value, offset: ir.Value
    ) -> None:
        """Adds a * 2**bits, rounded half to even, to neighbouring integers; a within +-limit."""
        builder, lanes = self._builder, VECTOR.lanes
        for operation, bound in (("<", limit), (">", -limit)):
            edge = self.splat(bound)
            a = builder.select(builder.fcmp_ordered(operation, a, edge), a, edge)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOATS, [FLOATS]), f"llvm.rint.v{lanes}f32"
        )
        rounded = builder.call(function, [self.times(a, float(1 << bits))])
        integers = builder.fptosi(rounded, ir.VectorType(ir.IntType(32), lanes))
        kind = ir.VectorType(INDEX, lanes)
        place = builder.bitcast(builder.gep(sums, [offset]), kind.as_pointer())
        total = builder.add(builder.load(place, align=8), builder.sext(integers, kind))
        builder.store(total, place, align=8)
