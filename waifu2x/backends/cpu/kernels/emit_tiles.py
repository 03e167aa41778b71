"""The instructions of AMX."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.kernels.emit_control import ControlEmitter
from waifu2x.backends.cpu.kernels.llvm_types import BYTES

_TILE = ir.IntType(8)


class TileEmitter(ControlEmitter):
    """Emits instructions on tile registers."""

    def tile(self, operation: str, *operands: int | ir.Value) -> None:
        """One AMX instruction; Python ints among the operands are numbers of tile registers."""
        if operation in ("ldtilecfg", "tileloadd64", "tilestored64"):
            operands = tuple(
                self._builder.bitcast(value, BYTES)
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
