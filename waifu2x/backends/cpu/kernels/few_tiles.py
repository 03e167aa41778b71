"""The last layer on AMX tiles: 3x3 convolution, bf16, few planes out.

A tile of weights has 16 columns, and this layer has 3 outputs. So the columns are the outputs for
each of the three taps of a kernel row, 9 of 16, and a pixel is read once for all three. The sums P
belong to three neighbouring results, which a second pass adds:

    P[x, kx * outs + o] = sum over ky and in of pixel[y + ky, x] * w[o, in, ky, kx]
    result[x, o] = P[x, o] + P[x + 1, outs + o] + P[x + 2, 2 * outs + o] + bias[o]

Two rows of results are computed together: each of their four rows of pixels is read once. No later
layer averages out a rounding error. Where that matters, pixels have two bf16 terms, the rounded
value and its remainder; both are multiplied by the same tile of weights, which are rounded with
error feedback as in `tiles`. This costs at most 0.2 dB against a last layer in fp32.

    pixels   bf16 (row, column, terms, in_planes), less the map's zero point
    weights  bf16 (3 rows, in_planes / 32, 16 pairs, 16 columns, 2)

Bound: the tile unit, with two terms and 64 planes 24 products of 16 cycles for 16 results; a third
of them share their loads of pixels, from L2, with no other.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import KernelJob, locate_results, locate_source, record
from waifu2x.backends.cpu.kernels.vector import Emitter, vector_kernel
from waifu2x.backends.cpu.pack.records import SOURCE_ROWS, TARGET_ROWS
from waifu2x.backends.cpu.pack.shapes import BLOCK, COLUMNS, TILE_FLOATS


def _emit_sums(
    v: Emitter,
    job: KernelJob,
    height: ir.Value,
    pixel: ir.Value,
    offset: ir.Value,
    sums_0: ir.Value,
    sums_1: ir.Value,
) -> None:
    """Computes P for `height` (1 or 2) tiles of pixels in two rows, as (pixel, COLUMNS) floats
    each.

    Inputs begin `offset` floats along the located rows; pixels are `pixel` floats apart.
    """
    if not VECTOR.tiles:
        return
    task, places, scratch, weights = job.task, job.places, job.scratch, job.weights
    stride, term_floats = v.mul(pixel, 4), v.half(pixel)
    k_blocks, block = v.field(task, "k_blocks"), v.field(task, "weight")
    terms = v.field(task, "source_terms")
    for pixels in v.cases(height, (2, 1)):
        sums = [[y * 2 + m for m in range(pixels)] for y in range(2)]
        for tile in sums[0] + sums[1]:
            v.tile("tilezero", tile)
        for r in range(4):
            row = v.add(v.integer(places, SOURCE_ROWS + r), offset)
            results = [y for y in range(2) if 0 <= r - y < 3]
            with v.loop(k_blocks) as k_block:
                for y in results:
                    place = v.mul(v.add(v.mul(k_blocks, r - y), k_block), TILE_FLOATS)
                    v.tile("tileloadd64", 6 + y, v.at(weights, v.add(block, place)), v.index(64))
                with v.loop(terms) as term:
                    # The second terms follow all first terms.
                    first = v.add(row, v.add(v.mul(k_block, BLOCK // 2), v.mul(term_floats, term)))
                    for m in range(pixels):
                        place = v.add(first, v.mul(pixel, m * COLUMNS))
                        v.tile("tileloadd64", 4 + m, v.at(scratch, place), stride)
                        for y in results:
                            v.tile("tdpbf16ps", sums[y][m], 4 + m, 6 + y)
        for y, target in enumerate((sums_0, sums_1)):
            for m in range(pixels):
                place = v.at(scratch, v.add(target, m * TILE_FLOATS))
                v.tile("tilestored64", sums[y][m], place, v.index(COLUMNS * 4))


def _emit_results(v: Emitter, job: KernelJob, sums: ir.Value, target: ir.Value) -> None:
    """Computes the results of a row of pixels from their P: the first `planes` lanes of each sum.

    The other lanes are stored as well, where the results of the next pixels overwrite them, or in
    the spare pixels at the end of the row.
    """
    task, scratch, constants = job.task, job.scratch, job.constants
    outputs = v.field(task, "planes")
    slopes = v.load(constants, v.field(task, "slopes"))
    bias_vector = v.load(constants, v.field(task, "bias"))
    with v.loop(v.field(task, "columns")) as x:
        left = v.add(sums, v.mul(x, COLUMNS))
        middle = v.add(left, v.add(outputs, COLUMNS))
        right = v.add(middle, v.add(outputs, COLUMNS))
        total = v.plus(v.load(scratch, left), v.load(scratch, middle))
        total = v.plus(v.plus(total, v.load(scratch, right)), bias_vector)
        v.store(v.leaky(total, slopes), scratch, v.add(target, v.mul(x, outputs)))


_sums = vector_kernel(_emit_sums)
_results = vector_kernel(_emit_results)


@native
def convolve_few_tiles(job):  # type: ignore[no-untyped-def]
    """Computes the next two rows of a convolution into a plain map of few planes."""
    task = job.task
    source = record(job.maps, task.source)
    locate_source(job, source, 4)
    locate_results(job)
    pixel = source.pixel_floats
    # Sums are needed two pixels beyond the results; the last tile may go past them.
    tiles = -(-(task.columns + 2) // COLUMNS)
    row_sums = tiles * TILE_FLOATS
    for tile in range(0, tiles, 2):
        sums, offset = task.products + tile * TILE_FLOATS, tile * COLUMNS * pixel
        _sums(job, min(2, tiles - tile), pixel, offset, sums, sums + row_sums)
    for y in range(2):
        _results(job, task.products + y * row_sums, job.places[TARGET_ROWS + y])
