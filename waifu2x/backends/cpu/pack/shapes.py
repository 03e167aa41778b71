"""Shapes of what the registers hold; the order of the packed weights follows from them.

A register tile is `height` pixels (or Winograd cells) times `width` vectors of output planes, held
in registers while the sum over input planes runs. Per step it loads `width` vectors of weights and
`height` scalars, for height * width multiply-adds. AMX tiles have the size of the hardware.
"""

from __future__ import annotations

from waifu2x.backends.cpu.compile.isa import VECTOR

LANES = VECTOR.lanes

WIDTHS = (4, 2, 1) if VECTOR.registers >= 32 else (2, 1)
"""Widths of register tiles in vectors, widest first."""
ROW_BLOCK = 12
"""Every tile height divides this: rows of pixels or cells are padded to it instead of checked."""

PEAK_DEPTH = 64
"""Input planes of the loops that measure what the arithmetic units reach."""

FREQUENCIES = 64
"""Winograd: frequencies of each cell of 6x6 results."""
CHUNK = 64
"""Winograd in fp32: output planes whose products are all there before the first becomes results."""
FLAT = 27
"""Winograd: the frequency at the points 1 and 1, the only one that a flat area has."""
INTEGER_BLOCK = 16
"""Winograd in integers: what input planes are a multiple of; half as many pairs fill a vector of
eight lanes."""
PART_PAIRS = 32
"""Winograd in integers: pairs of input planes, the sums of whose products are exact in 32 bits; the
sums of such parts are added as floats."""
MOST_INPUT = (1 << 14) - 1
"""Winograd in integers: the largest transformed input of a cell."""

MOST_SHORT = (1 << 15) - 1
"""The largest integer of a map that is kept."""

TERMS = (0, 1, 2) if VECTOR.tiles else (0,)
"""In how many bf16 terms maps may be stored; 0 stands for floats."""
BLOCK = 32
"""AMX: input planes of a step, and output planes and pixels of a block."""
CONFIG_FLOATS = 16
"""AMX: the tile configuration stands before the packed weights: 64 bytes."""
TILE_ROWS = 16
"""AMX: rows of a tile, of 64 bytes each."""
TILE_FLOATS = 256
SUM_FLOATS = BLOCK * BLOCK
"""AMX: sums of a block that are not results yet."""
COLUMNS = 16
"""AMX: floats in a row of sums."""


def tile_height(width: int) -> int:
    """Returns the pixels of a register tile of that width: as many as fit beside the operands."""
    return 6 if width == WIDTHS[0] else 12


def tile_width(vectors: int) -> int:
    """Returns the widest register tile for what is left of the output planes, in vectors."""
    for width in WIDTHS[:-1]:
        if width <= vectors:
            return width
    return WIDTHS[-1]


def block_widths(planes: int) -> list[int]:
    """Returns the output planes (a multiple of LANES) split into tile widths, in vectors."""
    vectors, widths = planes // LANES, []
    while vectors:
        widths.append(tile_width(vectors))
        vectors -= widths[-1]
    return widths
