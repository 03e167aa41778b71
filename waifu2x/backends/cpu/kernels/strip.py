"""Runs strips of pictures through all tasks of a phase, depth first.

`run_strips` is the main entry point. Each kernel is an entry point of its own, whose address a task
holds: most networks need a third of them, and the first run compiles those alone, on all cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types

from waifu2x.backends.cpu.kernels import (
    FLOATS,
    INTEGER,
    INTEGERS,
    EntryPoint,
    entry_point,
    native,
)
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
    call_kernel,
    fetch_add,
    futex,
    pointer,
    record,
)
from waifu2x.backends.cpu.kernels.pixels import (
    read_rows,
    write_resized_rows,
    write_stored_rows,
    write_value_rows,
)
from waifu2x.backends.cpu.kernels.plane_attention import attend_planes
from waifu2x.backends.cpu.kernels.planewise import (
    float_rows,
    resized_rows,
    value_rows,
    vector_rows,
)
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
_TASKS, _STRIPS = types.CPointer(_TASK), types.CPointer(_STRIP)
_WAIT, _WAKE = 128, 129
"""Operations of `futex`, private to the process."""


def _kernel(run: Any) -> EntryPoint:
    """Returns the entry point of a kernel, which runs a task of a strip for its next rows."""

    def kernel(task, strip, places, scratch, weights, constants):  # type: ignore[no-untyped-def]
        own = record(strip, 0)
        maps, vectors = pointer(own.maps, _MAP), pointer(own.vectors, np.float32)
        sums = pointer(own.sums, np.int64)
        run(
            KernelJob(record(task, 0), maps, places, scratch, weights, constants, vectors, sums),
            pointer(own.pictures, _PICTURE),
        )

    return entry_point(_TASKS, _STRIPS, INTEGERS, FLOATS, FLOATS, FLOATS)(kernel)


def _of_maps(run: Any) -> EntryPoint:
    """Returns the entry point of a kernel that needs no picture."""

    @native
    def without_pictures(job, pictures):  # type: ignore[no-untyped-def]
        run(job)

    return _kernel(without_pictures)


# By the names that `run.kernels` knows.
few_inputs = _of_maps(convolve_few_inputs)
pointwise = _of_maps(convolve_pointwise)
winograd = _of_maps(convolve)
integer_winograd = _of_maps(convolve_integers)
integer_pointwise = _of_maps(convolve_integer_pointwise)
few_outputs = _of_maps(convolve_few_outputs)
tiles = _of_maps(convolve_tiles)
few_tiles = _of_maps(convolve_few_tiles)
planewise_values = _of_maps(value_rows)
planewise_vectors = _of_maps(vector_rows)
planewise_floats = _of_maps(float_rows)
resizing = _of_maps(resized_rows)
attention = _of_maps(attend_rows)
plane_attention = _of_maps(attend_planes)
mix = _of_maps(mix_rows)
depthwise = _of_maps(convolve_depthwise)
layer_norm = _of_maps(norm_rows)
rearrange = _of_maps(rearrange_rows)
read = _kernel(read_rows)
load = _of_maps(load_rows)
keep = _of_maps(keep_rows)
pool = _of_maps(add_rows)
cross = _of_maps(add_products)
write_stored = _kernel(write_stored_rows)
write_resized = _kernel(write_resized_rows)
write_values = _kernel(write_value_rows)


@native
def _run(strip, numbers, places, weights, constants, scratch):  # type: ignore[no-untyped-def]
    """Runs the tasks of a strip, each a few rows at a time, in the order of its list of runs."""
    tasks, maps = pointer(strip.tasks, _TASK), pointer(strip.maps, _MAP)
    order = pointer(strip.order, np.int64)
    for run in range(strip.count):
        if numbers[records.STOP] != 0:
            return
        task = record(tasks, order[run])
        start = ticks()
        call_kernel(task.kernel, task, strip, places, scratch, weights, constants)
        kind = task.kind
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
