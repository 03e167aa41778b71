"""3x3 convolution by Winograd's F(6x6, 3x3) in 16-bit integers.

The order of work and the transforms are those of `winograd`, block by block. Transformed inputs,
floats at first, become integers of at most MOST_INPUT by one scale for each cell and part, which is
64 planes; weights have one for each frequency and output plane, as fine as still lets no part's sum
of products leave 32 bits. So these sums are exact, the same in any order on any instruction set.
They are added as floats.

    V[f][cell][in]  int16, of a group of cells; FLAT, [cell][in], in floats
    U[block]        float32 scales, vector by vector of planes: (vectors, 64, LANES),
                    int16 (64, in / 2, planes of the block, 2); FLAT (in, planes) in floats
    M[f][cell][planes of the block]  float32 = sum over parts of V[f] U[block][f] * cell's scale
    result = transform of M * scales, plus bias, leaky ReLU

FLAT is the one frequency that a flat area has, where it is a thousand times as large as any other
could be: in floats it costs a hundredth of the time, flat areas are exact, and the scales of all
others follow from edges. It adds the same to every result of a cell.

What a cell becomes depends on its own inputs alone, so any tile gives the same bits; and float
operations are the same ones in the same order for any number of lanes.

Inputs become integers two vectors at a time, and pairs are of one plane of each: neither takes a
permutation. The order of weights follows.

Bound: products of pairs. One instruction for 2 * LANES multiply-adds where there is VNNI, twice
FMA's rate; without it two, 1.6 times FMA's rate on Zen 3 and Zen 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.accumulate import accumulate_pairs
from waifu2x.backends.cpu.kernels.memory import block_at, locate_results, locate_source, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.kernels.winograd import (
    SIDE,
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
"""The smallest scale: of cells that are zero."""


def largest(v: Emitter, source: ir.Value, start: ir.Value, count: ir.Value) -> ir.Value:
    """The largest magnitude in each lane of `count` values; LEAST at least."""
    own = v.opaque(source, start)
    (most,) = v.accumulators([v.splat(LEAST)])
    v.set(most, v.splat(LEAST))
    with v.loop(count, LANES) as plane:
        v.set(most, v.maximum(v.magnitude(v.load(own, plane)), v.get(most)))
    return v.get(most)


def scale_of(v: Emitter, most: ir.Value, largest_integer: int) -> tuple[ir.Value, ir.Value]:
    """What 1 stands for where the largest lane of `most` becomes that integer; the factor that
    makes integers of values."""
    whole = v.most(most)
    return v.times(whole, 1 / largest_integer), v.divided(v.splat(float(largest_integer)), whole)


def blocks(v: Emitter, count: ir.Value) -> Iterator[tuple[ir.Value, int]]:
    """Yields the first of each block of `count` planes that are stored as integers together, and
    how many vectors that is: two, but one for the last where planes are no multiple of that; what
    is emitted meanwhile runs for that one."""
    single = v.remainder(count, v.index(2 * LANES))
    whole = v.minus_offset(count, single)
    with v.loop(whole, 2 * LANES) as plane:
        yield plane, 2
    if INTEGER_BLOCK < 2 * LANES:
        for _ in v.cases(v.at_least(single, 1), (1,)):
            yield whole, 1


def store_integers(
    v: Emitter,
    source: ir.Value,
    place: int | ir.Value,
    step: int,
    vectors: int,
    fineness: ir.Value,
    target: ir.Value,
    to: int | ir.Value,
) -> None:
    """The vectors of a block, `step` floats apart, as integers: in pairs of one of each, or one
    behind the other."""
    values = [v.load(source, v.add(place, n * step)) for n in range(vectors)]
    rounded = [v.integers(value, fineness) for value in values]
    if vectors == 2:
        v.store_pairs(rounded[0], rounded[1], target, to)
    else:
        v.store_shorts(rounded[0], target, to)


def _largest_of(v: Emitter, most: ir.Value, values: list[ir.Value]) -> ir.Value:
    """The largest magnitude in each lane, and `most`, by pairs: none waits for all that came
    before."""
    sizes = [most, *map(v.magnitude, values)]
    while len(sizes) > 1:
        pairs = [v.maximum(*pair) for pair in zip(sizes[::2], sizes[1::2], strict=False)]
        sizes = pairs + sizes[2 * len(pairs) :]
    return sizes[0]


def tiles(v: Emitter, width: ir.Value, height: ir.Value) -> Iterator[tuple[int, int]]:
    """Yields each shape of a register tile, vectors and cells or pixels, whole and half; what is
    emitted meanwhile runs for that one."""
    for tile in v.cases(width, WIDTHS):
        for cells in v.cases(height, (tile_height(tile), tile_height(tile) // 2)):
            yield tile, cells


def sum_products(
    v: Emitter,
    tile: int,
    cells: int,
    scratch: ir.Value,
    inputs: ir.Value,
    depth: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    products: ir.Value,
    scale: ir.Value,
    scale_step: ir.Value,
    ahead: ir.Value | None = None,
) -> None:
    """Emits a register tile of M = V U: (cells, depth) pairs times (depth, tile vectors), part by
    part.

    The scales of its cells lie side by side, those of parts `scale_step` apart.
    """
    to = v.at(scratch, products)
    slots = v.accumulators([v.no_integers()] * (cells * tile))
    (place,) = v.accumulators([scale])
    v.set(place, scale)
    with v.loop(depth, PART_PAIRS) as first:
        for slot in slots:
            v.set(slot, v.no_integers())
        pixels = v.at(scratch, v.add(inputs, first))
        vectors = v.at(weights, v.add(block, v.mul(first, tile * LANES)))
        part = v.smaller(v.add(depth, v.mul(first, -1)), v.index(PART_PAIRS))
        soon = v.at(weights, v.add(ahead, v.mul(first, LANES))) if ahead is not None else None
        accumulate_pairs(v, slots, tile, pixels, depth, vectors, part, soon)
        own = v.at(scratch, v.get(place))
        scales = [v.load(own, m * LANES) for m in range(cells)]
        v.set(place, v.add(v.get(place), scale_step))
        for adds in v.cases(v.at_least(first, 1), (0, 1)):
            for n, slot in enumerate(slots):
                total, unit = v.floats(v.get(slot)), scales[n // tile]
                before = v.load(to, n * LANES) if adds else None
                total = v.fma(total, unit, before) if adds else v.times(total, unit)
                v.store(total, to, n * LANES)


def _emit_input(
    v: Emitter,
    depth: ir.Value,
    pixel: ir.Value,
    places: ir.Value,
    offset: ir.Value,
    scratch: ir.Value,
    staging: ir.Value,
    inputs: ir.Value,
    stride: ir.Value,
    flat: ir.Value,
    scale: ir.Value,
    scale_step: ir.Value,
) -> None:
    """`depth` planes of one cell: 8x8 pixels -> 64 frequencies, `stride` pairs apart, by way of
    `staging`; FLAT in floats, at `flat`. What 1 stands for goes to a vector for each part, the
    first at `scale`, `scale_step` apart."""
    if not VECTOR.integers:
        return
    rows = [v.add(v.integer(places, SOURCE_ROWS + y), offset) for y in range(SIDE)]
    vector, side = FREQUENCIES * LANES, v.opaque_number(SIDE)
    (place_of_scale,) = v.accumulators([scale])
    with v.loop(depth, 2 * PART_PAIRS) as begin:
        count = v.smaller(v.add(depth, v.mul(begin, -1)), v.index(2 * PART_PAIRS))
        (most,) = v.accumulators([v.splat(LEAST)])
        v.set(most, v.splat(LEAST))
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
            v.store(column.pop(FLAT // SIDE), scratch, v.add(flat, plane))
            v.set(most, _largest_of(v, v.get(most), column))
        unit, fineness = scale_of(v, v.get(most), MOST_INPUT)
        v.store(unit, scratch, v.get(place_of_scale))
        v.set(place_of_scale, v.add(v.get(place_of_scale), scale_step))
        for inner, vectors in blocks(v, count):
            source = v.opaque(scratch, v.add(staging, v.mul(inner, FREQUENCIES)))
            target = v.opaque(scratch, v.add(inputs, v.half(v.add(begin, inner))))
            with v.loop(v.index(FREQUENCIES), 4) as first:
                for n in range(4):
                    frequency = v.add(first, n)
                    place, to = v.mul(frequency, LANES), v.mul(frequency, stride)
                    store_integers(v, source, place, vector, vectors, fineness, target, to)


def _emit_product(
    v: Emitter,
    width: ir.Value,
    height: ir.Value,
    scratch: ir.Value,
    inputs: ir.Value,
    depth: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    products: ir.Value,
    scale: ir.Value,
    scale_step: ir.Value,
    ahead: ir.Value,
) -> None:
    """`sum_products` of `height` cells and `width` vectors."""
    if not VECTOR.integers:
        return
    for tile, cells in tiles(v, width, height):
        sum_products(
            *(
                v,
                tile,
                cells,
                scratch,
                inputs,
                depth,
                weights,
                block,
                products,
                scale,
                scale_step,
                ahead,
            )
        )


def _emit_output(
    v: Emitter,
    task: ir.Value,
    places: ir.Value,
    first: ir.Value,
    target: ir.Value,
    residual: ir.Value,
    scratch: ir.Value,
    products: ir.Value,
    stride: ir.Value,
    weights: ir.Value,
    scales: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
) -> None:
    """`emit_output` of sums of products whose factors are at `scales`."""
    if not VECTOR.integers:
        return
    factors = v.opaque(weights, scales)
    emit_output(
        *(v, task, places, first, target, residual, scratch, products, stride, constants, plane),
        factors=factors,
    )


_input_cell = vector_kernel(_emit_input)
integer_product = vector_kernel(_emit_product)
_output_cell = vector_kernel(_emit_output)


@native
def convolve_integers(task, maps, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
    """The next rows of a 3x3 convolution: one row of cells."""
    source = record(maps, task.source)
    locate_source(task, source, places, CELL + 2)
    locate_results(task, maps, places)
    pairs, group, pixel = task.depth // 2, task.cells, source.pixel_floats
    stride = group * pairs + LANES
    cells = task.columns // CELL
    flat = task.inputs + FREQUENCIES * stride
    scales, scale_step = task.staging + FREQUENCIES * 2 * PART_PAIRS, group * LANES
    for index in range(-(-cells // group)):
        first = index * group
        count = min(group, cells - first)
        for cell in range(count):
            _input_cell(
                task.depth,
                pixel,
                places,
                (first + cell) * CELL * pixel,
                scratch,
                task.staging,
                task.inputs + cell * pairs,
                stride,
                flat + cell * task.depth,
                scales + cell * LANES,
                scale_step,
            )
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
                # The last tile may run past `count` into stale cells: theirs are rows of their own.
                for cell in range(0, count, height):
                    m = task.products + frequency * product_stride + cell * block_planes
                    if frequency == FLAT:
                        v = flat + cell * task.depth
                        product(width, scratch, v, task.depth, weights, u, m)
                    else:
                        v = task.inputs + frequency * stride + cell * pairs
                        high = half if count - cell <= half else height
                        scale = scales + cell * LANES
                        integer_product(
                            width, high, scratch, v, pairs, weights, u, m, scale, scale_step, ahead
                        )
                        ahead = ahead + pairs * LANES if ahead < end else block
                u += (task.depth if frequency == FLAT else pairs) * block_planes
            for cell in range(count):
                pair = (first + cell) * (CELL // 2)
                for n in range(0, block_planes, LANES):
                    _output_cell(
                        task,
                        places,
                        dy,
                        pair * task.target_pair + dx * task.target_block + inner + n,
                        pair * task.residual_pair + dx * task.residual_block + inner + n,
                        scratch,
                        task.products + cell * block_planes + n,
                        product_stride,
                        weights,
                        block + FREQUENCIES * n,
                        constants,
                        plane + n,
                    )
            block = u  # the next one begins where this ends
            plane += block_planes
