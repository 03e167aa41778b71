"""1x1 convolution in 16-bit integers, also over maps stored by space-to-depth.

Each pixel's inputs become integers of at most MOST_INPUT by one scale for each part of 64 planes,
weights by one for each output plane; `integers` has the reasons, and the product.

    V[pixel][in]  int16, of a span of pixels
    U[block]      float32 scales of its planes, int16 (in / 2, planes of the block, 2)
    result = sum over parts of V U[block] * the pixel's scale, * scales, plus bias, leaky ReLU

A span stays in the L2 cache while all weights stream by; what a tile of it sums up, in the L1.

Bound: products of pairs, as in `integers`.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.epilogue import Epilogue
from waifu2x.backends.cpu.kernels.integers import (
    blocks,
    largest,
    scale_of,
    store_integers,
    sum_products,
    tiles,
)
from waifu2x.backends.cpu.kernels.memory import block_at, locate_results, locate_source, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import RESIDUAL_ROWS, SOURCE_ROWS, TARGET_ROWS, TASK
from waifu2x.backends.cpu.pack.shapes import LANES, MOST_INPUT, PART_PAIRS, tile_height

_tile_height = native(tile_height)


def _emit_inputs(
    v: Emitter,
    depth: ir.Value,
    count: ir.Value,
    pixel: ir.Value,
    source: ir.Value,
    scratch: ir.Value,
    inputs: ir.Value,
    scale: ir.Value,
    scale_step: ir.Value,
) -> None:
    """`count` pixels of `depth` planes, `pixel` floats apart -> integers, one behind the other.

    Their scales lie side by side, those of parts `scale_step` apart.
    """
    if not VECTOR.integers:
        return
    with v.loop(count) as x:
        start = v.add(source, v.mul(x, pixel))
        target = v.add(inputs, v.mul(x, v.half(depth)))
        (place,) = v.accumulators([v.add(scale, v.mul(x, LANES))])
        v.set(place, v.add(scale, v.mul(x, LANES)))
        with v.loop(depth, 2 * PART_PAIRS) as begin:
            planes = v.smaller(v.add(depth, v.mul(begin, -1)), v.index(2 * PART_PAIRS))
            own = v.opaque(scratch, v.add(start, begin))
            most = largest(v, scratch, v.add(start, begin), planes)
            unit, fineness = scale_of(v, most, MOST_INPUT)
            v.store(unit, scratch, v.get(place))
            v.set(place, v.add(v.get(place), scale_step))
            to = v.opaque(scratch, v.add(target, v.half(begin)))
            for plane, vectors in blocks(v, planes):
                store_integers(v, own, plane, LANES, vectors, fineness, to, v.half(plane))


def _emit_tile(
    v: Emitter,
    width: ir.Value,
    height: ir.Value,
    task: ir.Value,
    scratch: ir.Value,
    inputs: ir.Value,
    pairs: ir.Value,
    scale: ir.Value,
    scale_step: ir.Value,
    weights: ir.Value,
    block: ir.Value,
    constants: ir.Value,
    plane: ir.Value,
    target: ir.Value,
    residual: ir.Value,
) -> None:
    """A tile of results: `height` neighbouring pixels, `width` vectors each."""
    if not VECTOR.integers:
        return
    products, factors = v.field(task, TASK, "products"), v.at(weights, block)
    for tile, pixels in tiles(v, width, height):
        epilogue = Epilogue(v, task, scratch, constants, plane)
        epilogue.prefetch(pixels, tile, target, residual)
        first = v.add(block, tile * LANES)
        sum_products(
            *(v, tile, pixels, scratch, inputs, pairs, weights, first, products, scale, scale_step)
        )
        sums = v.at(scratch, products)
        for n in range(tile):
            bias, factor = epilogue.bias(n), v.load(factors, n * LANES)
            places = range(n * LANES, pixels * tile * LANES, tile * LANES)
            results = [v.fma(v.load(sums, place), factor, bias) for place in places]
            epilogue.store(results, n, target, residual)


_inputs = vector_kernel(_emit_inputs)
_tile = vector_kernel(_emit_tile)


@native
def convolve_integer_pointwise(task, maps, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
    """The next rows of a 1x1 convolution."""
    source = record(maps, task.source)
    locate_source(task, source, places, task.rows)
    locate_results(task, maps, places)
    pixel, span, pairs = source.pixel_floats, task.span, task.depth // 2
    for index in range(task.rows * -(-task.columns // span)):
        row, first = index % task.rows, index // task.rows * span
        count = min(span, task.columns - first)
        _inputs(
            task.depth,
            count,
            pixel,
            places[SOURCE_ROWS + row] + first * pixel,
            scratch,
            task.inputs,
            task.staging,
            span * LANES,
        )
        block, plane = task.weight, 0
        while plane < task.planes:
            dy, dx, inner, width = block_at(task, plane)
            height = _tile_height(width)
            half = height // 2
            target = (
                places[TARGET_ROWS + row * task.depth_to_space + dy]
                + dx * task.target_block
                + inner
            )
            residual = (
                places[RESIDUAL_ROWS + row * task.depth_to_space + dy]
                + dx * task.residual_block
                + inner
            )
            # The last tile may run past `count` into stale pixels, and past the columns into spare
            # room at the end of each row.
            for x in range(0, count, height):
                high = half if count - x <= half else height
                _tile(
                    width,
                    high,
                    task,
                    scratch,
                    task.inputs + x * pairs,
                    pairs,
                    task.staging + x * LANES,
                    span * LANES,
                    weights,
                    block,
                    constants,
                    plane,
                    target + (first + x) // 2 * task.target_pair,
                    residual + (first + x) // 2 * task.residual_pair,
                )
            block += (1 + pairs) * width * LANES
            plane += width * LANES
