"""Attention in windows, fp32, with the logits of one block of queries at a time.

For a window and a head, queries are transposed: the lanes of a vector are queries. Keys are
transposed, too: numbers of consecutive keys then need one address, not one each. A block of queries
computes its logits with all keys, each number of a key times vectors of queries, in sums that begin
with the biases; then the powers of the logits; then the sums of values, again one number at a time,
weighted by vectors of powers. So no planes are needed to fill a vector, and the highest logit and
the sum of powers of a query are lanes, too. Inputs and results of a window are copied, since its
rows lie far apart in maps.

Keys that do not exist, at the edges of the map, are left out; existing ones beyond the map are
zeros. A window's place in the picture alone decides the order in which its keys are summed.

Bound: fp32 multiply-adds, 2 * keys for each plane of a result, and a power for each logit.
"""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.attention_parts import (
    Window,
    fill,
    gather_pixels,
    make_logits,
    make_powers,
    put_biases,
    transpose_in,
    transpose_out,
    weigh_values,
)
from waifu2x.backends.cpu.kernels.memory import advance, record
from waifu2x.backends.cpu.kernels.values import pixel_start
from waifu2x.backends.cpu.pack.attention_shapes import (
    BLOCK,
    BLOCK_HEIGHT,
    BLOCK_WIDTH,
    attention_places,
)
from waifu2x.backends.cpu.pack.records import PLACES
from waifu2x.backends.cpu.pack.shapes import LANES

_LOWEST = -3.0e38
_places_of = native(attention_places)


@native
def _locate_pixels(map_, numbers, first, box, plane, elsewhere):  # type: ignore[no-untyped-def]
    """Writes the offsets of plane `plane` of the pixels of a box; those of pixels beyond the map
    are `elsewhere`."""
    top, left, rows, columns = box
    pixel = map_.pixel_floats
    map_rows, map_columns = map_.rows, map_.columns
    for y in range(top, top + rows):
        if y < 0 or y >= map_rows:
            for x in range(columns):
                numbers[first + x] = elsewhere
        else:
            start = pixel_start(map_, y, left) + plane
            for x in range(columns):
                inside = 0 <= left + x < map_columns
                numbers[first + x] = start + x * pixel if inside else elsewhere
        first += columns


