"""3x3 convolution by Winograd's F(6x6, 3x3) in 16-bit integers.

The order of work and the transforms are those of `winograd`, block by block. Transformed inputs,
floats at first, are quantized to integers of at most MOST_INPUT, with one scale for each cell and
part of 64 planes; weights have one scale for each frequency and output plane, the finest for which
no part's sum of products can exceed 32 bits. So these sums are exact, the same in any order on any
instruction set. The sums of parts are added as floats.

    V[f][cell][in]  int16, of a group of cells; FLAT, [cell][in], in floats
    U[block]        float32 scales, vector by vector of planes: (vectors, 64, LANES),
                    int16 (64, in / 2, planes of the block, 2); FLAT (in, planes) in floats
    M[f][cell][planes of the block]  float32 = sum over parts of V[f] U[block][f] * cell's scale
    result = transform of M * scales, plus bias, leaky ReLU

FLAT is the only frequency of a flat area, where it is a thousand times as large as others can be.
It stays in floats, which costs a hundredth of the time: flat areas are exact, and edges decide the
scales of all other frequencies. It adds the same to every result of a cell.

The result of a cell depends only on its own inputs, so any tiling gives the same bits; and the
float operations are the same, in the same order, for any number of lanes.

Inputs are quantized two vectors at a time, and a pair has a plane of each vector, so no permutation
is needed. The order of weights follows from that.

Bound: products of pairs. One instruction for 2 * LANES multiply-adds where there is VNNI, twice
FMA's rate; without it two, 1.6 times FMA's rate on Zen 3 and Zen 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import (
    KernelJob,
    block_at,
    locate_results,
    locate_source,
    record,
)
from waifu2x.backends.cpu.kernels.register_tiles import accumulate_pairs
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.kernels.winograd import (
    SIDE,
    Products,
    emit_output,
    input_columns,
    input_row,
    product,
)
from waifu2x.backends.cpu.pack.records import CELL, SOURCE_ROWS
from waifu2x.backends.cpu.pack.shapes import (
    FLAT,
    FREQUENCIES,
    INTEGER_BLOCK,
    LANES,
    MOST_INPUT,
    PART_PAIRS,
    WIDTHS,
    tile_height,
)

_tile_height = native(tile_height)
LEAST = 1e-30
"""The smallest magnitude, for the scale of cells that are zero."""


class Pairs(NamedTuple):
    """The arguments of a register tile of products of pairs of 16-bit integers."""

    width: Any
    """The vectors of planes."""
    height: Any
    """The cells or pixels: those of a whole tile of that width, or half of them."""
    inputs: Any
    """The place of the inputs."""
    depth: Any
    """The number of pairs of each cell."""
    block: Any
    """The place of the weights."""
    scale: Any
    """The place of the cells' vectors of scales, those of the first part side by side."""
    scale_step: Any
    """The stride between parts of the scales."""
    products: Any
    """The place of the sums."""
    ahead: Any
    """The place of the weights to prefetch meanwhile."""


class InputCell(NamedTuple):
    """The places of the transformed inputs of a cell."""

    inputs: Any
    """The place of its integers, by frequency."""
    stride: Any
    """The stride between frequencies, in floats."""
    flat: Any
    """The place of the floats of FLAT."""
    scale: Any
    """The place of its scales, a vector for each part."""
    scale_step: Any
    """The stride between parts of the scales, in floats."""


def largest(v: Emitter, source: ir.Value, start: ir.Value, count: ir.Value) -> ir.Value:
    """Returns the largest magnitude in each lane of `count` values, at least LEAST."""
    own = v.opaque(source, start)
    (most,) = v.accumulators([v.splat(LEAST)])
    with v.loop(count, LANES) as plane:
        v.set(most, v.maximum(v.magnitude(v.load(own, plane)), v.get(most)))
    return v.get(most)


def scale_of(v: Emitter, most: ir.Value, largest_integer: int) -> tuple[ir.Value, ir.Value]:
    """Returns the scale by which the largest lane of `most` becomes `largest_integer`, and the
    factor that quantizes values, its inverse."""
    whole = v.most(most)
    return v.times(whole, 1 / largest_integer), v.divided(v.splat(float(largest_integer)), whole)


def blocks(v: Emitter, count: ir.Value) -> Iterator[tuple[ir.Value, int]]:
    """Emits loops over the blocks of `count` planes that are quantized together; yields the first
    plane of a block and its vectors: two, or one for the last if the planes require it."""
    single = v.remainder(count, v.index(2 * LANES))
    whole = v.minus_offset(count, single)
    with v.loop(whole, 2 * LANES) as plane:
        yield plane, 2
    if INTEGER_BLOCK < 2 * LANES:
        for _ in v.cases(v.at_least(single, 1), (1,)):
            yield whole, 1


