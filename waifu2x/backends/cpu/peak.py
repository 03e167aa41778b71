"""What the arithmetic units reach at best: inner loops alone, on data in the L1 cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from waifu2x.backends.cpu import tiles
from waifu2x.backends.cpu.compiled import compiled
from waifu2x.backends.cpu.layout import aligned
from waifu2x.backends.cpu.product import LANES, TILE_HEIGHT, WIDTHS
from waifu2x.backends.cpu.tiles import configure, product_block, release
from waifu2x.backends.cpu.winograd import product

_WIDTH = WIDTHS[0]
_HEIGHT = TILE_HEIGHT[_WIDTH]
_DEPTH = 64
_STEPS = 6
_MILLISECONDS = 50


@compiled
def _vectors(repeats, scratch, weights):  # type: ignore[no-untyped-def]
    for _ in range(repeats):
        product(_WIDTH, scratch, 0, _DEPTH, weights, 0, _DEPTH * _HEIGHT)


@compiled
def _tiles(repeats, scratch, weights):  # type: ignore[no-untyped-def]
    configure(weights)
    for _ in range(repeats):
        product_block(
            2,
            scratch,
            0,
            512,
            1024,
            16,
            _STEPS,
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


def vector_peak(cores: int) -> float:
    """Multiply-adds a second of fp32 vector code on that many threads."""
    return _measure(_vectors, _DEPTH * _HEIGHT * _WIDTH * LANES, cores)


def tile_peak(cores: int) -> float:
    """Multiply-adds a second of bf16 tiles on that many threads."""
    return _measure(_tiles, 3 * _STEPS * 32 * tiles.BLOCK * tiles.BLOCK, cores)


def _measure(function: Callable[..., None], multiply_adds: int, cores: int) -> float:
    def run(repeats: int) -> float:
        scratch, weights = aligned(8192), aligned(16384)
        scratch[:], weights[:] = 0, 0
        weights[: tiles.CONFIG_FLOATS] = tiles.config()
        start = time.perf_counter()
        function(repeats, scratch, weights)
        return time.perf_counter() - start

    run(1)
    repeats = max(1, int(100 * _MILLISECONDS / 1000 / run(100)))
    with ThreadPoolExecutor(cores) as pool:
        seconds = [max(pool.map(run, [repeats] * cores)) for _ in range(3)]
    return cores * repeats * multiply_adds / min(seconds)
