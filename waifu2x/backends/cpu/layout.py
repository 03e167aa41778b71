"""Where the feature maps of a strip lie in memory.

A strip of the picture goes through all layers together, four rows at a time (two on tiles). Each
layer keeps its last eight (four) rows in a ring: row y of the picture lies in slot y & 7 (y & 3),
so that a layer finds the rows that it reads when the layer before it has just written the last of
them. Memory therefore grows with the width of a strip and not with its height.

Rows and columns are counted in the coordinates of the layer's result picture: pixel (y, x) of every
layer is the one centred on pixel (y, x) of the last. Layers compute whole cells of 4x4 pixels, and
the cells of a layer start one pixel before those of the next. Cells are anchored to the picture
and not to the strip: every pixel is computed from the same numbers in the same order wherever the
strips are cut, which makes the output the same to the bit for every tile size and thread count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELL = 4
"""Rows and columns of a Winograd cell; columns of every layer are whole cells."""

SOURCE, FEW_INPUTS, WINOGRAD, FEW_OUTPUTS, TILES, FEW_TILES = range(6)
"""Kinds of layer; SOURCE stands before the first one and reads the picture."""

LINE_BYTES = 64
"""A cache line, and the widest vector: a load that crosses two lines costs two."""


def aligned(floats: int) -> NDArray[np.float32]:
    """Uninitialised memory that begins on a cache line."""
    block = np.empty(floats + LINE_BYTES // 4, np.float32)
    return block[-block.ctypes.data % LINE_BYTES // 4 :][:floats]


LAYER = np.dtype(
    [
        ("kind", np.int64),
        ("in_planes", np.int64),  # floats of one pixel of the layer before, padding included
        ("out_planes", np.int64),  # floats of one pixel of this layer, padding included
        ("weight", np.int64),  # offset of the layer's first weight
        ("bias", np.int64),  # offset of its first bias
        ("centre", np.int64),  # offset among the biases of what bf16 values are stored less of
        ("slope", np.float64),  # of its leaky ReLU; 1 where it has none
        ("bfloats", np.int64),  # bf16 terms that its results are stored in; 0: as floats
        ("pixel_floats", np.int64),  # memory of one pixel, in floats: half of out_planes a term
        ("group", np.int64),  # Winograd: cells per group
        ("inputs", np.int64),  # Winograd: offset of V in the scratch memory
        ("products", np.int64),  # offset of M (Winograd), or of sums that are not results yet
        ("rows", np.int64),  # rows that are computed at a time; the ring holds twice as many
        ("ring", np.int64),  # offset of the ring in the scratch memory
        ("row_floats", np.int64),  # floats from one row of the ring to the next
        ("column", np.int64),  # first column, in the coordinates of the picture
        ("columns", np.int64),  # a multiple of CELL
        ("next_row", np.int64),  # the first row not computed yet
        ("end_row", np.int64),  # the row after the last one
        ("ticks", np.int64),  # time spent on it, in units of vector.ticks
    ],
    align=True,
)

PIXEL_CODES = {np.dtype(np.uint8): 0, np.dtype(np.uint16): 1, np.dtype(np.float32): 2}
"""How the compiled code knows the dtype of pixels."""

WINDOW = np.dtype(
    [
        ("pixels", np.int64),  # address of the first one
        ("code", np.int64),  # their dtype
        ("top", np.int64),  # row of the whole picture that the window's first row is
        ("left", np.int64),
        ("columns", np.int64),  # pixels in a row of the window
        ("planes", np.int64),
        ("height", np.int64),  # rows of the whole picture
        ("width", np.int64),
        ("enlarge", np.int64),  # factor of the nearest enlargement before the first layer
    ],
    align=True,
)
"""Pixels of a picture, or of the part of it that was handed over."""
