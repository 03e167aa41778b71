"""Strips of pictures through all tasks of a phase, depth first: the entry that does the work."""

from __future__ import annotations

import numpy as np
from numba import from_dtype, types

from waifu2x.backends.cpu.kernels import FLOATS, INTEGER, INTEGERS, entry, native
from waifu2x.backends.cpu.kernels.buffers import add_rows, keep_rows, load_rows
from waifu2x.backends.cpu.kernels.direct import (
    convolve_few_inputs,
    convolve_few_outputs,
    convolve_pointwise,
)
from waifu2x.backends.cpu.kernels.few_tiles import convolve_few_tiles
from waifu2x.backends.cpu.kernels.integer_pointwise import convolve_integer_pointwise
from waifu2x.backends.cpu.kernels.integers import convolve_integers
from waifu2x.backends.cpu.kernels.memory import pointer, record, take
from waifu2x.backends.cpu.kernels.moves import move
from waifu2x.backends.cpu.kernels.pixels import read_rows, write_rows
from waifu2x.backends.cpu.kernels.tiles import configure, convolve_tiles, release
from waifu2x.backends.cpu.kernels.values import clear_outside
from waifu2x.backends.cpu.kernels.vector import ticks
from waifu2x.backends.cpu.kernels.winograd import convolve
from waifu2x.backends.cpu.layout import (
    AVERAGE,
    DONE,
    FEW_INPUTS,
    FEW_OUTPUTS,
    FEW_TILES,
    INTEGER_POINTWISE,
    INTEGER_WINOGRAD,
    KEEP,
    LOAD,
    MAP,
    MOVE,
    PICTURE,
    POINTWISE,
    READ,
    STOP,
    STRIP,
    TAKEN,
    TASK,
    TILES,
    WINOGRAD,
)

_TASK, _MAP, _PICTURE = from_dtype(TASK), from_dtype(MAP), from_dtype(PICTURE)
_STRIPS = types.CPointer(from_dtype(STRIP))


@native
def _run(strip, numbers, places, weights, constants, scratch):  # type: ignore[no-untyped-def]
    """Runs the tasks of a strip, each some rows at a time, in the order of its turns."""
    tasks, maps = pointer(strip.tasks, _TASK), pointer(strip.maps, _MAP)
    pictures, order = pointer(strip.pictures, _PICTURE), pointer(strip.order, np.int64)
    vectors, sums = pointer(strip.vectors, np.float32), pointer(strip.sums, np.int64)
    for turn in range(strip.count):
        if numbers[STOP] != 0:
            return
        task = record(tasks, order[turn])
        start = ticks()
        kind = task.kind
        if kind == FEW_INPUTS:
            convolve_few_inputs(task, maps, places, scratch, weights, constants)
        elif kind == POINTWISE:
            convolve_pointwise(task, maps, places, scratch, weights, constants)
        elif kind == WINOGRAD:
            convolve(task, maps, places, scratch, weights, constants)
        elif kind == INTEGER_WINOGRAD:
            convolve_integers(task, maps, places, scratch, weights, constants)
        elif kind == INTEGER_POINTWISE:
            convolve_integer_pointwise(task, maps, places, scratch, weights, constants)
        elif kind == FEW_OUTPUTS:
            convolve_few_outputs(task, maps, places, scratch, weights, constants)
        elif kind == TILES:
            # The number of taps is a constant in each call, so that LLVM unrolls their loops.
            if task.taps == 3:
                convolve_tiles(task, maps, places, scratch, weights, constants, 3)
            else:
                convolve_tiles(task, maps, places, scratch, weights, constants, 1)
        elif kind == FEW_TILES:
            convolve_few_tiles(task, maps, places, scratch, weights, constants)
        elif kind == MOVE:
            move(task, maps, scratch, constants, vectors)
        elif kind == READ:
            read_rows(task, maps, record(pictures, 0), scratch)
        elif kind == LOAD:
            load_rows(task, maps, scratch, constants)
        elif kind == KEEP:
            keep_rows(task, maps, scratch)
        elif kind == AVERAGE:
            add_rows(task, maps, scratch, constants, sums)
        else:
            write_rows(task, maps, record(pictures, 1), scratch, constants, vectors)
        if kind < READ and record(maps, task.target).is_zero_outside:
            shuffle = task.shuffle if kind != MOVE else 1
            clear_outside(
                record(maps, task.target),
                scratch,
                constants,
                task.next_row * shuffle,
                min(task.next_row + task.rows, task.end_row) * shuffle,
                task.column * shuffle,
                (task.column + task.columns) * shuffle,
            )
        task.next_row += task.rows
        task.ticks += ticks() - start


@entry(_STRIPS, INTEGER, INTEGERS, INTEGERS, FLOATS, FLOATS, FLOATS)
def run_strips(strips, count, numbers, places, weights, constants, scratch):  # type: ignore[no-untyped-def]
    """Runs strips, one after the other, as long as there are some that no thread has taken.

    `numbers` are what threads have in common: how many strips are TAKEN, how many are DONE, and
    whether all shall STOP early. `places` is scratch for PLACES integers, the thread's own.
    """
    configure(weights)
    while numbers[STOP] == 0:
        index = take(numbers, TAKEN)
        if index >= count:
            break
        _run(record(strips, index), numbers, places, weights, constants, scratch)
        take(numbers, DONE)
    release()
