"""Where things lie: records, pixels, and the rows of the rings that `layout` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from waifu2x.backends.cpu.compile.isa import SLEEPS
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.pack.records import RESIDUAL_ROWS, SOURCE_ROWS, TARGET_ROWS
from waifu2x.backends.cpu.pack.shapes import CHUNK, LANES, tile_width

_tile_width = native(tile_width)


class KernelJob(NamedTuple):
    """A task that is to run, and the memory that it works on: what each kernel is handed."""

    task: Any
    """A record of `records.TASK`."""
    maps: Any
    """Records of `records.MAP`, by the numbers of maps."""
    places: Any
    """Integers: where the rows begin that are located; see `records.PLACES`."""
    scratch: Any
    """Floats: the rings of all maps, and memory of the task's own."""
    weights: Any
    constants: Any
    vectors: Any
    sums: Any
    """Integers."""


class Tile(NamedTuple):
    """A register tile of a convolution's results: neighbouring pixels, some vectors of planes."""

    width: Any
    """Vectors of planes."""
    plane: Any
    """The first plane among all of the task."""
    block: Any
    """Where its weights begin."""
    target: Any
    """Where its first pixel goes, in values of the map,"""
    residual: Any
    """and where what is added to that lies."""


@intrinsic  # type: ignore[untyped-decorator]
def record(typing_context: Any, records: types.Type, index: types.Type) -> Any:
    """Returns record `index` of the many that a pointer points to, in place: no copy."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        bytes_ = builder.bitcast(values[0], ir.IntType(8).as_pointer())
        offset = builder.mul(values[1], ir.Constant(ir.IntType(64), records.dtype.size))
        return builder.bitcast(builder.gep(bytes_, [offset]), context.get_value_type(records.dtype))

    return records.dtype(records, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, address: types.Type, kind: types.Type) -> Any:
    """Returns the address of the first of many numbers of a dtype, or records of a type, as a
    pointer."""
    what = kind.instance_type if isinstance(kind, types.TypeRef) else kind.dtype
    signature = types.CPointer(what)(types.int64, kind)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(sig.return_type))

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def advance(typing_context: Any, numbers: types.Type, count: types.Type) -> Any:
    """Returns a pointer moved on by some numbers."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.gep(values[0], [values[1]])

    return numbers(numbers, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def fetch_add(typing_context: Any, numbers: types.Type, index: types.Type) -> Any:
    """Returns one of many integers, which then counts one more: no other thread gets the same."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", builder.gep(values[0], [values[1]]), one, "seq_cst")

    return types.int64(numbers, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_load(typing_context: Any, numbers: types.Type, index: types.Type) -> Any:
    """Returns one of many integers, as other threads have left it by now."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.load_atomic(builder.gep(values[0], [values[1]]), "acquire", 8)

    return types.int64(numbers, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_store(
    typing_context: Any, numbers: types.Type, index: types.Type, value: types.Type
) -> Any:
    """Changes one of many integers, for other threads to see after all that was written before."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        place = builder.gep(values[0], [values[1]])
        builder.store_atomic(values[2], place, "release", 8)
        return context.get_dummy_value()

    return types.void(numbers, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def futex(
    typing_context: Any,
    numbers: types.Type,
    index: types.Type,
    operation: types.Type,
    value: types.Type,
) -> Any:
    """Calls Linux's futex for the lower half of one of many integers: sleeps while that is `value`,
    or wakes `value` sleepers. Does nothing on other systems."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        if SLEEPS:
            numbers, index, operation, value = values
            integer = ir.IntType(64)
            address = builder.ptrtoint(builder.gep(numbers, [index]), integer)
            number, forever = ir.Constant(integer, 202), ir.Constant(integer, 0)
            kind = ir.FunctionType(integer, [integer] * 5)
            code = "={rax},{rax},{rdi},{rsi},{rdx},{r10},~{rcx},~{r11},~{memory}"
            asm = ir.InlineAsm(kind, "syscall", code, side_effect=True)
            builder.call(asm, [number, address, operation, value, forever])
        return context.get_dummy_value()

    return types.void(numbers, types.int64, types.int64, types.int64), codegen


@native
def memory_row(map_, row):  # type: ignore[no-untyped-def]
    """Returns where a row of a map lies, counted as stored: pixels of space-to-depth."""
    return map_.ring + (row & map_.mask) * map_.row_floats


@native
def pixel_row(map_, row, column):  # type: ignore[no-untyped-def]
    """Returns where the pixel of a row and a column, multiples of its space-to-depth, lies: in
    values of the map, floats or bf16."""
    side = map_.space_to_depth
    start = memory_row(map_, row // side) + (column // side - map_.column) * map_.pixel_floats
    if map_.terms:
        start *= 2
    return start + row % side * side * map_.planes


@native
def locate_source(job, source, count):  # type: ignore[no-untyped-def]
    """Writes the offsets of `count` rows that a convolution reads from its next row on."""
    task, places = job.task, job.places
    column = task.column + task.source_offset - source.column
    start = column * source.pixel_floats + task.source_plane
    for row in range(count):
        places[SOURCE_ROWS + row] = start + memory_row(
            source, task.next_row + task.source_offset + row
        )


@native
def locate_results(job):  # type: ignore[no-untyped-def]
    """Writes the offsets of the rows that a convolution makes next, and of what it adds."""
    task, maps, places = job.task, job.maps, job.places
    side = task.depth_to_space
    for row in range(task.rows * side):
        y = task.next_row * side + row
        target = record(maps, task.target)
        places[TARGET_ROWS + row] = task.target_plane + pixel_row(target, y, task.column * side)
        if task.residual >= 0:
            places[RESIDUAL_ROWS + row] = task.residual_plane + pixel_row(
                record(maps, task.residual),
                y + task.residual_offset,
                task.column * side + task.residual_offset,
            )


@native
def block_at(task, plane):  # type: ignore[no-untyped-def]
    """Returns the block of a convolution's planes that begins at `plane`: row and column of its
    pixel among those that depth-to-space makes of one, its first plane in that pixel, its width in
    vectors."""
    group = plane // task.group_planes
    inner = plane - group * task.group_planes
    width = _tile_width((task.group_planes - inner) // LANES)
    return group // task.depth_to_space, group % task.depth_to_space, inner, width


@native
def tile_at(job, row, plane, block):  # type: ignore[no-untyped-def]
    """Returns the tile of the first pixels of a row that is located, of the block of planes that
    begins at `plane`, whose weights begin at `block`."""
    task, places = job.task, job.places
    dy, dx, inner, width = block_at(task, plane)
    made = row * task.depth_to_space + dy
    target = places[TARGET_ROWS + made] + dx * task.target_block + inner
    residual = places[RESIDUAL_ROWS + made] + dx * task.residual_block + inner
    return Tile(width, plane, block, target, residual)


@native
def moved(task, tile, x):  # type: ignore[no-untyped-def]
    """Returns the tile that lies an even number of pixels further along."""
    target = tile.target + x // 2 * task.target_pair
    residual = tile.residual + x // 2 * task.residual_pair
    return Tile(tile.width, tile.plane, tile.block, target, residual)


@native
def chunk_width(task, begin, plane):  # type: ignore[no-untyped-def]
    """Returns the width in vectors of the block that begins at `plane`, if it belongs to the chunk
    that begins at `begin`; else 0."""
    if plane >= task.planes:
        return 0
    inner = plane % task.group_planes
    width = _tile_width((task.group_planes - inner) // LANES)
    return width if plane + width * LANES <= begin + CHUNK else 0
