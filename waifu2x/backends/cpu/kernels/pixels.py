"""The two ends of a strip: the picture's own numbers in, the picture's own numbers out.

`read_rows` stands before the first layer: nearest enlargement, edge replication and integer to
float in one pass over the rows that the next cells need. `write_rows` stands behind the last: clip
to [0, 1], scale, round half to even, store. One compiled function serves every dtype of pixels.
"""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.kernels import native
from waifu2x.backends.cpu.kernels.memory import pointer, ring_row


@native
def read_rows(layer, window, scratch):  # type: ignore[no-untyped-def]
    """The next rows of the enlarged picture as floats in [0, 1], into the ring of `layer`."""
    bytes_ = pointer(window.pixels, np.uint8)
    words = pointer(window.pixels, np.uint16)
    floats = pointer(window.pixels, np.float32)
    # Copies of what compiled code would read again after every store, which may have changed it.
    code, planes, enlarge, columns = window.code, window.planes, window.enlarge, layer.columns
    for row in range(layer.next_row, layer.next_row + layer.rows):
        y = min(max(row // enlarge, 0), window.height - 1) - window.top
        target = ring_row(layer, row)
        x, column = layer.column // enlarge, 0
        end = (x + 1) * enlarge - layer.column
        # Each pixel of the picture is converted once and stored as often as it is seen.
        while column < columns:
            nearest = min(max(x, 0), window.width - 1) - window.left
            first = (y * window.columns + nearest) * planes
            end = min(end, columns)
            for plane in range(planes):
                if code == 0:
                    value = np.float32(bytes_[first + plane]) / np.float32(255)
                elif code == 1:
                    value = np.float32(words[first + plane]) / np.float32(65535)
                else:
                    value = floats[first + plane]
                for copy in range(column, end):
                    scratch[target + copy * planes + plane] = value
            x, column, end = x + 1, end, end + enlarge


@native
def write_rows(layer, window, top, bottom, left, right, scratch):  # type: ignore[no-untyped-def]
    """The part of a layer's newest rows that lies in the given rows and columns."""
    bytes_ = pointer(window.pixels, np.uint8)
    words = pointer(window.pixels, np.uint16)
    floats = pointer(window.pixels, np.float32)
    # Runs of neighbours in memory: the whole row if the layer has no planes that are only padding.
    count, runs = window.planes, right - left
    if layer.out_planes == count:
        count, runs = count * runs, 1
    for row in range(max(layer.next_row, top), min(layer.next_row + layer.rows, bottom)):
        source = ring_row(layer, row) + (left - layer.column) * layer.out_planes
        target = ((row - window.top) * window.columns + left - window.left) * window.planes
        for _ in range(runs):
            if window.code == 0:
                for i in range(count):
                    level = np.rint(_clip(scratch[source + i]) * np.float32(255))
                    bytes_[target + i] = np.uint8(level)
            elif window.code == 1:
                for i in range(count):
                    level = np.rint(_clip(scratch[source + i]) * np.float32(65535))
                    words[target + i] = np.uint16(level)
            else:
                for i in range(count):
                    floats[target + i] = _clip(scratch[source + i])
            source += layer.out_planes
            target += window.planes


@native
def _clip(value):  # type: ignore[no-untyped-def]
    return min(max(value, np.float32(0)), np.float32(1))
