"""Runs the innermost loops alone, for `measuring` to time, on a job in which weights stand for all
data that the loops do not read."""

from __future__ import annotations

from numba import from_dtype, types

from waifu2x.backends.cpu.kernels import FLOATS, INTEGER, INTEGERS, entry_point
from waifu2x.backends.cpu.kernels.integers import Pairs, integer_product
from waifu2x.backends.cpu.kernels.memory import KernelJob, advance, record
from waifu2x.backends.cpu.kernels.tiles import TileBlock, configure, product_block, release
from waifu2x.backends.cpu.kernels.winograd import product
from waifu2x.backends.cpu.pack.records import PENDING_PLACES, PLACES, TASK
from waifu2x.backends.cpu.pack.shapes import PEAK_DEPTH, WIDTHS, tile_height

_ARGUMENTS = INTEGER, types.CPointer(from_dtype(TASK)), INTEGERS, FLOATS, FLOATS
_WIDTH = WIDTHS[0]
_HEIGHT = tile_height(_WIDTH)


@entry_point(*_ARGUMENTS)
def vector_loop(repeats, tasks, places, scratch, weights):  # type: ignore[no-untyped-def]
    """Runs register tiles on vectors."""
    job = KernelJob(record(tasks, 0), tasks, places, scratch, weights, weights, weights, places)
    for _ in range(repeats):
        product(job, _WIDTH, 0, PEAK_DEPTH, 0, PEAK_DEPTH * _HEIGHT)


@entry_point(*_ARGUMENTS)
def integer_loop(repeats, tasks, places, scratch, weights):  # type: ignore[no-untyped-def]
    """Runs register tiles of 16-bit integers."""
    job = KernelJob(record(tasks, 0), tasks, places, scratch, weights, weights, weights, places)
    products = PEAK_DEPTH * _HEIGHT
    for _ in range(repeats):
        integer_product(job, Pairs(_WIDTH, _HEIGHT, 0, PEAK_DEPTH // 2, 0, 0, 0, products, 0))


@entry_point(*_ARGUMENTS)
def tile_loop(repeats, tasks, places, scratch, weights):  # type: ignore[no-untyped-def]
    """Runs blocks on AMX tiles, with all rows and planes at the same place."""
    configure(weights)
    job = KernelJob(record(tasks, 0), tasks, places, scratch, weights, weights, weights, places)
    pending = advance(places, PLACES - PENDING_PLACES)
    height, width, pixel, offset, plane = 2, 2, 16, 0, 0
    own, sums, steps = 16, 4096, 6144
    for _ in range(repeats):
        block = TileBlock(height, width, offset, pixel, steps, own, plane, sums)
        product_block(job, block, pending)
    release()
