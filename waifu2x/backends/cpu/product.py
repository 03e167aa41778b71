"""Register tiles: the shapes of the inner products that the convolutions are made of.

A tile is `height` pixels (or Winograd cells) times `width` vectors of output planes, held in
registers while the sum over input planes runs. Per step it loads `width` vectors of weights and
`height` scalars, for height * width multiply-adds.
"""

from __future__ import annotations

from llvmlite import ir

from waifu2x.backends.cpu.isa import VECTOR
from waifu2x.backends.cpu.vector import Emitter

LANES = VECTOR.lanes

WIDTHS = (4, 2, 1) if VECTOR.registers >= 32 else (2, 1)
"""Widths of tiles in vectors, widest first."""
TILE_HEIGHT = (0, 12, 12, 0, 6) if VECTOR.registers >= 32 else (0, 12, 6)
"""Pixels of a tile by its width: as many as the registers hold beside the operands."""
ROW_BLOCK = 12
"""Every tile height divides this: rows of pixels or cells are padded to it instead of checked."""


def pad_planes(planes: int) -> int:
    """The next multiple of LANES."""
    return -(-planes // LANES) * LANES


def tile_width(vectors: int) -> int:
    """The widest tile for what is left of the output planes, in vectors."""
    for width in WIDTHS:
        if width <= vectors:
            return width
    raise ValueError("no output planes left")


def block_widths(planes: int) -> list[int]:
    """Output planes (a multiple of LANES) split into tile widths, in vectors."""
    vectors, widths = planes // LANES, []
    while vectors:
        widths.append(tile_width(vectors))
        vectors -= widths[-1]
    return widths


def accumulate(
    v: Emitter,
    slots: list[ir.Value],
    width: int,
    pixels: ir.Value,
    pixel_stride: ir.Value,
    weights: ir.Value,
    depth: ir.Value,
    unroll: int,
) -> None:
    """Adds pixels (height, depth) times weights (depth, width vectors) to accumulators.

    Pixels lie `pixel_stride` floats apart; `slots` are the height * width accumulators, row by
    row; `unroll` must divide the depth.
    """
    height = len(slots) // width
    with v.loop(depth, unroll) as first:
        for step in range(unroll):
            k = v.add(first, step)
            row = v.mul(k, width * LANES)
            vectors = [v.load(weights, v.add(row, n * LANES)) for n in range(width)]
            for m in range(height):
                value = v.splat(v.load_float(pixels, v.add(v.mul(pixel_stride, m), k)))
                for n in range(width):
                    slot = slots[m * width + n]
                    v.set(slot, v.fma(value, vectors[n], v.get(slot)))
