"""Defines the arithmetic of convolutions of maps with many planes, and the layouts for it."""

from __future__ import annotations

from typing import Literal

from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.pack.records import CELL
from waifu2x.backends.cpu.pack.shapes import BLOCK, INTEGER_BLOCK, LANES

Arithmetic = Literal["fp32", "int16", "bf16"]
"""On vectors in floats, on vectors in 16-bit integers, or on AMX tiles in bf16."""
PLANE_UNIT: dict[Arithmetic, int] = {"fp32": LANES, "int16": INTEGER_BLOCK, "bf16": BLOCK}
"""The unit to which the planes of a map are padded."""
Fineness = Literal[0, 1, 2]
"""The degree of exactness of bf16."""
COARSE: Fineness = 0
"""All maps in one term, except those of few planes."""
PLAIN: Fineness = 1
"""Two terms for inputs of the convolutions that make pixels, and for residuals; floats for maps
that no convolution reads."""
FINE: Fineness = 2
"""As PLAIN, with two terms for the input of one inner convolution more."""
TILE_UNIT = (2, 4)
"""Rows and columns computed at a time on tiles; few rows leave the L2 cache to the weights."""
CELL_UNIT = (CELL, CELL)
"""Rows and columns computed at a time in other arithmetics: a Winograd cell."""


def unit_of(arithmetic: Arithmetic) -> tuple[int, int]:
    """Returns the rows and columns to whose multiples convolutions round their results."""
    return TILE_UNIT if arithmetic == "bf16" else CELL_UNIT


def degrees(arithmetic: Arithmetic) -> tuple[Fineness, ...]:
    """Returns the degrees of exactness of an arithmetic, fastest first."""
    return (COARSE, PLAIN, FINE) if arithmetic == "bf16" else (PLAIN,)


def arithmetics() -> list[Arithmetic]:
    """Returns the arithmetics of this processor, fastest first."""
    found: list[Arithmetic] = ["fp32"]
    if isa.VECTOR.integers:
        found.insert(0, "int16")
    if isa.VECTOR.tiles:
        found.insert(0, "bf16")
    return found