@native
def _attend(job, window, queries, planes):  # type: ignore[no-untyped-def]
    """Computes a head of a window whose pixels are located; writes its first `planes` planes."""
    task, places, scratch, numbers = job.task, window.places, job.scratch, window.numbers
    depth, keys = window.depth, window.keys
    for key in range(keys, window.padded_keys):
        numbers[places.key_places // 2 + key] = places.nothing
    factor, one = np.float32(task.factor), np.float32(1)
    transpose_in(window, window.padded, factor, places.query_places, places.queries)
    transpose_in(window, window.padded_keys, one, places.key_places, places.keys)
    gather_pixels(window)
    tiles = -(-depth // BLOCK_HEIGHT)
    height = -(-depth // tiles)
    has_bias = 1 if task.bias >= 0 else 0
    for query in range(0, queries, BLOCK):
        width = min(BLOCK_WIDTH, (window.padded - query) // LANES)
        fill(BLOCK, np.float32(_LOWEST), scratch, places.highest)
        key = 0
        while key < keys:
            # Some keys are computed twice, to avoid single ones at the end.
            count = BLOCK_HEIGHT if keys >= BLOCK_HEIGHT else 1
            key = min(key, keys - count)
            make_logits(window, width, count, key, query, has_bias)
            key += count
        make_powers(window, width)
        for plane in range(0, depth, height):
            weigh_values(window, width, height, plane)
        fill((planes - depth) * BLOCK, np.float32(0), scratch, places.made + depth * BLOCK)
        transpose_out(window, width, planes, query)


@native
def _locate_biases(numbers, first, place, box, columns, step):  # type: ignore[no-untyped-def]
    """Writes the offsets of the biases of a box of a window's keys, in a table of `columns`
    columns; those of neighbouring keys are `step` floats apart."""
    top, left, height, width = box
    for y in range(top, top + height):
        for x in range(left, left + width):
            numbers[first] = place + (y * columns + x) * step
            first += 1


@native
def _expand_biases(job, places, head, padded):  # type: ignore[no-untyped-def]
    """Expands the biases of a head to all pairs of a query and a key of a window."""
    task, scratch, constants = job.task, job.scratch, job.constants
    rows, columns, cell = task.window_rows, task.window_columns, task.cell
    key_rows, key_columns = (rows + 2 * task.overlap) // cell, (columns + 2 * task.overlap) // cell
    step = key_columns + columns // cell - 1
    table = task.bias + head * (key_rows + rows // cell - 1) * step
    target = places.biases
    for y in range(key_rows):
        for x in range(key_columns):
            start = table + (y + rows // cell - 1) * step + key_columns - 1 - x
            if cell == 1:
                put_biases(rows, columns, constants, start, step, advance(scratch, target))
            else:
                for query in range(rows * columns):
                    down, across = query // columns // cell, query % columns // cell
                    scratch[target + query] = constants[start - down * step + across]
            target += padded


@native
def attend_rows(job):  # type: ignore[no-untyped-def]
    """Computes the next row of windows."""
    task, maps, scratch = job.task, job.maps, job.scratch
    own, target = record(maps, task.source), record(maps, task.target)
    key_map, value_map = record(maps, task.keys), record(maps, task.values)
    rows, columns, overlap, cell = task.window_rows, task.window_columns, task.overlap, task.cell
    key_columns = (columns + 2 * overlap) // cell
    key_count = (rows + 2 * overlap) // cell * key_columns
    queries, depth, top = rows * columns, task.depth, task.next_row
    padded, row = -(-queries // LANES) * LANES, -(-depth // LANES) * LANES
    if top >= own.rows or top + rows <= 0:
        return
    begin = _places_of(task.inputs, queries, key_count, depth, task.padding)
    numbers = advance(job.places, PLACES)
    nothing, spare = begin.nothing, begin.spare
    fill(spare - nothing, np.float32(0), scratch, nothing)
    filled_rows = -(-own.rows // task.filled_to) * task.filled_to
    filled_columns = -(-own.columns // task.filled_to) * task.filled_to
    first_row = (max(top, 0) - overlap) // cell
    height = (min(top + rows, filled_rows) + overlap) // cell - first_row
    for query in range(queries, padded):
        numbers[begin.query_places // 2 + query] = nothing
        numbers[begin.result_places // 2 + query] = spare
    for head in range(task.heads):
        if task.bias >= 0:
            _expand_biases(job, begin, head, padded)
        plane = head * depth
        planes = depth + task.padding if head == task.heads - 1 else depth
        for left in range(task.column, task.column + task.columns, columns):
            if left >= own.columns or left + columns <= 0:
                continue
            first = (max(left, 0) - overlap) // cell
            width = (min(left + columns, filled_columns) + overlap) // cell - first
            box, around = (top, left, rows, columns), (first_row, first, height, width)
            source, made = task.source_plane + plane, task.target_plane + plane
            keys, values = task.keys_plane + plane, task.values_plane + plane
            _locate_pixels(own, numbers, begin.query_places // 2, box, source, nothing)
            _locate_pixels(target, numbers, begin.result_places // 2, box, made, spare)
            _locate_pixels(key_map, numbers, begin.key_places // 2, around, keys, nothing)
            _locate_pixels(value_map, numbers, begin.value_places // 2, around, values, nothing)
            if task.bias >= 0:
                down = first_row - (top - overlap) // cell
                across = first - (left - overlap) // cell
                inner, place = (down, across, height, width), begin.bias_places // 2
                _locate_biases(numbers, place, begin.biases, inner, key_columns, padded)
            count = height * width
            padded_keys = -(-count // LANES) * LANES
            window = Window(scratch, numbers, begin, depth, row, count, padded_keys, padded)
            _attend(job, window, queries, planes)
