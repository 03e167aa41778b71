"""Locates records, pixels, and rows of the rings that `records` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from waifu2x.backends.cpu.compile.isa import SLEEPS
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.pack.records import RESIDUAL_ROWS, SOURCE_ROWS, TARGET_ROWS
from waifu2x.backends.cpu.pack.shapes import CHUNK, LANES, tile_width

_tile_width = native(tile_width)


class KernelJob(NamedTuple):
    """The argument of each kernel: a task to run, and its memory."""

    task: Any
    """A record of `records.TASK`."""
    maps: Any
    """Records of `records.MAP`, by the numbers of maps."""
    places: Any
    """Integers: the offsets of located rows; see `records.PLACES`."""
    scratch: Any
    """Floats: the rings of all maps, and the task's own memory."""
    weights: Any
    constants: Any
    vectors: Any
    sums: Any
    """Integers."""


class Tile(NamedTuple):
    """A register tile of a convolution's results: neighbouring pixels by vectors of planes."""

    width: Any
    """The vectors of planes."""
    plane: Any
    """The first plane among all of the task."""
    block: Any
    """The place of its weights."""
    target: Any
    """The place of its first pixel, in values of the target."""
    residual: Any
    """The place of the residual of that pixel, in values of its map."""


@intrinsic  # type: ignore[untyped-decorator]
def record(typing_context: Any, records: types.Type, index: types.Type) -> Any:
    """Returns, without a copy, record `index` of those at a pointer."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        bytes_ = builder.bitcast(values[0], ir.IntType(8).as_pointer())
        offset = builder.mul(values[1], ir.Constant(ir.IntType(64), records.dtype.size))
        return builder.bitcast(builder.gep(bytes_, [offset]), context.get_value_type(records.dtype))

    return records.dtype(records, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, address: types.Type, kind: types.Type) -> Any:
    """Returns an address as a pointer to numbers of a dtype, or records of a type."""
    what = kind.instance_type if isinstance(kind, types.TypeRef) else kind.dtype
    signature = types.CPointer(what)(types.int64, kind)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(sig.return_type))

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def advance(typing_context: Any, numbers: types.Type, count: types.Type) -> Any:
    """Returns a pointer advanced by `count` numbers."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.gep(values[0], [values[1]])

    return numbers(numbers, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def fetch_add(typing_context: Any, numbers: types.Type, index: types.Type) -> Any:
    """Increments the integer at `index` atomically, and returns its previous value."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", builder.gep(values[0], [values[1]]), one, "seq_cst")

    return types.int64(numbers, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_load(typing_context: Any, numbers: types.Type, index: types.Type) -> Any:
    """Loads the integer at `index` atomically."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        return builder.load_atomic(builder.gep(values[0], [values[1]]), "acquire", 8)

    return types.int64(numbers, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def atomic_store(
    typing_context: Any, numbers: types.Type, index: types.Type, value: types.Type
) -> Any:
    """Stores the integer at `index` atomically, after all earlier stores of this thread."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        place = builder.gep(values[0], [values[1]])
        builder.store_atomic(values[2], place, "release", 8)
        return context.get_dummy_value()

    return types.void(numbers, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def call_kernel(
    typing_context: Any,
    kernel: types.Type,
    task: types.Type,
    strip: types.Type,
    places: types.Type,
    scratch: types.Type,
    weights: types.Type,
    constants: types.Type,
) -> Any:
    """Calls the kernel at an address: an entry point of `strip.py`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: Sequence[Any]) -> Any:
        address, *rest = values
        any_ = ir.IntType(8).as_pointer()
        # Numba's functions begin with pointers for a result and an exception: there are none.
        unused = cgutils.alloca_once(builder, any_)
        arguments = [builder.bitcast(value, any_) for value in (unused, unused, *rest)]
        kind = ir.FunctionType(ir.IntType(32), [any_] * len(arguments))
        builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)
        return context.get_dummy_value()

    arguments = task, strip, places, scratch, weights, constants
    return types.void(types.int64, *arguments), codegen


@intrinsic  # type: ignore[untyped-decorator]
def futex(
    typing_context: Any,
    numbers: types.Type,
    index: types.Type,
    operation: types.Type,
    value: types.Type,
) -> Any:
    """Calls Linux's futex for the lower half of the integer at `index`: sleeps while that is
    `value`, or wakes `value` sleepers. Does nothing on other systems."""

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
    """Returns the place of a stored row of a map, whose pixels are blocks of space-to-depth."""
    return map_.ring + (row & map_.mask) * map_.row_floats


@native
def pixel_row(map_, row, column):  # type: ignore[no-untyped-def]
    """Returns the place of the pixel at a row and a column, multiples of its space-to-depth, in
    values of the map: floats or bf16."""
    side = map_.space_to_depth
    start = memory_row(map_, row // side) + (column // side - map_.column) * map_.pixel_floats
    if map_.terms:
        start *= 2
    return start + row % side * side * map_.planes


@native
def locate_source(job, source, count):  # type: ignore[no-untyped-def]
    """Writes the offsets of `count` source rows for a convolution's next rows."""
    task, places = job.task, job.places
    column = task.column + task.source_offset - source.column
    start = column * source.pixel_floats + task.source_plane
    for row in range(count):
        places[SOURCE_ROWS + row] = start + memory_row(
            source, task.next_row + task.source_offset + row
        )


@native
def locate_results(job):  # type: ignore[no-untyped-def]
    """Writes the offsets of a convolution's next target rows, and of their residuals."""
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
    pixel in the block of depth-to-space, its first plane in that pixel, its width in vectors."""
    group = plane // task.group_planes
    inner = plane - group * task.group_planes
    width = _tile_width((task.group_planes - inner) // LANES)
    return group // task.depth_to_space, group % task.depth_to_space, inner, width


@native
def tile_at(job, row, plane, block):  # type: ignore[no-untyped-def]
    """Returns the tile of the first pixels of a located row, for the block of planes that begins at
    `plane`, with weights at `block`."""
    task, places = job.task, job.places
    dy, dx, inner, width = block_at(task, plane)
    made = row * task.depth_to_space + dy
    target = places[TARGET_ROWS + made] + dx * task.target_block + inner
    residual = places[RESIDUAL_ROWS + made] + dx * task.residual_block + inner
    return Tile(width, plane, block, target, residual)


@native
def moved(task, tile, x):  # type: ignore[no-untyped-def]
    """Returns the tile `x` pixels, an even number, further along."""
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
