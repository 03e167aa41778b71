"""What the arithmetic units reach at best: inner loops alone, on data in the L1 cache."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.pack.records import PLACES, TASK, aligned
from waifu2x.backends.cpu.pack.shapes import (
    BLOCK,
    CONFIG_FLOATS,
    LANES,
    PEAK_DEPTH,
    WIDTHS,
    tile_height,
)
from waifu2x.backends.cpu.pack.weights import tile_config

STEPS = 2
"""Steps of the tile loop, in each of nine taps."""
_MILLISECONDS = 50
_vector_loop = Compiled("loops", "vector_loop", is_told=False)
_integer_loop = Compiled("loops", "integer_loop", is_told=False)
_tile_loop = Compiled("loops", "tile_loop", is_told=False)


def vector_peak(cores: int) -> float:
    """Multiply-adds a second of fp32 vector code on that many threads."""
    return _measure(_vector_loop, PEAK_DEPTH * tile_height(WIDTHS[0]) * WIDTHS[0] * LANES, cores)


def integer_peak(cores: int) -> float:
    """Multiply-adds a second of 16-bit integers on that many threads."""
    return _measure(_integer_loop, PEAK_DEPTH * tile_height(WIDTHS[0]) * WIDTHS[0] * LANES, cores)


def tile_peak(cores: int) -> float:
    """Multiply-adds a second of bf16 tiles on that many threads."""
    task = np.zeros(1, TASK)
    task["taps"], task["across"], task["k_blocks"], task["k_step"] = 3, 3, STEPS, BLOCK // 2
    task["source_terms"], task["residual"] = 1, -1
    task["group_planes"] = BLOCK
    # Pixels lie 32 values apart; three rows of some steps each at the start of the memory.
    places = np.zeros(PLACES, np.int64)
    return _measure(_tile_loop, 9 * STEPS * BLOCK**3, cores, task, places)


def _measure(function: Compiled, multiply_adds: int, cores: int, *arguments: NDArray[Any]) -> float:
    def run(repeats: int) -> float:
        scratch, weights = aligned(8192), aligned(16384)
        scratch[:], weights[:] = 0, 0
        weights[:CONFIG_FLOATS] = tile_config()
        own = [argument.copy() for argument in arguments]
        start = time.perf_counter()
        function(repeats, *own, scratch, weights)
        return time.perf_counter() - start

    run(1)
    repeats = max(1, int(100 * _MILLISECONDS / 1000 / run(100)))
    with ThreadPoolExecutor(cores) as pool:
        seconds = [max(pool.map(run, [repeats] * cores)) for _ in range(3)]
    return cores * repeats * multiply_adds / min(seconds)
