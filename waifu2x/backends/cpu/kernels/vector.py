"""Vector code in Numba: a thin layer over LLVM's builder, one method per instruction.

Numba emits scalar loops and relies on LLVM to vectorise them, which is not reliable enough for the
inner loops of convolutions: here they are emitted as LLVM vector instructions, whose width and
register budget come from the processor (`isa.VECTOR`). LLVM still chooses the machine instructions,
so one source serves AVX-512, AVX2, NEON and others.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from waifu2x.backends.cpu.kernels.emit_functions import FunctionEmitter
from waifu2x.backends.cpu.kernels.emit_integers import IntegerEmitter
from waifu2x.backends.cpu.kernels.emit_memory import MemoryEmitter
from waifu2x.backends.cpu.kernels.llvm_types import BYTES, INDEX

_TILE = ir.IntType(8)


class Emitter(MemoryEmitter, IntegerEmitter, FunctionEmitter):
    """Emits vector and tile instructions at the builder's position in an LLVM function."""

    def tile(self, operation: str, *operands: int | ir.Value) -> None:
        """Emits one AMX instruction; Python ints among the operands are tile registers."""
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


def vector_kernel(emit: Callable[..., None]) -> Any:
    """Makes a function for Numba code whose body is `emit(emitter, *arguments)`.

    Pointers to float32 arrive as such, integers as i64 and floats as float32 values, and tuples as
    tuples of those.
    """

    def kernel(typing_context: Any, *arguments: types.Type) -> Any:
        signature = types.void(*(_canonical(argument) for argument in arguments))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
            operands = zip(sig.args, values, strict=True)
            emit(Emitter(builder), *(_unpacked(builder, *operand) for operand in operands))
            return context.get_dummy_value()

        return signature, codegen

    # Numba counts the arguments of an intrinsic by its signature.
    _, *operands = inspect.signature(emit).parameters.values()
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kernel.__signature__ = inspect.Signature([context, *operands])  # type: ignore[attr-defined]
    return intrinsic(kernel)


def _unpacked(builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> Any:
    """Returns a value, or the tuple of values that a tuple holds."""
    if not isinstance(kind, types.BaseTuple):
        return value
    parts = [
        _unpacked(builder, part, builder.extract_value(value, n))
        for n, part in enumerate(kind.types)
    ]
    return kind.instance_class(*parts) if isinstance(kind, types.BaseNamedTuple) else tuple(parts)


@intrinsic  # type: ignore[untyped-decorator]
def ticks(typing_context: Any) -> Any:
    """Returns a counter of constant rate on x86; elsewhere 0: reading one may be forbidden."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return ir.Constant(INDEX, 0)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(INDEX, []), "llvm.readcyclecounter"
        )
        return builder.call(function, [])

    return types.int64(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pause(typing_context: Any) -> Any:
    """Tells an x86 processor that this thread spins, so that it yields some cycles."""

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
