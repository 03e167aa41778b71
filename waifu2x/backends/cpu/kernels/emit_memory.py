"""Emits loads and stores of floats, bf16 terms and fields of records."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels.emit_floats import FloatEmitter
from waifu2x.backends.cpu.kernels.llvm_types import (
    BFLOATS,
    BYTES,
    FLOAT,
    FLOATS,
    INDEX,
    INTEGER,
)
from waifu2x.backends.cpu.pack.records import TASK


class MemoryEmitter(FloatEmitter):
    """Emits loads and stores. Pointers are to float32, and offsets count floats."""

    def load(self, pointer: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """Returns a vector of neighbouring floats."""
        address = self._builder.bitcast(self.at(pointer, offset), FLOATS.as_pointer())
        return self._builder.load(address, align=4)

    def store(self, vector: ir.Value, pointer: ir.Value, offset: int | ir.Value = 0) -> None:
        """Stores a vector to neighbouring floats."""
        address = self._builder.bitcast(self.at(pointer, offset), FLOATS.as_pointer())
        self._builder.store(vector, address, align=4)

    def store_first(
        self, vector: ir.Value, count: ir.Value, pointer: ir.Value, offset: ir.Value
    ) -> None:
        """Stores the first `count` lanes of a vector, and leaves the memory behind them alone."""
        builder, lanes = self._builder, VECTOR.lanes
        kind = ir.FunctionType(
            ir.VoidType(),
            [FLOATS, FLOATS.as_pointer(), INTEGER, ir.VectorType(ir.IntType(1), lanes)],
        )
        function = cgutils.get_or_insert_function(
            builder.module, kind, f"llvm.masked.store.v{lanes}f32.p0"
        )
        address = builder.bitcast(self.at(pointer, offset), FLOATS.as_pointer())
        builder.call(function, [vector, address, ir.Constant(INTEGER, 4), self.lanes_below(count)])

    def prefetch(self, pointer: ir.Value, offset: ir.Value, *, to_write: bool = False) -> None:
        """Prefetches the cache line of a float; the address need not be valid."""
        kind = ir.IntType(32)
        place = self._builder.bitcast(self.at(pointer, offset), BYTES)
        function = cgutils.get_or_insert_function(
            self._builder.module,
            ir.FunctionType(ir.VoidType(), [BYTES, kind, kind, kind]),
            "llvm.prefetch.p0",
        )
        to_every_cache, of_data = 3, 1
        settings = [ir.Constant(kind, n) for n in (int(to_write), to_every_cache, of_data)]
        self._builder.call(function, [place, *settings])

    def load_float(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """Returns one float."""
        return self._builder.load(self.at(pointer, offset), align=4)

    def store_float(self, value: ir.Value, pointer: ir.Value, offset: int | ir.Value) -> None:
        """Stores one float."""
        self._builder.store(value, self.at(pointer, offset), align=4)

    def field(self, record: ir.Value, name: str, kind: np.dtype[Any] = TASK) -> ir.Value:
        """Loads an integer or a double of a record that no compiled code changes."""
        field, offset = kind.fields[name][:2]  # type: ignore[index]
        bytes_ = self._builder.bitcast(record, BYTES)
        place = self._builder.gep(bytes_, [self.index(offset)])
        wide = INDEX if field == np.int64 else ir.DoubleType()
        return self._constant(self._builder.load(self._builder.bitcast(place, wide.as_pointer())))

    def load_constant(self, pointer: ir.Value, offset: int | ir.Value) -> ir.Value:
        """Returns a vector of neighbouring floats that no compiled code changes."""
        return self._constant(self.load(pointer, offset))

    def _constant(self, loaded: ir.Value) -> ir.Value:
        """Tells LLVM that a load may move out of loops, past any store."""
        loaded.set_metadata("invariant.load", self._builder.module.add_metadata([]))
        return loaded

    def integer(self, pointer: ir.Value, index: int | ir.Value) -> ir.Value:
        """Loads the 64-bit integer at `index`."""
        return self._builder.load(self._builder.gep(pointer, [self.index(index)]))

    def integers_at(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        """Returns a pointer to integers `offset` floats behind a pointer."""
        return self._builder.bitcast(self.at(pointer, offset), INDEX.as_pointer())

    def store_integer(self, value: ir.Value, pointer: ir.Value, index: ir.Value) -> None:
        """Stores the 64-bit integer at `index`."""
        self._builder.store(value, self._builder.gep(pointer, [index]))

    def narrow(self, value: ir.Value) -> ir.Value:
        """Returns a double as a float."""
        return self._builder.fptrunc(value, FLOAT)

    def stack_vectors(self, vectors: int) -> tuple[ir.Value, ir.Value]:
        """Returns memory for `vectors` vectors, as a pointer for stores and one for later loads.

        Where registers cannot hold the values between two steps, this beats spills: LLVM does not
        know that both pointers are equal, so it leaves each step in the order of its loads.
        """
        slot = cgutils.alloca_once(self._builder, FLOATS, size=vectors)
        to = self.opaque(self._builder.bitcast(slot, FLOAT.as_pointer()))
        return to, self.opaque(to)

    def load_terms(
        self, pointer: ir.Value, offset: ir.Value, terms: int, rest: ir.Value
    ) -> ir.Value:
        """Loads a vector of values stored in `terms` bf16 terms, `rest` apart, or as floats for 0.

        The offset counts values of that kind.
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
        """Stores a vector as `load_terms` loads it; a second term is the remainder of the first."""
        if not terms:
            self.store(vector, pointer, offset)
            return
        rounded = self.store_bfloats(vector, pointer, offset)
        if terms == 2:
            self.store_bfloats(self.minus(vector, rounded), pointer, self.add(offset, rest))

    def store_bfloats(
        self, vector: ir.Value, pointer: ir.Value, offset: int | ir.Value
    ) -> ir.Value:
        """Stores a vector rounded to bf16 (half to even); returns the stored values as floats.

        The offset counts bf16 values.
        """
        halves = self._builder.bitcast(pointer, ir.IntType(16).as_pointer())
        place = self._builder.gep(halves, [self.index(offset)])
        address = self._builder.bitcast(place, BFLOATS.as_pointer())
        rounded = self._builder.fptrunc(vector, BFLOATS)
        self._builder.store(rounded, address, align=2)
        return self._builder.fpext(rounded, FLOATS)

    def term_pairs(self, vector: ir.Value) -> ir.Value:
        """Returns a vector of pairs of the two bf16 terms of each float, the first term first."""
        halves = ir.VectorType(ir.IntType(16), VECTOR.lanes)
        integers = ir.VectorType(ir.IntType(32), VECTOR.lanes)
        first = self._builder.fptrunc(vector, BFLOATS)
        rest = self._builder.fsub(vector, self._builder.fpext(first, FLOATS))
        low, high = (
            self._builder.zext(self._builder.bitcast(term, halves), integers)
            for term in (first, self._builder.fptrunc(rest, BFLOATS))
        )
        high = self._builder.shl(high, ir.Constant(integers, [16] * VECTOR.lanes))
        return self._builder.bitcast(self._builder.or_(low, high), FLOATS)

    def _load_bfloats(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        integers = ir.VectorType(ir.IntType(32), VECTOR.lanes)
        halves = ir.VectorType(ir.IntType(16), VECTOR.lanes)
        place = self._builder.gep(
            self._builder.bitcast(pointer, ir.IntType(16).as_pointer()), [offset]
        )
        loaded = self._builder.load(self._builder.bitcast(place, halves.as_pointer()), align=2)
        wide = self._builder.zext(loaded, integers)
        bits = self._builder.shl(wide, ir.Constant(integers, [16] * VECTOR.lanes))
        return self._builder.bitcast(bits, FLOATS)