def store_integers(
    v: Emitter,
    values: list[ir.Value],
    fineness: ir.Value,
    target: ir.Value,
    to: int | ir.Value,
) -> None:
    """Quantizes and stores the vectors of a block: two as pairs of a value of each, one as is."""
    rounded = [v.integers(value, fineness) for value in values]
    if len(rounded) == 2:
        v.store_pairs(rounded[0], rounded[1], target, to)
    else:
        v.store_shorts(rounded[0], target, to)


def _largest_of(v: Emitter, most: ir.Value, values: list[ir.Value]) -> ir.Value:
    """Returns the largest magnitude in each lane of `values` and `most`, by a tree of pairs, which
    shortens the chain of dependencies."""
    sizes = [most, *map(v.magnitude, values)]
    while len(sizes) > 1:
        pairs = [v.maximum(*pair) for pair in zip(sizes[::2], sizes[1::2], strict=False)]
        sizes = pairs + sizes[2 * len(pairs) :]
    return sizes[0]


def tiles(v: Emitter, width: ir.Value, height: ir.Value) -> Iterator[tuple[int, int]]:
    """Yields each shape (vectors, cells or pixels) of a register tile, whole and half; code emitted
    in the meantime runs for that shape."""
    for tile in v.cases(width, WIDTHS):
        for cells in v.cases(height, (tile_height(tile), tile_height(tile) // 2)):
            yield tile, cells


def sum_products(
    v: Emitter, job: KernelJob, shape: tuple[int, int], pairs: Pairs, *, fetches: bool
) -> None:
    """Computes a register tile of M = V U of that shape, (cells, depth) pairs times (depth,
    vectors), part by part. `fetches`: it prefetches later weights."""
    tile, cells = shape
    scratch, weights = job.scratch, job.weights
    to = v.at(scratch, pairs.products)
    slots = v.accumulators([v.no_integers()] * (cells * tile))
    (place,) = v.accumulators([pairs.scale])
    with v.loop(pairs.depth, PART_PAIRS) as first:
        for slot in slots:
            v.set(slot, v.no_integers())
        pixels = v.at(scratch, v.add(pairs.inputs, first))
        vectors = v.at(weights, v.add(pairs.block, v.mul(first, tile * LANES)))
        part = v.smaller(v.add(pairs.depth, v.mul(first, -1)), v.index(PART_PAIRS))
        soon = v.at(weights, v.add(pairs.ahead, v.mul(first, LANES))) if fetches else None
        accumulate_pairs(v, slots, tile, pixels, vectors, (pairs.depth, part), soon)
        own = v.at(scratch, v.get(place))
        scales = [v.load(own, m * LANES) for m in range(cells)]
        v.set(place, v.add(v.get(place), pairs.scale_step))
        for adds in v.cases(v.at_least(first, 1), (0, 1)):
            for n, slot in enumerate(slots):
                total, unit = v.floats(v.get(slot)), scales[n // tile]
                before = v.load(to, n * LANES) if adds else None
                total = v.fma(total, unit, before) if adds else v.times(total, unit)
                v.store(total, to, n * LANES)


def _emit_input(
    v: Emitter, job: KernelJob, offset: ir.Value, pixel: ir.Value, cell: InputCell
) -> None:
    """Transforms the planes of one cell of 8x8 pixels, `offset` floats along the located rows, to
    64 frequencies of integers and floats, by way of the task's staging memory."""
    if not VECTOR.integers:
        return
    scratch = job.scratch
    depth, staging = v.field(job.task, "depth"), v.field(job.task, "staging")
    rows = [v.add(v.integer(job.places, SOURCE_ROWS + y), offset) for y in range(SIDE)]
    vector, side = FREQUENCIES * LANES, v.opaque_number(SIDE)
    (place_of_scale,) = v.accumulators([cell.scale])
    with v.loop(depth, 2 * PART_PAIRS) as begin:
        count = v.smaller(v.add(depth, v.mul(begin, -1)), v.index(2 * PART_PAIRS))
        (most,) = v.accumulators([v.splat(LEAST)])
        with v.loop(count, LANES) as inner:
            plane = v.add(begin, inner)
            starts = [v.opaque(scratch, v.add(row, plane)) for row in rows]
            stacked = input_columns(v, starts, pixel, side)
            target = v.opaque(scratch, v.add(staging, v.mul(inner, FREQUENCIES)))
            with v.loop(side) as y:
                place = v.mul(y, SIDE * LANES)
                row = input_row(v, stacked, y)
                for x, value in enumerate(row):
                    v.store(value, target, v.add(place, x * LANES))
                del row[FLAT % SIDE]
                v.set(most, _largest_of(v, v.get(most), row))
            column = [
                v.load(target, frequency * LANES)
                for frequency in range(FLAT % SIDE, FREQUENCIES, SIDE)
            ]
            v.store(column.pop(FLAT // SIDE), scratch, v.add(cell.flat, plane))
            v.set(most, _largest_of(v, v.get(most), column))
        unit, fineness = scale_of(v, v.get(most), MOST_INPUT)
        v.store(unit, scratch, v.get(place_of_scale))
        v.set(place_of_scale, v.add(v.get(place_of_scale), cell.scale_step))
        for inner, vectors in blocks(v, count):
            source = v.opaque(scratch, v.add(staging, v.mul(inner, FREQUENCIES)))
            target = v.opaque(scratch, v.add(cell.inputs, v.half(v.add(begin, inner))))
            with v.loop(v.index(FREQUENCIES), 4) as first:
                for n in range(4):
                    frequency = v.add(first, n)
                    place, to = v.mul(frequency, LANES), v.mul(frequency, cell.stride)
                    values = [v.load(source, v.add(place, m * vector)) for m in range(vectors)]
                    store_integers(v, values, fineness, target, to)


def _emit_product(v: Emitter, job: KernelJob, pairs: Pairs) -> None:
    """Computes `sum_products` for any shape."""
    if not VECTOR.integers:
        return
    for shape in tiles(v, pairs.width, pairs.height):
        sum_products(v, job, shape, pairs, fetches=True)


def _emit_output(v: Emitter, job: KernelJob, products: Products, scales: ir.Value) -> None:
    """Computes `emit_output` for sums of products with the factors at `scales`."""
    if not VECTOR.integers:
        return
    emit_output(v, job, products, v.opaque(job.weights, scales))


_input_cell = vector_kernel(_emit_input)
integer_product = vector_kernel(_emit_product)
_output_cell = vector_kernel(_emit_output)


@native
def convolve_integers(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a 3x3 convolution: one row of cells."""
    task = job.task
    source = record(job.maps, task.source)
    locate_source(job, source, CELL + 2)
    locate_results(job)
    pairs, group, pixel = task.depth // 2, task.cells, source.pixel_floats
    stride = group * pairs + LANES
    cells = task.columns // CELL
    flat = task.inputs + FREQUENCIES * stride
    scales, scale_step = task.staging + FREQUENCIES * 2 * PART_PAIRS, group * LANES
    for index in range(-(-cells // group)):
        first = index * group
        count = min(group, cells - first)
        for cell in range(count):
            v, scale = task.inputs + cell * pairs, scales + cell * LANES
            made = InputCell(v, stride, flat + cell * task.depth, scale, scale_step)
            _input_cell(job, (first + cell) * CELL * pixel, pixel, made)
        block, plane = task.weight, 0
        while plane < task.planes:
            dy, dx, inner, width = block_at(task, plane)
            height = _tile_height(width)
            half = height // 2
            block_planes = width * LANES
            product_stride = group * block_planes + LANES
            u = block + FREQUENCIES * block_planes
            for frequency in range(FREQUENCIES):
                ahead, end = u + pairs * block_planes, u + 2 * pairs * block_planes
                # The last tile may go past `count` into stale cells, which have rows of their own.
                for cell in range(0, count, height):
                    m = task.products + frequency * product_stride + cell * block_planes
                    if frequency == FLAT:
                        product(job, width, flat + cell * task.depth, task.depth, u, m)
                    else:
                        v = task.inputs + frequency * stride + cell * pairs
                        high = half if count - cell <= half else height
                        scale = scales + cell * LANES
                        integer_product(
                            job, Pairs(width, high, v, pairs, u, scale, scale_step, m, ahead)
                        )
                        ahead = ahead + pairs * LANES if ahead < end else block
                u += (task.depth if frequency == FLAT else pairs) * block_planes
            for cell in range(count):
                pair, m = (first + cell) * (CELL // 2), task.products + cell * block_planes
                target = pair * task.target_pair + dx * task.target_block + inner
                added = pair * task.residual_pair + dx * task.residual_block + inner
                for n in range(0, block_planes, LANES):
                    _output_cell(
                        job,
                        Products(m + n, product_stride, plane + n, dy, target + n, added + n),
                        block + FREQUENCIES * n,
                    )
            block = u  # the next block begins where this one ends
            plane += block_planes
