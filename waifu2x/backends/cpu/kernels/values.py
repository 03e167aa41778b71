"""Loads and stores single values of maps of any layout, for work that is not worth vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import memory_row
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import MAP
from waifu2x.backends.cpu.pack.shapes import LANES, TERMS


@intrinsic  # type: ignore[untyped-decorator]
def _bfloat_at(typing_context: Any, floats: types.Type, index: types.Type) -> Any:
    """Loads the bf16 value at `index`, counted in bf16 values, as a float."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        halves = builder.bitcast(values[0], ir.IntType(16).as_pointer())
        wide = builder.zext(builder.load(builder.gep(halves, [values[1]])), ir.IntType(32))
        bits = builder.shl(wide, ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(floats, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _put_bfloat(
    typing_context: Any, floats: types.Type, index: types.Type, value: types.Type
) -> Any:
    """Stores a float rounded to bf16, half to even; returns the stored value."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(values[2], integer)
        odd = builder.and_(builder.lshr(bits, ir.Constant(integer, 16)), ir.Constant(integer, 1))
        bits = builder.add(bits, builder.add(odd, ir.Constant(integer, 0x7FFF)))
        bits = builder.and_(bits, ir.Constant(integer, 0xFFFF0000))
        half = builder.trunc(builder.lshr(bits, ir.Constant(integer, 16)), ir.IntType(16))
        halves = builder.bitcast(values[0], ir.IntType(16).as_pointer())
        builder.store(half, builder.gep(halves, [values[1]]))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(floats, types.int64, types.float32), codegen


@native
def pixel_start(map_, y, x):  # type: ignore[no-untyped-def]
    """Returns the place, in floats, of the stored pixel that holds the single pixel (y, x)."""
    side = map_.space_to_depth
    if side > 1:
        y, x = y // side, x // side
    return memory_row(map_, y) + (x - map_.column) * map_.pixel_floats


@native
def pixel_plane(map_, y, x):  # type: ignore[no-untyped-def]
    """Returns the first plane of the single pixel (y, x) within its stored pixel."""
    side = map_.space_to_depth
    if side == 1:
        return 0
    return (y % side * side + x % side) * map_.planes


@native
def get(map_, scratch, constants, start, plane):  # type: ignore[no-untyped-def]
    """Loads a value; `plane` counts from the start of the stored pixel."""
    if map_.terms == 0:
        return scratch[start + plane]
    value = _bfloat_at(scratch, 2 * start + plane)
    if map_.terms == 2:
        value += _bfloat_at(scratch, 2 * start + map_.pixel_floats + plane)
    return value + constants[map_.zero_point + plane % map_.planes]


@native
def put(map_, scratch, constants, start, plane, value):  # type: ignore[no-untyped-def]
    """Stores a value where `get` finds it."""
    if map_.terms == 0:
        scratch[start + plane] = value
        return
    left = value - constants[map_.zero_point + plane % map_.planes]
    stored = _put_bfloat(scratch, 2 * start + plane, left)
    if map_.terms == 2:
        _put_bfloat(scratch, 2 * start + map_.pixel_floats + plane, left - stored)


def _emit_zero(
    v: Emitter, scratch: ir.Value, constants: ir.Value, map_: ir.Value, place: ir.Value
) -> None:
    """Zeroes a pixel whose values, bf16 terms of the map, begin at `place`."""
    planes, terms, side, zero_point = (
        v.field(map_, name, MAP) for name in ("planes", "terms", "space_to_depth", "zero_point")
    )
    lo = v.mul(v.mul(side, side), planes)
    for count in v.cases(terms, [count for count in TERMS if count]):
        with v.loop(planes, LANES) as plane:
            zero = v.minus(v.splat(0.0), v.load_constant(constants, v.add(zero_point, plane)))
            v.store_terms(zero, scratch, v.add(place, plane), count, lo)


_zero = vector_kernel(_emit_zero)


@native
def clear(map_, scratch, constants, y, first, end):  # type: ignore[no-untyped-def]
    """Zeroes single pixels from column `first` to `end` of a row."""
    if map_.space_to_depth == 1 and map_.terms == 0:
        start = pixel_start(map_, y, first)
        for i in range((end - first) * map_.pixel_floats):
            scratch[start + i] = np.float32(0)
        return
    for x in range(first, end):
        start, plane = pixel_start(map_, y, x), pixel_plane(map_, y, x)
        if map_.terms:
            _zero(scratch, constants, map_, 2 * start + plane)
            continue
        for p in range(map_.planes):
            scratch[start + plane + p] = np.float32(0)


@native
def clear_outside(map_, scratch, constants, top, bottom, left, right):  # type: ignore[no-untyped-def]
    """Zeroes the pixels of a box of a map outside the value's size."""
    for y in range(top, bottom):
        if y < 0 or y >= map_.rows:
            clear(map_, scratch, constants, y, left, right)
        else:
            clear(map_, scratch, constants, y, left, min(right, 0))
            clear(map_, scratch, constants, y, max(left, map_.columns), right)
