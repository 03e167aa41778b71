"""Where the maps of a strip lie in memory, and the tables that compiled code reads.

A strip of the picture goes through all steps of a phase together, a few rows at a time. Each map
keeps its last rows in a ring: row y lies in slot y & mask, and the ring holds as many rows as its
readers still need when the next ones are written (`schedule` finds out how many). So memory grows
with the width of a strip and not with its height, and most of it stays in the caches.

Rows and columns are counted from each map's own pixel (0, 0). Steps compute whole cells of 6x6
pixels at multiples of their size there, and not of a strip: every pixel is computed from the same
numbers in the same order wherever the strips are cut, which makes the output the same to the bit
for every tile size and thread count.

A map is interleaved: its planes, padded to whole vectors, are neighbours in memory, then come the
pixels of a row. A folded map has the planes of fold x fold pixels one after another,
[dy][dx][plane]: its rows and columns in memory are those of the folded picture.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks import expressions

CELL = 6
"""Rows and columns of a Winograd cell; steps compute whole cells."""

(
    FEW_INPUTS,
    POINTWISE,
    WINOGRAD,
    INTEGER_WINOGRAD,
    INTEGER_POINTWISE,
    FEW_OUTPUTS,
    TILES,
    FEW_TILES,
    MOVE,
    READ,
    LOAD,
    KEEP,
    AVERAGE,
    WRITE,
) = range(14)
"""Kinds of task. Those from READ on go between maps and the memory outside: the picture's pixels,
maps that are kept whole, sums, the pixels of the result."""

BY_VALUES, BY_PLANES, BY_FLOATS, BY_RESIZING, BY_INTEGERS = range(5)
"""How moves, sums and pixels to write are read: value by value, which is right for all, by vectors
of planes, by floats that lie evenly spaced, or by bicubic interpolation; and how maps are kept: as
they are, or as 16-bit integers."""
FUNCTIONS = (expressions.LEAKY, expressions.SIGMOID, expressions.SILU)
"""What tasks compute of sums, by number."""
SILU = FUNCTIONS.index(expressions.SILU)
"""The number of that activation in tasks."""

LINE_BYTES = 64
"""A cache line, and the widest vector: a load that crosses two lines costs two."""
LINE_FLOATS = LINE_BYTES // 4
SUM_BITS = 20
"""Means are sums of integers: values times 2**SUM_BITS, at most SUM_LIMIT in size, rounded."""
SUM_LIMIT = 2.0 ** (30 - SUM_BITS)

MOST_SHUFFLED = 4
"""The largest shuffle whose rows fit among the places of a task."""
SOURCE_ROWS, TARGET_ROWS = 0, CELL + 2
RESIDUAL_ROWS = TARGET_ROWS + CELL * MOST_SHUFFLED
LATE_PLACES = 8
PLACES = RESIDUAL_ROWS + CELL * MOST_SHUFFLED + LATE_PLACES
"""Where the offsets of rows stand among the places of a task, how many places there are, and how
many of them, the last ones, describe a block on tiles that is not finished."""


def aligned(floats: int) -> NDArray[np.float32]:
    """Uninitialised memory that begins on a cache line."""
    block = np.empty(floats + LINE_BYTES // 4, np.float32)
    return block[-block.ctypes.data % LINE_BYTES // 4 :][:floats]


def addresses(array: NDArray[Any], axes: int) -> NDArray[np.int64]:
    """Of the parts of an array at the indices of its first axes, which lie evenly spaced."""
    shape = array.shape[:axes]
    steps = np.arange(math.prod(shape), dtype=np.int64) * array.strides[axes - 1]
    return (array.ctypes.data + steps).reshape(shape)


def _integers(*names: str) -> list[tuple[str, type]]:
    return [(name, np.int64) for name in names]


MAP = np.dtype(
    _integers(
        "ring",  # offset in the scratch memory
        "mask",  # rows of the ring, a power of two, less one
        "row_floats",  # floats from one row of the ring to the next
        "column",  # the first that it holds, in pixels of memory
        "pixel_floats",  # memory of one pixel, with all that is folded into it
        "planes",  # of a single pixel, padding included
        "fold",
        "terms",  # bf16 terms that its values are stored in; 0: as floats
        "zero_point",  # offset among the constants of what bf16 values are stored less of
        "rows",  # of single pixels: the size of the value, beyond which it is zero
        "columns",
        "is_zero_outside",
    ),
    align=True,
)

TASK = np.dtype(
    [
        *_integers(
            "kind",
            "source",  # numbers of maps
            "target",
            "residual",  # -1 for none
            "rows",  # that are computed at a time
            "next_row",  # the first not computed yet, and the row after the last one
            "end_row",
            "column",  # the first
            "columns",
            "depth",  # planes that a product reads of each pixel in memory, padding included
            "planes",  # of its result, padding included
            "group_planes",  # of one pixel after shuffling: planes = shuffle**2 * group_planes
            "weight",  # offset of the first weight
            "bias",  # offsets among the constants: of biases,
            "slopes",  # of slopes
            "source_offset",  # of the view, in pixels of the source's memory for products
            "source_plane",  # offset of the first plane in a pixel
            "target_plane",
            "residual_offset",
            "residual_plane",
            "shuffle",
            "unshuffle",  # of moves
            "enlarge",
            "plane_step",  # of moves that shuffle: which plane of the source belongs to plane p
            "row_step",  # of row y and column x: p * plane_step + y % shuffle * row_step
            "column_step",  # + x % shuffle * column_step
            "padding",  # of moves: planes behind theirs that they make zero
            "activation",
            "factors",  # offset in the vectors; -1 for none
            "gate",  # of moves: 1 for (value + residual) * (sigmoid(value) - 1/2)
            "up",  # of moves that resize; `enlarge` is down then,
            "cubic",  # and the taps stand at this offset among the constants
            "group",  # Winograd: cells at a time, 1x1 in integers: pixels; others: a way from above
            "inputs",  # Winograd: offset of V in the scratch memory
            "stage",  # in integers: of what is not integers yet
            "products",  # offset of M (Winograd), or of sums that are not results yet
            "target_pixel",  # floats between results of neighbouring pixels of even and odd column,
            "target_pair",  # of two columns on,
            "target_block",  # and between the groups of a shuffle
            "residual_pixel",  # the same of what is added; all six count values of their maps
            "residual_pair",
            "residual_block",
            "taps",
            "steps",  # tiles: of 32 planes, for each tap
            "source_terms",  # terms of the source that are read
            "source_rest",
            "source_zero",
            "target_terms",  # as of the maps,
            "target_rest",  # values from a first term to a second,
            "target_zero",  # and where the zero point stands
            "residual_terms",
            "residual_rest",
            "residual_zero",
            "memory",  # address of a map that is kept whole, or offset in the sums
            "memory_floats",  # of one row of it
            "memory_rows",  # in pixels of memory
            "memory_columns",
            "ticks",  # time spent, in units of vector.ticks
        ),
        ("factor", np.float64),
    ],
    align=True,
)

PIXEL_CODES = {np.dtype(np.uint8): 0, np.dtype(np.uint16): 1, np.dtype(np.float32): 2}
"""How the compiled code knows the dtype of pixels."""
BORDER_CODES = {"replicate": 0, "reflect": 1, "zero": 2}

PICTURE = np.dtype(
    _integers(
        "pixels",  # address of the first one
        "code",  # their dtype
        "rows",
        "columns",
        "planes",
        "padding",  # pixels on each side
        "border",  # what they hold
    ),
    align=True,
)

STRIP = np.dtype(
    _integers(
        "tasks",  # addresses: of its tasks,
        "maps",  # of maps,
        "order",  # of the numbers of tasks in the order in which they run,
        "count",  # so many,
        "vectors",  # of the vectors of its picture,
        "sums",  # of sums of its own,
        "pictures",  # of the picture to read and the one to write
    ),
    align=True,
)

TAKEN, DONE, STOP, COUNT, STRIPS, SCRATCH, FLOATS, WEIGHTS, CONSTANTS = 0, 8, *range(16, 23)
"""What stands in a slot of the board that threads have in common, integers: how many strips have
been taken and done, each on a cache line of its own; whether to stop; how many there are; where the
first of them lies, the scratch memory, and how many floats of it each thread has, the arrays."""
SLOT = 24
"""How many integers that takes."""
