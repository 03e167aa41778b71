"""AMX tiles emulated in plain vector instructions: a pytest plugin for machines without them.

With `-p tests.helpers.emulated_tiles`, the `cpu` backend runs its kernels for tiles, and each tile
instruction that it emits becomes loads, stores and multiply-adds with the same meaning. Slower by
some twenty times; what it shows is that packing, addresses and rounding are right. Vectors have 16
lanes then, so it shows the same of 16-bit integers there.
"""

from __future__ import annotations

from unittest import mock

from llvmlite import ir
from numba.core import cgutils

from waifu2x.backends.cpu.compile import host

_ROWS = _COLUMNS = _PAIRS = 16
_INT = ir.IntType(32)
_INTS = ir.VectorType(_INT, _COLUMNS)
_FLOATS = ir.VectorType(ir.FloatType(), _COLUMNS)

_names = ("avx2", "fma", "avx512f", "avx512bw", "avx512bf16", "amx-tile", "amx-bf16")
with (
    mock.patch.object(host, "has", _names.__contains__),
    mock.patch("ctypes.CDLL") as library,
):
    library(None).syscall.return_value = 0
    from waifu2x.backends.cpu.compile import isa
vars(isa)["has"] = host.has
assert isa.VECTOR.tiles

from waifu2x.backends.cpu.kernels import vector  # noqa: E402


def _tile(self: vector.Emitter, operation: str, *operands: int | ir.Value) -> None:
    """Emitter.tile, without tiles."""
    builder = self._builder
    if operation in ("ldtilecfg", "tilerelease"):
        return
    if not hasattr(self, "registers"):
        kind = ir.ArrayType(_INTS, 8 * _ROWS)
        self.registers = cgutils.alloca_once(builder, kind)  # type: ignore[attr-defined]

    def row_of(tile: int | ir.Value, row: ir.Value | int) -> ir.Value:
        place = builder.add(self.index(tile * _ROWS), self.index(row))
        return builder.gep(self.registers, [self.index(0), place])  # type: ignore[attr-defined]

    def halves(pairs: ir.Value) -> list[ir.Value]:
        """The two bf16 values of each lane, as floats."""
        low = builder.shl(pairs, ir.Constant(_INTS, [16] * _COLUMNS))
        high = builder.and_(pairs, ir.Constant(_INTS, [-65536] * _COLUMNS))
        return [builder.bitcast(half, _FLOATS) for half in (low, high)]

    with self.loop(self.index(_ROWS)) as row:
        if operation == "tilezero":
            builder.store(ir.Constant(_INTS, [0] * _COLUMNS), row_of(operands[0], row))
        elif operation == "tdpbf16ps":
            sums, left, right = operands
            total = builder.bitcast(builder.load(row_of(sums, row)), _FLOATS)
            pairs = builder.load(row_of(left, row))
            for pair in range(_PAIRS):
                mask = ir.Constant(ir.VectorType(_INT, _COLUMNS), [pair] * _COLUMNS)
                repeated = builder.shuffle_vector(pairs, pairs, mask)
                factors = halves(builder.load(row_of(right, pair)))
                for value, factor in zip(halves(repeated), factors, strict=True):
                    total = self.fma(value, factor, total)
            builder.store(builder.bitcast(total, _INTS), row_of(sums, row))
        else:
            tile, pointer, stride = operands
            start = builder.bitcast(pointer, ir.IntType(8).as_pointer())
            address = builder.gep(start, [builder.mul(stride, row)])
            memory = builder.bitcast(address, _INTS.as_pointer())
            if operation == "tileloadd64":
                builder.store(builder.load(memory, align=4), row_of(tile, row))
            else:
                assert operation == "tilestored64"
                builder.store(builder.load(row_of(tile, row)), memory, align=4)


vector.Emitter.tile = _tile  # type: ignore[method-assign]


def _store_bfloats(
    self: vector.Emitter, values: ir.Value, pointer: ir.Value, offset: int | ir.Value
) -> ir.Value:
    """Emitter.store_bfloats, by integers: without its instruction LLVM would call a library."""
    builder = self._builder

    def every(number: int) -> ir.Value:
        return ir.Constant(_INTS, [number] * _COLUMNS)

    bits = builder.bitcast(values, _INTS)
    odd = builder.and_(builder.lshr(bits, every(16)), every(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, every(0x7FFF))), every(16))
    halves = ir.VectorType(ir.IntType(16), _COLUMNS)
    start = builder.bitcast(pointer, ir.IntType(16).as_pointer())
    address = builder.bitcast(builder.gep(start, [self.index(offset)]), halves.as_pointer())
    builder.store(builder.trunc(rounded, halves), address, align=2)
    return builder.bitcast(builder.shl(rounded, every(16)), _FLOATS)


vector.Emitter.store_bfloats = _store_bfloats  # type: ignore[assignment, method-assign]


def _dot(self: vector.Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Emitter.dot, by multiplications of 32 bits."""
    builder = self._builder
    sixteen = ir.Constant(_INTS, [16] * _COLUMNS)
    lows = [builder.ashr(builder.shl(value, sixteen), sixteen) for value in (a, b)]
    highs = [builder.ashr(value, sixteen) for value in (a, b)]
    return builder.add(c, builder.add(builder.mul(*lows), builder.mul(*highs)))


vector.Emitter.dot = _dot  # type: ignore[assignment, method-assign]
