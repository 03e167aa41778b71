"""Runs strips of pictures through all tasks of a phase, depth first: the main entry point."""

from __future__ import annotations

import numpy as np
from numba import from_dtype

from waifu2x.backends.cpu.kernels import INTEGER, INTEGERS, entry_point, native
from waifu2x.backends.cpu.kernels.attention import attend_rows
from waifu2x.backends.cpu.kernels.channel_attention import add_products, mix_rows
from waifu2x.backends.cpu.kernels.depthwise import convolve_depthwise
from waifu2x.backends.cpu.kernels.direct import (
    convolve_few_inputs,
    convolve_few_outputs,
    convolve_pointwise,
)
from waifu2x.backends.cpu.kernels.few_tiles import convolve_few_tiles
from waifu2x.backends.cpu.kernels.integer_pointwise import convolve_integer_pointwise
from waifu2x.backends.cpu.kernels.integers import convolve_integers
from waifu2x.backends.cpu.kernels.kept_maps import add_rows, keep_rows, load_rows, rearrange_rows
from waifu2x.backends.cpu.kernels.layer_norm import norm_rows
from waifu2x.backends.cpu.kernels.memory import (
    KernelJob,
    advance,
    atomic_load,
    atomic_store,
    fetch_add,
    futex,
    pointer,
    record,
)
from waifu2x.backends.cpu.kernels.pixels import read_rows, write_rows
from waifu2x.backends.cpu.kernels.plane_attention import attend_planes
from waifu2x.backends.cpu.kernels.planewise import planewise_rows
from waifu2x.backends.cpu.kernels.tiles import configure, convolve_tiles, release
from waifu2x.backends.cpu.kernels.values import clear_outside
from waifu2x.backends.cpu.kernels.vector import pause, ticks
from waifu2x.backends.cpu.kernels.winograd import convolve
from waifu2x.backends.cpu.pack import records

_TASK, _MAP, _PICTURE = (
    from_dtype(records.TASK),
    from_dtype(records.MAP),
    from_dtype(records.PICTURE),
)
_STRIP = from_dtype(records.STRIP)
_WAIT, _WAKE = 128, 129
"""Operations of `futex`, private to the process."""


@native
def _run(strip, numbers, places, weights, constants, scratch):  # type: ignore[no-untyped-def]
    """Runs the tasks of a strip, each a few rows at a time, in the order of its list of runs."""
    tasks, maps = pointer(strip.tasks, _TASK), pointer(strip.maps, _MAP)
    pictures, order = pointer(strip.pictures, _PICTURE), pointer(strip.order, np.int64)
    vectors, sums = pointer(strip.vectors, np.float32), pointer(strip.sums, np.int64)
    for run in range(strip.count):
        if numbers[records.STOP] != 0:
            return
        task = record(tasks, order[run])
        job = KernelJob(task, maps, places, scratch, weights, constants, vectors, sums)
        start = ticks()
        kind = task.kind
        if kind == records.FEW_INPUTS:
            convolve_few_inputs(job)
        elif kind == records.POINTWISE:
            convolve_pointwise(job)
        elif kind == records.WINOGRAD:
            convolve(job)
        elif kind == records.INTEGER_WINOGRAD:
            convolve_integers(job)
        elif kind == records.INTEGER_POINTWISE:
            convolve_integer_pointwise(job)
        elif kind == records.FEW_OUTPUTS:
            convolve_few_outputs(job)
        elif kind in (records.TILES, records.PIXEL_TILES):
            convolve_tiles(job)
        elif kind == records.FEW_TILES:
            convolve_few_tiles(job)
        elif kind == records.PLANEWISE:
            planewise_rows(job)
        elif kind == records.ATTENTION:
            attend_rows(job)
        elif kind == records.PLANE_ATTENTION:
            attend_planes(job)
        elif kind == records.LAYER_NORM:
            norm_rows(job)
        elif kind == records.DEPTHWISE:
            convolve_depthwise(job)
        elif kind == records.MIX:
            mix_rows(job)
        elif kind == records.REARRANGE:
            rearrange_rows(job)
        elif kind == records.READ:
            read_rows(job, record(pictures, 0))
        elif kind == records.LOAD:
            load_rows(job)
        elif kind == records.KEEP:
            keep_rows(job)
        elif kind == records.CROSS:
            add_products(job)
        elif kind == records.POOL:
            add_rows(job)
        else:
            write_rows(job, record(pictures, 1))
        if kind < records.READ and record(maps, task.target).is_zero_outside:
            side = task.depth_to_space if kind < records.PLANEWISE else 1
            clear_outside(
                record(maps, task.target),
                scratch,
                constants,
                task.next_row * side,
                min(task.next_row + task.rows, task.end_row) * side,
                task.column * side,
                (task.column + task.columns) * side,
            )
        task.next_row += task.rows
        task.ticks += ticks() - start


@native
def _look(queue, first, end, thread, patience, most):  # type: ignore[no-untyped-def]
    """Runs strips while there are any, then polls for more for a while."""
    looks = 0
    while looks < patience and most != 0:
        looks += 1
        for slot in range(first, end):
            numbers = advance(queue, slot * records.SLOT)
            if atomic_load(numbers, records.TAKEN) >= numbers[records.COUNT]:
                continue
            index = fetch_add(numbers, records.TAKEN)
            if index >= numbers[records.COUNT]:
                continue
            floats = numbers[records.SCRATCH] + 4 * thread * numbers[records.FLOATS]
            weights = pointer(numbers[records.WEIGHTS], np.float32)
            configure(weights)
            _run(
                record(pointer(numbers[records.STRIPS], _STRIP), index),
                numbers,
                pointer(floats, np.int64),
                weights,
                pointer(numbers[records.CONSTANTS], np.float32),
                pointer(floats + 8 * records.PLACES, np.float32),
            )
            release()
            fetch_add(numbers, records.DONE)
            looks, most = 0, most - 1
        if (
            most >= 0
            and atomic_load(advance(queue, first * records.SLOT), records.DONE)
            >= queue[first * records.SLOT + records.COUNT]
        ):
            break
        pause()


@entry_point(
    INTEGERS, INTEGERS, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER
)
def run_strips(queue, signal, first, end, thread, patience, most, opened, woken, sleeps):  # type: ignore[no-untyped-def]
    """Runs strips of slots `first` to `end` of a work queue that no thread has taken.

    Returns after `patience` consecutive polls without a strip; if `most` is not negative, after
    `most` strips or when all of the first slot are done. `thread` is the number of this thread,
    unique among those that run strips of a slot. First opens slot `opened`, unless that is
    negative, and wakes `woken` of the threads that sleep here. With `sleeps`, waits on the signal
    and looks again until told to end, instead of returning.
    """
    if opened >= 0:
        atomic_store(advance(queue, opened * records.SLOT), records.TAKEN, 0)
    if woken > 0:
        fetch_add(signal, records.SENT)
        futex(signal, records.SENT, _WAKE, woken)
    while True:
        sent = atomic_load(signal, records.SENT)
        _look(queue, first, end, thread, patience, most)
        if sleeps == 0 or atomic_load(signal, records.ENDED) != 0:
            return
        futex(signal, records.SENT, _WAIT, sent & 0xFFFFFFFF)
