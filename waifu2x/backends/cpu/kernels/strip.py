"""A strip of the picture through all layers, depth first: the entry that does the work."""

from __future__ import annotations

from numba import from_dtype, types

from waifu2x.backends.cpu.kernels import FLOATS, INTEGER, INTEGERS, entry
from waifu2x.backends.cpu.kernels.direct import convolve_few_inputs, convolve_few_outputs
from waifu2x.backends.cpu.kernels.few_tiles import convolve_few_tiles
from waifu2x.backends.cpu.kernels.memory import record
from waifu2x.backends.cpu.kernels.pixels import read_rows, write_rows
from waifu2x.backends.cpu.kernels.tiles import configure, convolve_tiles, release
from waifu2x.backends.cpu.kernels.vector import ticks
from waifu2x.backends.cpu.kernels.winograd import convolve
from waifu2x.backends.cpu.layout import (
    FEW_INPUTS,
    FEW_TILES,
    LAYER,
    SOURCE,
    TILES,
    WINDOW,
    WINOGRAD,
)

_LAYERS = types.CPointer(from_dtype(LAYER))
_WINDOWS = types.CPointer(from_dtype(WINDOW))


@entry(_LAYERS, INTEGER, FLOATS, FLOATS, FLOATS, _WINDOWS, INTEGERS, INTEGERS)
def run_strip(  # type: ignore[no-untyped-def]
    layers, count, weights, biases, scratch, windows, box, stop
):
    """Computes rows box[0]..box[1], columns box[2]..box[3] of windows[1] from windows[0].

    Every turn of the outer loop advances each of the `count` layers by one cell of rows, as soon as
    the layer before it has the row below: the feature maps stay as many rows tall as their rings.
    Ends early when another thread sets stop[0].
    """
    configure(weights)
    last = record(layers, count - 1)
    while last.next_row < last.end_row and stop[0] == 0:
        for index in range(count):
            layer = record(layers, index)
            if layer.next_row >= layer.end_row:
                continue
            start = ticks()
            if layer.kind == SOURCE:
                read_rows(layer, record(windows, 0), scratch)
            else:
                before = record(layers, index - 1)
                if before.next_row < layer.next_row + layer.rows + 1:
                    break
                if layer.kind == FEW_INPUTS:
                    convolve_few_inputs(layer, before, scratch, weights, biases)
                elif layer.kind == WINOGRAD:
                    convolve(layer, before, scratch, weights, biases)
                elif layer.kind == TILES:
                    convolve_tiles(layer, before, scratch, weights, biases)
                elif layer.kind == FEW_TILES:
                    convolve_few_tiles(layer, before, scratch, weights, biases)
                else:
                    convolve_few_outputs(layer, before, scratch, weights, biases)
                if index == count - 1:
                    target = record(windows, 1)
                    write_rows(layer, target, box[0], box[1], box[2], box[3], scratch)
            layer.next_row += layer.rows
            layer.ticks += ticks() - start
    release()
