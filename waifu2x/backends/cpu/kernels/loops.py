"""The innermost loops alone, for `peak` to time."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.kernels import FLOATS, INTEGER, entry
from waifu2x.backends.cpu.kernels.tiles import configure, product_block, release
from waifu2x.backends.cpu.kernels.winograd import product
from waifu2x.backends.cpu.peak import DEPTH, STEPS
from waifu2x.backends.cpu.shapes import WIDTHS, tile_height

_WIDTH = WIDTHS[0]
_HEIGHT = tile_height(_WIDTH)


@entry(INTEGER, FLOATS, FLOATS)
def vector_loop(repeats, scratch, weights):  # type: ignore[no-untyped-def]
    """Register tiles on vectors."""
    for _ in range(repeats):
        product(_WIDTH, scratch, 0, DEPTH, weights, 0, DEPTH * _HEIGHT)


@entry(INTEGER, FLOATS, FLOATS)
def tile_loop(repeats, scratch, weights):  # type: ignore[no-untyped-def]
    """Blocks on AMX tiles."""
    configure(weights)
    for _ in range(repeats):
        product_block(
            2,
            scratch,
            0,
            512,
            1024,
            16,
            STEPS,
            weights,
            16,
            weights,
            0,
            4096,
            0,
            0,
            4096,
            0,
            np.float32(1),
            1,
            0,
            16,
        )
    release()
