"""How long a model takes on the processor, layer by layer."""

from __future__ import annotations

import time
from typing import Any

from numpy.typing import NDArray

from waifu2x.backends import LayerTime, Measurement
from waifu2x.backends.call import Call
from waifu2x.backends.cpu import peak
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.network import CpuNetwork
from waifu2x.lowering.ops.attention import AttentionStep, MixPlanes
from waifu2x.lowering.ops.conv import Conv
from waifu2x.networks.nodes import Weighted
from waifu2x.system.lazy_dataclass import dataclass

_RUNS = 4
"""The first one warms up, and the best of the others counts."""


@dataclass(frozen=True)
class _Peaks:
    """Multiply-adds a second of each unit; 0 for one that the model does not use."""

    vectors: float
    integers: float
    tiles: float


def measure(network: CpuNetwork, pixels: NDArray[Any], cores: int) -> Measurement:
    """Times one picture through a network of one model: the best of three."""
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
        peak.vector_peak(cores),
        peak.integer_peak(cores) if packed.in_integers else 0.0,
        peak.tile_peak(cores) if packed.on_tiles else 0.0,
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
    """A convolution's name, its multiply-adds for an output pixel, and the peak of its unit."""
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
