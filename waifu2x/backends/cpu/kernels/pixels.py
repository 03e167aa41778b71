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
def _nearest(position, factor, size):  # type: ignore[no-untyped-def]
    """The picture's row or column under `position` of the enlarged, edge-replicated picture."""
    return min(max(position // factor, 0), size - 1)


@native
def read_rows(layer, window, scratch):  # type: ignore[no-untyped-def]
    """The next rows of the enlarged picture as floats in [0, 1], into the ring of `layer`."""
    bytes_ = pointer(window.pixels, np.uint8)
    words = pointer(window.pixels, np.uint16)
    floats = pointer(window.pixels, np.float32)
    planes = window.planes
    for row in range(layer.next_row, layer.next_row + layer.rows):
        y = _nearest(row, window.enlarge, window.height) - window.top
        target = ring_row(layer, row)
        for column in range(layer.columns):
            x = _nearest(layer.column + column, window.enlarge, window.width) - window.left
            first = (y * window.columns + x) * planes
            for plane in range(planes):
                if window.code == 0:
                    value = np.float32(bytes_[first + plane]) / np.float32(255)
                elif window.code == 1:
                    value = np.float32(words[first + plane]) / np.float32(65535)
                else:
                    value = floats[first + plane]
                scratch[target + column * planes + plane] = value


@native
def write_rows(layer, window, top, bottom, left, right, scratch):  # type: ignore[no-untyped-def]
    """The part of a layer's newest rows that lies in the given rows and columns."""
    bytes_ = pointer(window.pixels, np.uint8)
    words = pointer(window.pixels, np.uint16)
    floats = pointer(window.pixels, np.float32)
    planes = window.planes
    for row in range(max(layer.next_row, top), min(layer.next_row + layer.rows, bottom)):
        source = ring_row(layer, row)
        for column in range(left, right):
            place = source + (column - layer.column) * layer.out_planes
            first = ((row - window.top) * window.columns + column - window.left) * planes
            for plane in range(planes):
                value = min(max(scratch[place + plane], np.float32(0)), np.float32(1))
                if window.code == 0:
                    bytes_[first + plane] = np.uint8(np.rint(value * np.float32(255)))
                elif window.code == 1:
                    words[first + plane] = np.uint16(np.rint(value * np.float32(65535)))
                else:
                    floats[first + plane] = value
