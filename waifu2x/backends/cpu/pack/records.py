"""The records that compiled code reads: where the maps of a strip lie in memory, and its tasks.

A strip of the picture goes through all steps of a phase together, a few rows at a time. Each map
keeps its last rows in a ring: row y lies in slot y & mask, and the ring holds as many rows as its
readers still need when the next ones are written (`schedule` finds out how many). So memory grows
with the width of a strip and not with its height, and most of it stays in the caches.

Rows and columns are counted from each map's own pixel (0, 0). Steps compute whole cells of 6x6
pixels at multiples of their size there, and not of a strip: every pixel is computed from the same
numbers in the same order wherever the strips are cut, which makes the output the same to the bit
for every tile size and thread count.

A map is interleaved: its planes, padded to whole vectors, are neighbours in memory, then come the
pixels of a row. A map stored by space-to-depth has the planes of a block of pixels one after
another, [dy][dx][plane]: its rows and columns in memory are those of the blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.expressions import ACTIVATIONS, ADD, JOINS, LEAKY

GREY, YUV, RGB = range(3)
"""The kinds of planes in a picture of a film."""

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
    PIXEL_TILES,
    FEW_TILES,
    PLANEWISE,
    ATTENTION,
    PLANE_ATTENTION,
    MIX,
    DEPTHWISE,
    LAYER_NORM,
    REARRANGE,
    READ,
    LOAD,
    KEEP,
    POOL,
    CROSS,
    WRITE,
) = range(22)
"""Kinds of task: nine ways to compute a convolution, planewise steps, three of attention, depthwise
convolutions, norms, pixels of kept maps at other places, and those, from READ on, that go between
maps and the memory outside: the picture's pixels, maps that are kept whole, sums of means, the
pixels of the result."""

BY_VALUES, BY_PLANES, BY_FLOATS, BY_RESIZING, BY_MAXIMA, BY_SIZES = range(6)
"""Methods to read the source of a planewise step, a mean or pixels to write: value by value, which
is right for all, by vectors of planes, by floats that lie evenly spaced, by bicubic interpolation,
by maxima, or by bilinear interpolation to the size of another map."""
JOINED = tuple(JOINS.values())
"""How planewise steps and depthwise convolutions join their residuals, by number; the first is a
sum, as convolutions do themselves."""
assert JOINED[0] == ADD
FUNCTIONS = tuple(ACTIVATIONS.values())
"""The functions that planewise tasks apply, by number; the first is none, since convolutions do
that themselves."""
assert FUNCTIONS[0] == LEAKY

CROSS_COLUMNS = 24
"""Pixels of a row, from a multiple of it on, whose products are added up before they become
integers: no strip divides them."""
CROSS_BITS = (20, 50)
"""Sums of products are two integers each: values times two to the power of the first, rounded, and
what that leaves times two to the power of the second: a plane may have next to nothing in it, and
is divided by its norm. Values are those of CROSS_COLUMNS pixels, at most CROSS_LIMIT in size."""
CROSS_LIMIT = 2.0**22

LINE_BYTES = 64
"""A cache line, and the widest vector: a load that crosses two lines costs two."""
LINE_FLOATS = LINE_BYTES // 4
SUM_BITS = (0, 30)
"""The same of means, of values and of squares, whose integers 32 bits hold."""
SUM_LIMIT = 2.0**30

MOST_TAPS = 18
"""Taps in each direction of the largest kernel, made up to threes: the places of a task have this
many rows more than its results."""
MOST_DEPTH_TO_SPACE = 4
"""The largest block of a depth-to-space whose rows fit among the places of a task."""
SOURCE_ROWS, TARGET_ROWS = 0, CELL + MOST_TAPS
RESIDUAL_ROWS = TARGET_ROWS + CELL * MOST_DEPTH_TO_SPACE
PENDING_PLACES = 8
PLACES = RESIDUAL_ROWS + CELL * MOST_DEPTH_TO_SPACE + PENDING_PLACES
"""Where the offsets of rows stand among the places of a task, how many places there are, and how
many of them, the last ones, describe a block on tiles that is not finished. Scratch memory begins
behind them, on a cache line."""
assert 8 * PLACES % LINE_BYTES == 0


def aligned(floats: int, *, zeros: bool = False) -> NDArray[np.float32]:
    """Returns memory of `floats` floats that begins on a cache line: uninitialised, or zeros."""
    make = np.zeros if zeros else np.empty
    block = make(floats + LINE_BYTES // 4, np.float32)
    return block[-block.ctypes.data % LINE_BYTES // 4 :][:floats]


def addresses(array: NDArray[Any], axes: int) -> NDArray[np.int64]:
    """Returns the addresses of an array's parts, at the indices of its first axes, which lie evenly
    spaced."""
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
        "pixel_floats",  # memory of one pixel as it is stored
        "planes",  # of a single pixel, padding included
        "space_to_depth",  # single pixels a side that are stored as the planes of one
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
            "rows",  # that are computed at a time
            "next_row",  # the first not computed yet, and the row after the last one
            "end_row",
            "column",  # the first
            "columns",
            # The maps: their numbers, and where in them a task reads and writes. Offsets of maps
            # with terms count bf16 values, those of other maps floats.
            "source",
            "source_offset",  # of the view, in pixels of the source's memory for convolutions
            "source_plane",  # offset of the first plane in a pixel; in floats for convolutions
            "source_terms",  # terms that are read
            "source_lo",  # values from a first term to a second
            "source_zero",  # offset of the zero point among the constants
            "target",
            "target_plane",
            "target_pixel",  # values between results of neighbouring pixels of even and odd column,
            "target_pair",  # of two columns on,
            "target_block",  # and between the groups of a depth-to-space
            "target_terms",
            "target_lo",
            "target_zero",
            "residual",  # -1 for none
            "residual_offset",
            "residual_plane",
            "residual_pixel",
            "residual_pair",
            "residual_block",
            "residual_terms",
            "residual_lo",
            "residual_zero",
            # Convolutions.
            "depth",  # planes that are read of each pixel in memory, padding included
            "planes",  # of the sums, padding included; of planewise steps and means: of the result
            "group_planes",  # of one pixel after depth-to-space: planes = its block's area * these
            "taps",  # rows of the kernel,
            "across",  # and on tiles how many pixels, each a step of the product, make up one
            "k_blocks",  # on tiles: products for each of those,
            "k_step",  # and floats from the inputs of one to those of the next
            "weight",  # offset of the first weight
            "bias",  # offsets among the constants; of attention, -1 for none
            "slopes",  # also of planewise steps: the parameter of the function, for each sum
            "depth_to_space",
            "cells",  # Winograd: cells at a time
            "span",  # 1x1 in integers: pixels at a time
            "inputs",  # Winograd: offset of V in the scratch memory
            "staging",  # in integers: of what is not integers yet
            "products",  # offset of M (Winograd), or of sums that are not results yet
            # Planewise steps.
            "method",  # one of those above
            "space_to_depth",
            "enlarge",
            "plane_step",  # which plane of the source belongs to plane p of row y and column x:
            "row_step",  # p * plane_step + y % depth_to_space * row_step
            "column_step",  # + x % depth_to_space * column_step
            "padding",  # planes behind theirs that they make zero
            "activation",  # the number of the function that is applied first
            "vector",  # offset in the vectors of what planes are multiplied by; -1 for none
            "shifts",  # offset in the vectors of what is added to planes then; -1 for none
            "join",  # the number of the join with the residual
            "up",  # of bicubic interpolation,
            "down",
            "cubic",  # whose taps stand at this offset among the constants
            "pool",  # of maxima: pixels a side that one is of,
            "pool_step",  # and from one to the next
            # Attention in windows; source, source_plane are of queries.
            "keys",
            "keys_plane",
            "values",
            "values_plane",
            "heads",  # of `depth` planes each
            "window_rows",  # see networks.windows
            "window_columns",
            "shift_rows",
            "shift_columns",
            "overlap",
            "cell",
            "filled_to",
            "shifts_single",
            "period",  # of attention between planes: rows and columns of cells
            # Pixels at other places.
            "parts",  # in each direction
            "inverse",
            # Memory outside the strip.
            "memory",  # address of a map that is kept whole, or offset in the sums
            "memory_floats",  # of one row of it
            "memory_rows",  # in pixels of memory
            "memory_columns",
            "squared",  # 1 for the mean of squares
            "rest",  # from a sum's first integer to its second
            "as_integers",  # 1 for a map that is kept as 16-bit integers
            "ticks",  # time spent, in units of vector.ticks
        ),
        ("factor", np.float64),  # of attention: to logits by which two is raised
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
        "count",  # how many runs that is,
        "vectors",  # of the vectors of its picture,
        "sums",  # of its sums,
        "pictures",  # of the picture to read and the one to write
    ),
    align=True,
)

TAKEN, DONE, STOP, COUNT, STRIPS, SCRATCH, FLOATS, WEIGHTS, CONSTANTS = 0, 8, *range(16, 23)
"""Integers in a slot of the work queue that threads share: how many strips have been
taken and done, each on its own cache line; whether to stop; how many there are; where the
first of them lies, the scratch memory, and how many floats of it each thread has, the arrays."""
SLOT = 24
"""How many integers a slot takes."""
SENT, ENDED = 0, 8
"""Integers in the signal that threads of a work queue sleep for: how often it has been
sent, and whether they shall end."""
SIGNAL = 16
"""How many integers it takes."""
