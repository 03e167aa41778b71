"""Measures the time of each layer of a model on the processor, and the peaks of its units."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import LayerTime, Measurement
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.network import CpuNetwork
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
from waifu2x.lowering.ops.attention import AttentionStep, MixPlanes
from waifu2x.lowering.ops.conv import Conv
from waifu2x.networks.nodes import Weighted
from waifu2x.system.lazy_dataclass import dataclass

_RUNS = 4
"""The number of runs: the first is a warm-up, and the best of the others counts."""
_STEPS = 2
"""The steps of the loop on tiles in each of nine taps."""
_MILLISECONDS = 50
_TILE_PRODUCTS = PEAK_DEPTH * tile_height(WIDTHS[0]) * WIDTHS[0] * LANES
"""The multiply-adds of a register tile on vectors."""


@dataclass(frozen=True)
class _Peaks:
    """The peak multiply-adds a second of each unit; 0 for one that the model does not use."""

    vectors: float
    integers: float
    tiles: float


def vector_peak(cores: int) -> float:
    """Measures the most multiply-adds a second of the vector units of `cores` cores."""
    return _reached("vector_loop", _TILE_PRODUCTS, cores)


def measure(network: CpuNetwork, pixels: NDArray[Any], cores: int) -> Measurement:
    """Measures the time of a picture through a network of one model: the best of three runs."""
    (model,) = network.models
    runs = []
    for _ in range(_RUNS):
        model.ticks.clear()
        start = time.perf_counter()
        network.run(Call(pixels))
        runs.append((time.perf_counter() - start, dict(model.ticks)))
    seconds, ticks = min(runs[1:], key=lambda run: run[0])
    share = seconds / max(1, sum(ticks.values()))
    packed = model.packed
    peaks = _Peaks(
        vector_peak(cores),
        _reached("integer_loop", _TILE_PRODUCTS, cores) if packed.in_integers else 0.0,
        _reached("tile_loop", 9 * _STEPS * BLOCK**3, cores) if packed.on_tiles else 0.0,
    )
    out_pixels = pixels.shape[0] * pixels.shape[1] * model.model.scale**2
    layers = []
    for number, step in enumerate(packed.program.steps):
        if isinstance(step, AttentionStep | MixPlanes):
            work = float(packed.program.model.node_multiply_adds(step.node))
            spent = ticks.pop(number, 0) * share
            layers.append(LayerTime(step.label, spent, work * out_pixels, peaks.vectors))
        elif isinstance(step, Conv):
            name, work, reached = _layer(model, number, step, peaks)
            spent = ticks.pop(number, 0) * share
            done = packed.multiplied(number)
            layers.append(LayerTime(name, spent, work * out_pixels, reached, done))
    rest = LayerTime("pixels", sum(ticks.values()) * share, 0, peaks.vectors)
    return Measurement(seconds, (rest, *layers))


def _layer(model: CpuModel, number: int, step: Conv, peaks: _Peaks) -> tuple[str, float, float]:
    """Returns a convolution's name, its multiply-adds for an output pixel, and the peak of its
    unit."""
    lowered = model.packed.program.model
    node = lowered.nodes[step.node - 1]
    assert isinstance(node, Weighted)
    out_planes, in_planes, *taps = node.weight.shape
    name = f"{in_planes} > {out_planes}"
    if taps[-1:] != [3]:
        name += f" {node.weight.shape[-1]}x{node.weight.shape[-1]}"
    unit, reached = "", peaks.vectors
    if number in model.packed.in_integers:
        unit, reached = " int16", peaks.integers
    elif number in model.packed.on_tiles:
        unit, reached = " bf16", peaks.tiles
    return name + unit, float(lowered.node_multiply_adds(step.node)), reached


def _reached(loop: str, multiply_adds: int, cores: int) -> float:
    """Measures the multiply-adds a second of an inner loop alone, on data in the L1 cache of each
    core; each repeat does `multiply_adds`."""
    function = Compiled("loops", loop, is_told=False)
    task = np.zeros(1, TASK)
    task["taps"], task["across"], task["k_blocks"], task["k_step"] = 3, 3, _STEPS, BLOCK // 2
    task["source_terms"], task["residual"] = 1, -1
    task["group_planes"] = BLOCK

    def run(repeats: int) -> float:
        # Pixels are 32 values apart; the memory begins with three rows of a few steps each.
        places, scratch, weights = np.zeros(PLACES, np.int64), aligned(8192), aligned(16384)
        scratch[:], weights[:] = 0, 0
        weights[:CONFIG_FLOATS] = tile_config()
        own = task.copy()
        start = time.perf_counter()
        function(repeats, own, places, scratch, weights)
        return time.perf_counter() - start

    run(1)
    repeats = max(1, int(100 * _MILLISECONDS / 1000 / run(100)))
    with ThreadPoolExecutor(cores) as pool:
        seconds = [max(pool.map(run, [repeats] * cores)) for _ in range(3)]
    return cores * repeats * multiply_adds / min(seconds)
