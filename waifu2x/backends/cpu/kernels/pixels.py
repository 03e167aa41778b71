"""Reads the picture's pixels at the start of a strip, and writes the result's at its end.

`read_rows` applies the nearest enlargement and the border, and converts to float, in one pass over
the rows that the next steps need. The writers complete the last step, clip to [0, 1], scale,
round half to even and store. One compiled function serves every dtype of pixels. Where networks
of three planes run on grey pictures, the picture's plane is read three times, and luma is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import memory_row, pointer, record
from waifu2x.backends.cpu.kernels.planewise import combine, copy_floats, gathered, source_pixel
from waifu2x.backends.cpu.kernels.resizing import bicubic_row
from waifu2x.backends.cpu.kernels.values import get
from waifu2x.backends.cpu.pack.records import BY_FLOATS
from waifu2x.imaging.colour import LUMA

RED, GREEN, BLUE = LUMA


@native
def read_rows(job, pictures):  # type: ignore[no-untyped-def]
    """Writes the next rows of the padded and enlarged picture as floats in [0, 1]."""
    task, scratch, picture = job.task, job.scratch, record(pictures, 0)
    target = record(job.maps, task.target)
    bytes_ = pointer(picture.pixels, np.uint8)
    words = pointer(picture.pixels, np.uint16)
    floats = pointer(picture.pixels, np.float32)
    # Copies, since compiled code would load the fields again after every store, which may alias.
    code, stored, enlarge, columns = picture.code, picture.planes, task.enlarge, task.columns
    planes = target.pixel_floats
    for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
        y = _inside(row // enlarge - picture.padding, picture.rows, picture.border)
        start = memory_row(target, row)
        x, column = task.column // enlarge, 0
        end = (x + 1) * enlarge - task.column
        # Each pixel of the picture is converted once and stored for each of its copies.
        while column < columns:
            nearest = _inside(x - picture.padding, picture.columns, picture.border)
            first = (y * picture.columns + nearest) * stored
            end = min(end, columns)
            for plane in range(planes):
                place = first + min(plane, stored - 1)
                if y < 0 or nearest < 0:
                    value = np.float32(0)
                elif code == 0:
                    value = np.float32(bytes_[place]) / np.float32(255)
                elif code == 1:
                    value = np.float32(words[place]) / np.float32(65535)
                else:
                    value = floats[place]
                for copy in range(column, end):
                    scratch[start + copy * planes + plane] = value
            x, column, end = x + 1, end, end + enlarge


@native
def _inside(place, size, border):  # type: ignore[no-untyped-def]
    """Returns the pixel that a place of the padded picture shows; -1 for black."""
    if 0 <= place < size:
        return place
    if border == 2:
        return -1
    if border == 0:
        return min(max(place, 0), size - 1)
    period = max(2 * (size - 1), 1)
    place %= period
    return min(place, period - place) if size > 1 else 0


@native
def _clip(value):  # type: ignore[no-untyped-def]
    return min(max(value, np.float32(0)), np.float32(1))


@native
def _stored_row(job, row, first):  # type: ignore[no-untyped-def]
    """Returns the place of a row's values where they are stored in order, or copies them to
    `first`."""
    task = job.task
    if task.method == BY_FLOATS:
        copy_floats(job, row, first, task.planes)
        return first
    start, plane = source_pixel(task, record(job.maps, task.source), row, task.column)
    return start + plane


@native
def _resized_row(job, row, first):  # type: ignore[no-untyped-def]
    """Writes a resized row to `first`, and returns that."""
    bicubic_row(job, row, first, job.task.planes)
    return first


@native
def _value_row(job, row, first):  # type: ignore[no-untyped-def]
    """Computes a row value by value, writes it to `first`, and returns that."""
    task, maps, scratch = job.task, job.maps, job.scratch
    constants, vectors, planes = job.constants, job.vectors, task.planes
    source = record(maps, task.source)
    for x in range(task.column, task.column + task.columns):
        start, plane = source_pixel(task, source, row, x)
        for p in range(planes):
            if task.space_to_depth == 1:
                place = plane + p * task.plane_step
                value = get(source, scratch, constants, start, place)
            else:
                value = gathered(task, source, scratch, constants, row, x, p)
            value = combine(task, maps, scratch, constants, vectors, value, row, x, p)
            scratch[first + (x - task.column) * planes + p] = value
    return first


def _writer(completed_row: Any) -> Any:
    """Returns a function that writes the next rows of the result; `completed_row` makes the values
    of a row contiguous in memory."""

    @native
    def write_rows(job, pictures):  # type: ignore[no-untyped-def]
        task, scratch = job.task, job.scratch
        picture = record(pictures, 1)
        bytes_ = pointer(picture.pixels, np.uint8)
        words = pointer(picture.pixels, np.uint16)
        floats = pointer(picture.pixels, np.float32)
        code, planes, stored = picture.code, task.planes, picture.planes
        count = task.columns * stored
        for row in range(task.next_row, min(task.next_row + task.rows, task.end_row)):
            first = completed_row(job, row, task.products)
            if stored < planes:
                for x in range(task.columns):
                    red, green, blue = first + x * 3, first + x * 3 + 1, first + x * 3 + 2
                    value = _clip(scratch[red]) * RED + _clip(scratch[green]) * GREEN
                    scratch[first + x] = value + _clip(scratch[blue]) * BLUE
            target = (row * picture.columns + task.column) * stored
            if code == 0:
                for i in range(count):
                    level = np.rint(_clip(scratch[first + i]) * np.float32(255))
                    bytes_[target + i] = np.uint8(level)
            elif code == 1:
                for i in range(count):
                    level = np.rint(_clip(scratch[first + i]) * np.float32(65535))
                    words[target + i] = np.uint16(level)
            else:
                for i in range(count):
                    floats[target + i] = _clip(scratch[first + i])

    return write_rows


write_stored_rows = _writer(_stored_row)
write_resized_rows = _writer(_resized_row)
write_value_rows = _writer(_value_row)
