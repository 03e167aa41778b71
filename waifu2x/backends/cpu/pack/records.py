"""Defines the records that compiled code reads: the maps of a strip in memory, and its tasks.

A strip of the picture goes through all steps of a phase, a few rows at a time. Each map keeps its
latest rows in a ring buffer: row y is in slot y & mask, and the ring holds the rows that its
readers still need when the next ones are written (`schedule` finds their number). So memory grows
with the width of a strip but not with its height, and most of it stays in the caches.

Rows and columns are counted from each map's own pixel (0, 0). Steps compute whole cells of 6x6
pixels at multiples of 6 there, not in the strip: every pixel is computed from the same numbers in
the same order wherever strips are cut, so the output has the same bits for every tile size and
thread count.

A map is interleaved: the planes of a pixel, padded to whole vectors, are contiguous, then come the
other pixels of the row. A map stored by space-to-depth has the planes of a block of pixels one
after another, [dy][dx][plane]: its stored rows and columns are those of the blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.expressions import ACTIVATIONS, ADD, JOINS, LEAKY

GREY, YUV, RGB = range(3)
"""The kinds of planes of a film frame."""

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
"""The kinds of task: nine of convolutions, planewise steps, three of attention, depthwise
convolutions, norms, rearranged pixels of kept maps, and, from READ on, transfers between maps and
memory outside the strip: the picture's pixels, kept maps, sums of means, the result's pixels."""

BY_VALUES, BY_PLANES, BY_FLOATS, BY_RESIZING, BY_MAXIMA, BY_SIZES = range(6)
"""Methods of reading the source of a planewise step, a mean or the result's pixels: by single
values, which suits all, by vectors of planes, by evenly spaced floats, by bicubic interpolation, by
maxima, or by bilinear interpolation to the size of another map."""
JOINED = tuple(JOINS.values())
"""The joins of planewise steps and depthwise convolutions, by number; the first is the sum, which
convolutions compute themselves."""
assert JOINED[0] == ADD
FUNCTIONS = tuple(ACTIVATIONS.values())
"""The functions that planewise tasks apply, by number; the first stands for none, since
convolutions apply it themselves."""
assert FUNCTIONS[0] == LEAKY

CROSS_COLUMNS = 24
"""The pixels of a row, from a multiple of it on, whose products are summed before they become
integers: no strip divides them."""
CROSS_BITS = (20, 50)
"""Sums of products are two integers each: values times two to the power of the first, rounded, and
the remainder times two to the power of the second: a plane may be nearly zero, and is divided by
its norm. Values are those of CROSS_COLUMNS pixels, at most CROSS_LIMIT in magnitude."""
CROSS_LIMIT = 2.0**22

LINE_BYTES = 64
"""The size of a cache line, and of the widest vector: a load across two lines costs two."""
LINE_FLOATS = LINE_BYTES // 4
SUM_BITS = (0, 30)
"""The same for means of values and of squares, whose integers 32 bits hold."""
SUM_LIMIT = 2.0**30

MOST_TAPS = 18
"""The side of the largest kernel, padded to a multiple of three: the places of a task have room for
this number of rows more than its results."""
MOST_DEPTH_TO_SPACE = 4
"""The largest side of a depth-to-space whose rows fit among the places of a task."""
SOURCE_ROWS, TARGET_ROWS = 0, CELL + MOST_TAPS
RESIDUAL_ROWS = TARGET_ROWS + CELL * MOST_DEPTH_TO_SPACE
PENDING_PLACES = 8
PLACES = RESIDUAL_ROWS + CELL * MOST_DEPTH_TO_SPACE + PENDING_PLACES
"""The indices of the offsets of rows among the places of a task; the number of those that describe
a pending block on tiles, the last ones; and the number of all. Scratch memory begins behind them,
on a cache line."""
assert 8 * PLACES % LINE_BYTES == 0


def aligned(floats: int, *, zeros: bool = False) -> NDArray[np.float32]:
    """Allocates `floats` floats on a cache line, uninitialised or zeros."""
    make = np.zeros if zeros else np.empty
    block = make(floats + LINE_BYTES // 4, np.float32)
    return block[-block.ctypes.data % LINE_BYTES // 4 :][:floats]


def addresses(array: NDArray[Any], axes: int) -> NDArray[np.int64]:
    """Returns the addresses of an array's parts at all indices of its first `axes` axes, whose
    strides are constant."""
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
        "column",  # the first that it holds, in stored pixels
        "pixel_floats",  # size of a stored pixel
        "planes",  # of a single pixel, with padding
        "space_to_depth",  # side of the block that is stored as one pixel
        "terms",  # bf16 terms of its values; 0: floats
        "zero_point",  # offset among the constants of the zero point of bf16 values
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
            "kernel",  # the address of its compiled code
            "rows",  # that are computed at a time
            "next_row",  # the first not computed yet, then the row after the last one
            "end_row",
            "column",  # the first
            "columns",
            # Numbers of maps, and the task's places in them. Offsets in maps with terms count bf16
            # values, in other maps floats.
            "source",
            "source_offset",  # of the view, in stored pixels of the source for convolutions
            "source_plane",  # offset of the first plane in a pixel; in floats for convolutions
            "source_terms",  # terms that are read
            "source_lo",  # values from a first term to its second
            "source_zero",  # offset of the zero point among the constants
            "target",
            "target_plane",
            "target_pixel",  # values between results of neighbouring pixels of even and odd column,
            "target_pair",  # between those two columns apart,
            "target_block",  # and between the pixels of a block of depth-to-space
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
            "depth",  # planes that are read of each stored pixel, with padding
            "planes",  # of the sums, with padding; of planewise steps and means: of the result
            "group_planes",  # of one pixel after depth-to-space: planes = its block's area * these
            "taps",  # rows of the kernel,
            "across",  # and on tiles its columns, each a step of the product
            "k_blocks",  # on tiles: products for each of those columns,
            "k_step",  # and floats between their inputs
            "weight",  # offset of the first weight
            "bias",  # offsets among the constants; of attention, -1 for none
            "slopes",  # also of planewise steps: the parameter of the function, for each sum
            "depth_to_space",
            "cells",  # Winograd: cells at a time
            "span",  # 1x1 in integers: pixels at a time
            "inputs",  # Winograd: offset of V in the scratch memory
            "staging",  # in integers: offset of inputs that are not quantized yet
            "products",  # offset of M (Winograd), or of unfinished sums
            # Planewise steps.
            "method",  # one of those above
            "space_to_depth",
            "enlarge",
            "plane_step",  # plane of the source for plane p of row y and column x:
            "row_step",  # p * plane_step + y % depth_to_space * row_step
            "column_step",  # + x % depth_to_space * column_step
            "padding",  # planes behind theirs that they zero
            "activation",  # the number of the function that is applied first
            "vector",  # offset in the vectors of the factors of planes; -1 for none
            "shifts",  # offset in the vectors of the shifts added then; -1 for none
            "join",  # the number of the join with the residual
            "up",  # of bicubic interpolation,
            "down",
            "cubic",  # offset of its taps among the constants
            "pool",  # of maxima: side of the kernel,
            "pool_step",  # and stride
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
            # Rearranged pixels.
            "parts",  # in each direction
            "inverse",
            # Memory outside the strip.
            "memory",  # address of a map that is kept whole, or offset in the sums
            "memory_floats",  # of one row of it
            "memory_rows",  # in pixels of memory
            "memory_columns",
            "squared",  # 1 for the mean of squares
            "rest",  # distance from a sum's first integer to its second
            "as_integers",  # 1 for a map that is kept as 16-bit integers
            "ticks",  # time spent, in units of vector.ticks
        ),
        ("factor", np.float64),  # of attention: of logits, for powers of two
    ],
    align=True,
)

PIXEL_CODES = {np.dtype(np.uint8): 0, np.dtype(np.uint16): 1, np.dtype(np.float32): 2}
"""The numbers of the dtypes of pixels in compiled code."""
BORDER_CODES = {"replicate": 0, "reflect": 1, "zero": 2}

PICTURE = np.dtype(
    _integers(
        "pixels",  # address of the first one
        "code",  # their dtype
        "rows",
        "columns",
        "planes",
        "padding",  # pixels on each side
        "border",  # the rule by which they are filled
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
"""The integers of a slot of the work queue that threads share: the number of strips taken, and of
those done, each on its own cache line; whether to stop; the number of strips; the addresses of the
strips and of scratch memory; the floats of scratch memory of each thread; the arrays' addresses."""
SLOT = 24
"""The number of integers of a slot."""
SENT, ENDED = 0, 8
"""The integers of the signal for which threads of a work queue sleep: the number of times it was
sent, and whether threads must end."""
SIGNAL = 16
"""The number of integers of a signal."""
