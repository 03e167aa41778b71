"""The innermost loops alone, for `peak` to time."""

from __future__ import annotations

from numba import from_dtype, types

from waifu2x.backends.cpu.kernels import FLOATS, INTEGER, INTEGERS, entry_point
from waifu2x.backends.cpu.kernels.integers import integer_product
from waifu2x.backends.cpu.kernels.memory import advance, record
from waifu2x.backends.cpu.kernels.tiles import configure, product_block, release
from waifu2x.backends.cpu.kernels.winograd import product
from waifu2x.backends.cpu.pack.records import PENDING_PLACES, PLACES, TASK
from waifu2x.backends.cpu.pack.shapes import PEAK_DEPTH, WIDTHS, tile_height

_TASKS = types.CPointer(from_dtype(TASK))
_WIDTH = WIDTHS[0]
_HEIGHT = tile_height(_WIDTH)


@entry_point(INTEGER, FLOATS, FLOATS)
def vector_loop(repeats, scratch, weights):  # type: ignore[no-untyped-def]
    """Register tiles on vectors."""
    inputs, block, products = 0, 0, PEAK_DEPTH * _HEIGHT
    for _ in range(repeats):
        product(_WIDTH, scratch, inputs, PEAK_DEPTH, weights, block, products)


@entry_point(INTEGER, FLOATS, FLOATS)
def integer_loop(repeats, scratch, weights):  # type: ignore[no-untyped-def]
    """Register tiles of 16-bit integers."""
    for _ in range(repeats):
        integer_product(
            _WIDTH, _HEIGHT, scratch, 0, PEAK_DEPTH // 2, weights, 0, PEAK_DEPTH * _HEIGHT, 0, 0, 0
        )


@entry_point(INTEGER, _TASKS, INTEGERS, FLOATS, FLOATS)
def tile_loop(repeats, tasks, places, scratch, weights):  # type: ignore[no-untyped-def]
    """Blocks on AMX tiles: all rows and planes at the same place."""
    configure(weights)
    task, pending = record(tasks, 0), advance(places, PLACES - PENDING_PLACES)
    height, width, pixel, offset, plane = 2, 2, 16, 0, 0
    block, constants, stage, steps = 16, weights, 4096, 6144
    for _ in range(repeats):
        product_block(
            height,
            width,
            task,
            pixel,
            steps,
            offset,
            scratch,
            weights,
            block,
            constants,
            plane,
            stage,
            pending,
        )
    release()
