"""1x1 convolution in 16-bit integers, also over maps stored by space-to-depth.

Each pixel's inputs are quantized to integers of at most MOST_INPUT, with one scale for each part of
64 planes, and weights with one for each output plane; `integers` has the reasons, and the product.

    V[pixel][in]  int16, of a span of pixels
    U[block]      float32 scales of its planes, int16 (in / 2, planes of the block, 2)
    result = sum over parts of V U[block] * the pixel's scale, * scales, plus bias, leaky ReLU

A span stays in the L2 cache while all weights stream by; the inputs of one tile stay in the L1.

Bound: products of pairs, as in `integers`.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.integers import (
    Pairs,
    blocks,
    largest,
    scale_of,
    store_integers,
    sum_products,
    tiles,
)
from waifu2x.backends.cpu.kernels.memory import (
    KernelJob,
    Tile,
    locate_results,
    locate_source,
    moved,
    record,
    tile_at,
)
from waifu2x.backends.cpu.kernels.register_tiles import Epilogue
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import SOURCE_ROWS
from waifu2x.backends.cpu.pack.shapes import LANES, MOST_INPUT, PART_PAIRS, tile_height

_tile_height = native(tile_height)


def _emit_inputs(
    v: Emitter, job: KernelJob, count: ir.Value, source: ir.Value, pixel: ir.Value
) -> None:
    """Quantizes `count` pixels, `pixel` floats apart, to contiguous integers.

    Their scales are contiguous, too, with those of parts a span apart.
    """
    if not VECTOR.integers:
        return
    scratch = job.scratch
    depth, inputs, scale = (v.field(job.task, name) for name in ("depth", "inputs", "staging"))
    scale_step = v.mul(v.field(job.task, "span"), LANES)
    with v.loop(count) as x:
        start = v.add(source, v.mul(x, pixel))
        target = v.add(inputs, v.mul(x, v.half(depth)))
        (place,) = v.accumulators([v.add(scale, v.mul(x, LANES))])
        with v.loop(depth, 2 * PART_PAIRS) as begin:
            planes = v.smaller(v.add(depth, v.mul(begin, -1)), v.index(2 * PART_PAIRS))
            own = v.opaque(scratch, v.add(start, begin))
            most = largest(v, scratch, v.add(start, begin), planes)
            unit, fineness = scale_of(v, most, MOST_INPUT)
            v.store(unit, scratch, v.get(place))
            v.set(place, v.add(v.get(place), scale_step))
            to = v.opaque(scratch, v.add(target, v.half(begin)))
            for plane, vectors in blocks(v, planes):
                values = [v.load(own, v.add(plane, n * LANES)) for n in range(vectors)]
                store_integers(v, values, fineness, to, v.half(plane))


def _emit_tile(v: Emitter, job: KernelJob, tile: Tile, height: ir.Value, x: ir.Value) -> None:
    """Computes a tile of results: `height` neighbouring pixels from pixel `x` of the span on."""
    if not VECTOR.integers:
        return
    task, scratch = job.task, job.scratch
    products, factors = v.field(task, "products"), v.at(job.weights, tile.block)
    depth = v.half(v.field(task, "depth"))
    inputs = v.add(v.field(task, "inputs"), v.mul(x, depth))
    scale = v.add(v.field(task, "staging"), v.mul(x, LANES))
    scale_step = v.mul(v.field(task, "span"), LANES)
    for width, pixels in tiles(v, tile.width, height):
        epilogue = Epilogue(v, job, tile.plane)
        epilogue.prefetch(pixels, width, tile.target, tile.residual)
        first = v.add(tile.block, width * LANES)
        pairs = Pairs(
            *(tile.width, height, inputs, depth, first, scale, scale_step, products, first)
        )
        sum_products(v, job, (width, pixels), pairs, fetches=False)
        sums = v.at(scratch, products)
        for n in range(width):
            bias, factor = epilogue.bias(n), v.load(factors, n * LANES)
            places = range(n * LANES, pixels * width * LANES, width * LANES)
            results = [v.fma(v.load(sums, place), factor, bias) for place in places]
            epilogue.store(results, n, tile.target, tile.residual)


_inputs = vector_kernel(_emit_inputs)
_tile = vector_kernel(_emit_tile)


@native
def convolve_integer_pointwise(job):  # type: ignore[no-untyped-def]
    """Computes the next rows of a 1x1 convolution."""
    task, places = job.task, job.places
    source = record(job.maps, task.source)
    locate_source(job, source, task.rows)
    locate_results(job)
    pixel, span, pairs = source.pixel_floats, task.span, task.depth // 2
    for index in range(task.rows * -(-task.columns // span)):
        row, first = index % task.rows, index // task.rows * span
        count = min(span, task.columns - first)
        _inputs(job, count, places[SOURCE_ROWS + row] + first * pixel, pixel)
        block, plane = task.weight, 0
        while plane < task.planes:
            tile = tile_at(job, row, plane, block)
            height = _tile_height(tile.width)
            half = height // 2
            # The last tile may go past `count` into stale pixels, and past the columns into the
            # spare pixels of each row.
            for x in range(0, count, height):
                high = half if count - x <= half else height
                _tile(job, moved(task, tile, first + x), high, x)
            block += (1 + pairs) * tile.width * LANES
            plane += tile.width * LANES
