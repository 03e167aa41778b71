"""A strip of the picture through all layers, depth first: the one compiled entry."""

from __future__ import annotations

from waifu2x.backends.cpu.compiled import compiled
from waifu2x.backends.cpu.direct import convolve_few_inputs, convolve_few_outputs
from waifu2x.backends.cpu.few_tiles import convolve_few_tiles
from waifu2x.backends.cpu.layout import FEW_INPUTS, FEW_TILES, SOURCE, TILES, WINOGRAD
from waifu2x.backends.cpu.pixels import read_rows, write_rows
from waifu2x.backends.cpu.tiles import configure, convolve_tiles, release
from waifu2x.backends.cpu.vector import ticks
from waifu2x.backends.cpu.winograd import convolve


@compiled
def run_strip(  # type: ignore[no-untyped-def]
    layers, weights, biases, scratch, source, source_pixels, target, target_pixels, box, stop
):
    """Computes rows box[0]..box[1], columns box[2]..box[3] of the result.

    Every turn of the outer loop advances each layer by one cell of rows, as soon as the layer
    before it has the row below: the feature maps stay as many rows tall as their rings. Ends early
    when another thread sets stop[0].
    """
    configure(weights)
    last = layers[len(layers) - 1]
    while last.next_row < last.end_row and stop[0] == 0:
        for index in range(len(layers)):
            layer = layers[index]
            if layer.next_row >= layer.end_row:
                continue
            start = ticks()
            if layer.kind == SOURCE:
                read_rows(layer, source, source_pixels, scratch)
            else:
                before = layers[index - 1]
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
                if index == len(layers) - 1:
                    write_rows(
                        layer, target, box[0], box[1], box[2], box[3], scratch, target_pixels
                    )
            layer.next_row += layer.rows
            layer.ticks += ticks() - start
    release()
