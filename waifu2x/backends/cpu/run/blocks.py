"""Cuts large pictures into blocks for deep networks that keep maps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from waifu2x.backends.cpu.pack.records import CELL
from waifu2x.lowering.ops.attention import AttentionStep
from waifu2x.lowering.passes.segments import is_segmented, receptive_radius
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import Box, round_up
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size

_UNIT = 16 * CELL
"""The unit in pixels of the picture: whole cells in maps down to a sixteenth of its size."""


class Block(NamedTuple):
    """A part of a picture that runs as if it were a picture."""

    box: Box
    """The part whose result counts."""
    halo: Box
    """The part with its halo, on which the result depends."""


def blocks(program: Program, size: Size, map_bytes: int, budget: int) -> list[Block]:
    """Returns the blocks of a picture of that size, whose kept maps take `map_bytes` in total, so
    that those of each block fit the budget if possible.

    Blocks begin at multiples of a unit at which every map has whole cells. A network that is not
    cut keeps only maps that fit, so its pictures are one block.
    """
    height, width = size
    whole = Box(0, 0, height, width)
    if not is_segmented(program):
        return [Block(whole, whole)]
    unit = math.lcm(_UNIT, program.model.multiple, *_window_sides(program))
    halo = round_up(receptive_radius(program), unit)
    down, across = _division(size, map_bytes, budget, unit, halo)
    return list(_divided(size, down, across, unit, halo))


def _window_sides(program: Program) -> Iterator[int]:
    """Yields the numbers of pixels of the picture at whose multiples windows of attention begin,
    except for shifts."""
    for step in program.steps:
        if isinstance(step, AttentionStep):
            resolution = program.values[step.source.value].resolution
            for side in (step.windows.rows, step.windows.columns, step.windows.filled_to):
                yield (side / resolution).numerator


def _division(size: Size, map_bytes: int, budget: int, unit: int, halo: int) -> tuple[int, int]:
    """Returns the fewest blocks, down and across, that fit the budget."""
    height, width = size
    down = across = 1
    while True:
        rows, columns = height / down, width / across
        grown = min(height, rows + 2 * halo) * min(width, columns + 2 * halo)
        if map_bytes * grown <= budget * height * width or max(rows, columns) <= unit:
            return down, across
        if rows >= columns:
            down += 1
        else:
            across += 1


def _divided(size: Size, down: int, across: int, unit: int, halo: int) -> Iterator[Block]:
    height, width = size
    for box in geometry.tiles(size, down, across, unit):
        if box.height > 0 and box.width > 0:
            top, left = max(0, box.top - halo), max(0, box.left - halo)
            bottom, right = min(height, box.bottom + halo), min(width, box.right + halo)
            yield Block(box, Box(top, left, bottom - top, right - left))
