"""Defines the shapes of register tiles, on which the order of the packed weights depends.

A register tile is `height` pixels (or Winograd cells) times `width` vectors of output planes, held
in registers while the sum over input planes runs. Each step loads `width` vectors of weights and
`height` scalars, for height * width multiply-adds. AMX tiles have the hardware's size.
"""

from __future__ import annotations

from waifu2x.backends.cpu.compile.isa import VECTOR

LANES = VECTOR.lanes

WIDTHS = (4, 2, 1) if VECTOR.registers >= 32 else (2, 1)
"""The widths of register tiles in vectors, widest first."""
ROW_BLOCK = 12
"""A multiple of every tile height, to which rows of pixels or cells are padded."""

PEAK_DEPTH = 64
"""The input planes of the loops that measure the peaks of the arithmetic units."""

FREQUENCIES = 64
"""Winograd: the frequencies of each cell of 6x6 results."""
CHUNK = 64
"""Winograd in fp32: the output planes whose products are computed before any is transformed."""
FLAT = 27
"""Winograd: the frequency at the points 1 and 1, the only nonzero one of a flat area."""
INTEGER_BLOCK = 16
"""Winograd in integers: the unit to which input planes are padded; its pairs fill a vector of eight
lanes."""
PART_PAIRS = 32
"""Winograd in integers: the pairs of input planes of a part, whose sums of products are exact in 32
bits; the sums of parts are added as floats."""
MOST_INPUT = (1 << 14) - 1
"""Winograd in integers: the largest transformed input of a cell."""

MOST_SHORT = (1 << 15) - 1
"""The largest integer of a kept map."""

TERMS = (0, 1, 2) if VECTOR.tiles else (0,)
"""The numbers of bf16 terms in which maps may be stored; 0 stands for floats."""
BLOCK = 32
"""AMX: the input planes of a step, and the output planes and pixels of a block."""
CONFIG_FLOATS = 16
"""AMX: the size of the tile configuration, 64 bytes, which precedes the packed weights."""
TILE_ROWS = 16
"""AMX: the rows of a tile, of 64 bytes each."""
TILE_FLOATS = 256
SUM_FLOATS = BLOCK * BLOCK
"""AMX: the sums of a pending block."""
COLUMNS = 16
"""AMX: the floats of a row of sums."""


def tile_height(width: int) -> int:
    """Returns the height of a register tile of that width: the most that the operands leave."""
    return 6 if width == WIDTHS[0] else 12


def tile_width(vectors: int) -> int:
    """Returns the width of the widest register tile for the remaining output planes, in vectors."""
    for width in WIDTHS[:-1]:
        if width <= vectors:
            return width
    return WIDTHS[-1]


def block_widths(planes: int) -> list[int]:
    """Splits output planes (a multiple of LANES) into tile widths, in vectors."""
    vectors, widths = planes // LANES, []
    while vectors:
        widths.append(tile_width(vectors))
        vectors -= widths[-1]
    return widths
