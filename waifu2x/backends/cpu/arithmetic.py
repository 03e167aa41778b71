"""The arithmetic of convolutions of maps with many planes, and the layouts that follow from it."""

from __future__ import annotations

from typing import Literal

from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.pack.records import CELL
from waifu2x.backends.cpu.pack.shapes import BLOCK, INTEGER_BLOCK, LANES

Arithmetic = Literal["fp32", "int16", "bf16"]
"""On vectors, in floats or in integers, or on tiles."""
PLANE_UNIT: dict[Arithmetic, int] = {"fp32": LANES, "int16": INTEGER_BLOCK, "bf16": BLOCK}
"""The planes of a map are padded to multiples of it."""
Fineness = Literal[0, 1, 2]
"""How exact bf16 is."""
COARSE: Fineness = 0
"""All maps in one term, but for those of few planes,"""
PLAIN: Fineness = 1
"""two for what makes pixels and for what is added, floats for what no convolution reads,"""
FINE: Fineness = 2
"""and two for one inner convolution more."""
TILE_UNIT = (2, 4)
"""Rows at a time on tiles, the fewest, to leave the L2 cache to the weights; and columns."""
CELL_UNIT = (CELL, CELL)
"""Rows and columns at a time of Winograd cells, and of what is computed beside them."""


def unit_of(arithmetic: Arithmetic) -> tuple[int, int]:
    """Returns the rows and columns that convolutions compute whole multiples of."""
    return TILE_UNIT if arithmetic == "bf16" else CELL_UNIT


def degrees(arithmetic: Arithmetic) -> tuple[Fineness, ...]:
    """Returns the degrees of exactness that there are of it, fastest first."""
    return (COARSE, PLAIN, FINE) if arithmetic == "bf16" else (PLAIN,)


def arithmetics() -> list[Arithmetic]:
    """Returns what this processor computes in, fastest first."""
    found: list[Arithmetic] = ["fp32"]
    if isa.VECTOR.integers:
        found.insert(0, "int16")
    if isa.VECTOR.tiles:
        found.insert(0, "bf16")
    return found
