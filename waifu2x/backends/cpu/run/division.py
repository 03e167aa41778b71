"""Chooses the number of strips of a picture.

Halos, which are computed twice, and padding of register tiles favour few strips; cores that idle
at the end favour many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.shapes import TILE_ROWS, WIDTHS, tile_height
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.phases import Phase
from waifu2x.system.lazy_dataclass import dataclass

_TILES_WIDTH = 256
"""The width in pixels of a strip on tiles, whose rings then fit the L2 cache beside the weights."""
_MOST_DOWN = 64
_LEAST_ROWS = 1024
_LEAST_HALOS = 100
"""Strips of large pictures are at least this number of rows tall, and of times their halo, but not
much taller: so progress is visible, for at most 1 % of the time."""
_UNEVEN = 0.05
"""The estimated idle time at the end, as a fraction of a strip, for each doubling of the number of
cores, which wait for the slowest. Virtual ones may be three times as slow as others."""
_SIDE = 256
"""The side, in pixels of the picture, of the strip by which costs are measured."""
_RING_ROWS = 64
"""The rows of the picture in the strip by which memory is measured."""


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """The figures of a phase's steps that decide its best division."""

    costs: NDArray[np.float64]
    """The fractions of the whole work."""
    halos: NDArray[np.float64]
    """The halo rows, and columns, of a strip, on both sides together, in pixels of the picture."""
    scales: NDArray[np.float64]
    """The pixels of results for each pixel of the picture, in each direction."""
    unit: float
    """The pixels to which rows are padded: those of a register tile."""
    finest: float
    """The scale at which most of the work is done."""
    most: float
    """The largest width of a strip at that scale, in pixels. Wide strips have smaller halos; their
    rings, too large for an L2 cache, should fit a core's share of the L3 cache."""


def layer_costs(
    packed: PackedProgram, phase: Phase, scratch_floats: Callable[[Mapping[int, Box]], int]
) -> LayerCosts:
    """Returns the figures of a phase, from a strip of 256 x 256 pixels.

    `scratch_floats` returns the scratch memory of a strip that makes given boxes.
    """
    program, costs = packed.program, packed.costs
    roots = {}
    for value in phase.roots(program):
        edge = round(_SIDE * program.values[value].resolution)
        roots[value] = Box(0, 0, edge, edge)
    work = geometry.work(program, phase.steps, roots, packed.unit)
    spent: dict[float, float] = {}
    found = []
    for number, box in work.steps.items():
        step = program.steps[number]
        assert isinstance(step, MapStep)
        resolution = float(program.values[step.target.value].resolution)
        if isinstance(step, Conv):
            resolution /= step.depth_to_space
        spent[resolution] = spent.get(resolution, 0) + costs[number]
        found.append((costs[number], box.height / resolution - _SIDE, resolution))
    each, halos, scales = np.array(found or [(1.0, 0.0, 1.0)]).T
    finest = max(spent, key=lambda resolution: spent[resolution], default=1.0)
    unit, most = float(TILE_ROWS), float(_TILES_WIDTH)
    if not packed.on_tiles:
        unit = packed.unit[1] * tile_height(WIDTHS[0])
        unit /= 2 if packed.in_integers else 1
        # Rings are as high after some rows as after many, and each row of each task takes time.
        low = {
            value: Box(0, 0, -(-box.height * _RING_ROWS // _SIDE), box.width)
            for value, box in roots.items()
        }
        most = isa.l3_bytes() * _SIDE * finest / (4 * scratch_floats(low))
    return LayerCosts(each / max(each.sum(), 1.0), halos, scales, unit, finest, most)


def best_division(
    layers: LayerCosts, height: float, width: float, pictures: int, cores: int
) -> tuple[int, int]:
    """Returns the best number of strips, down and across, for each of `pictures` pictures."""
    least = max(1, round(width * layers.finest / layers.most))
    across = np.arange(least, 4 * least + 1)
    tall = max(_LEAST_ROWS, _LEAST_HALOS * float(layers.costs @ layers.halos))
    fewest = min(_MOST_DOWN, math.ceil(height / tall))
    most = max(fewest, min(_MOST_DOWN, int(height * layers.finest) // 8))
    down = np.arange(fewest, most + 1)
    # Rows and columns of all strips with halos, for each layer, in pixels of the picture.
    halos, scales = layers.halos[:, np.newaxis], layers.scales[:, np.newaxis]
    rows = height + halos * down
    units = np.ceil((width / across + halos) * scales / layers.unit)
    columns = units * layers.unit * across / scales
    computed = np.einsum("l,ld,la->da", layers.costs, rows, columns) / (height * width)
    count = pictures * down[:, np.newaxis] * across
    rounds = -(-count // cores)
    waste = rounds * cores / count * (1 + _UNEVEN * math.log2(cores) / rounds)
    best = np.unravel_index(np.argmin(computed * waste), computed.shape)
    return int(down[best[0]]), int(across[best[1]])
