"""Defines the LLVM types of vector code."""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR

INDEX = ir.IntType(64)
"""Offsets, counts and fields of records."""
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, VECTOR.lanes)
INTEGER = ir.IntType(32)
INTEGERS = ir.VectorType(INTEGER, VECTOR.lanes)
BYTES = ir.IntType(8).as_pointer()


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, for which llvmlite has no name."""

    def _to_string(self) -> str:
        return "bfloat"


BFLOATS = ir.VectorType(_BFloat(), VECTOR.lanes)
