"""Where things lie: records, pixels, and the rows of the rings that `layout` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from waifu2x.backends.cpu.kernels import native


@intrinsic  # type: ignore[untyped-decorator]
def record(typing_context: Any, records: types.Type, index: types.Type) -> Any:
    """Record `index` of the many that a pointer points to, in place: no copy."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        bytes_ = builder.bitcast(values[0], ir.IntType(8).as_pointer())
        offset = builder.mul(values[1], ir.Constant(ir.IntType(64), records.dtype.size))
        return builder.bitcast(builder.gep(bytes_, [offset]), context.get_value_type(records.dtype))

    return records.dtype(records, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, address: types.Type, kind: types.Type) -> Any:
    """The address of the first of many numbers of a dtype, as a pointer."""
    signature = types.CPointer(kind.dtype)(types.int64, kind)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(sig.return_type))

    return signature, codegen


@native
def ring_row(layer, row):  # type: ignore[no-untyped-def]
    """Where a row of the picture lies in the ring of a layer."""
    return layer.ring + (row & (2 * layer.rows - 1)) * layer.row_floats
