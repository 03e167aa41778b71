"""A model in the order in which the compiled code reads it, and the memory plan of a strip."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu import direct, isa, winograd
from waifu2x.backends.cpu.layout import (
    CELL,
    FEW_INPUTS,
    FEW_OUTPUTS,
    LAYER,
    RING_ROWS,
    SOURCE,
    WINOGRAD,
)
from waifu2x.backends.cpu.product import LANES, ROW_BLOCK, pad_planes
from waifu2x.model import Convolution, Model
from waifu2x.tiling import Box


class PackedModel:
    """Weights and biases, flat, and the table of layers that points into them."""

    def __init__(self, model: Model) -> None:
        self.out_planes = model.out_planes
        self._cache_bytes = isa.l2_bytes()
        self._layers = np.zeros(len(model.convolutions) + 1, LAYER)
        self._layers[0]["kind"] = SOURCE
        self._layers[0]["out_planes"] = model.in_planes
        weights, biases = [], []
        weight_offset = bias_offset = 0
        for index, convolution in enumerate(model.convolutions):
            record = self._layers[index + 1]
            kind, out_planes, weight, bias = _pack(convolution, self._layers[index]["out_planes"])
            record["kind"] = kind
            record["in_planes"] = self._layers[index]["out_planes"]
            record["out_planes"] = out_planes
            record["slope"] = convolution.slope
            record["weight"], record["bias"] = weight_offset, bias_offset
            weights.append(weight)
            biases.append(bias)
            weight_offset += weight.size
            bias_offset += bias.size
        self.weights = np.concatenate(weights)
        self.biases = np.concatenate(biases)

    def span(self, index: int, start: int, stop: int) -> tuple[int, int]:
        """The rows (or columns) of layer `index` behind rows start..stop of the last layer.

        Cells of the last layer begin at multiples of CELL, those of each layer one pixel before
        the cells of the next.
        """
        first = start // CELL * CELL
        last = -(-stop // CELL) * CELL
        for _ in range(len(self._layers) - 1 - index):
            first -= 1
            last = first + -(-(last + 1 - first) // CELL) * CELL
        return first, last

    def layout(self, strip: Box) -> tuple[Any, int]:
        """The table of layers for a strip, and the floats of scratch memory that it takes."""
        layers = self._layers.copy()
        floats = inputs = products = 0
        for index, layer in enumerate(layers):
            layer["next_row"], layer["end_row"] = self.span(index, strip.top, strip.bottom)
            layer["column"], end = self.span(index, strip.left, strip.right)
            layer["columns"] = end - layer["column"]
            # Spare pixels, for tiles that run past the last column and those that read there.
            pixels = layer["columns"] + 2 * ROW_BLOCK
            layer["row_floats"] = -(-pixels * layer["out_planes"] // LANES) * LANES + LANES
            layer["ring"] = floats
            floats += RING_ROWS * layer["row_floats"]
            if layer["kind"] == WINOGRAD:
                cells = -(-layer["columns"] // CELL // ROW_BLOCK) * ROW_BLOCK
                group = min(
                    cells,
                    winograd.group_size(layer["in_planes"], layer["out_planes"], self._cache_bytes),
                )
                layer["group"] = group
                needed = winograd.scratch_floats(int(layer["in_planes"]), int(group))
                inputs, products = max(inputs, needed[0]), max(products, needed[1])
        layers["inputs"] = floats
        layers["products"] = floats + inputs
        return layers, int(floats + inputs + products)


def _pack(
    convolution: Convolution, stored_planes: int
) -> tuple[int, int, NDArray[np.float32], NDArray[np.float32]]:
    """Kind, stored output planes, weights and biases of a layer whose input has `stored_planes`."""
    out_planes = convolution.out_planes
    vectors_in = stored_planes % LANES == 0
    if vectors_in and out_planes < LANES:
        padded = _padded(convolution.weight, out_planes, stored_planes)
        return FEW_OUTPUTS, out_planes, direct.pack_few_outputs(padded), convolution.bias
    stored = pad_planes(out_planes)
    padded = _padded(convolution.weight, stored, stored_planes)
    bias = np.zeros(stored, np.float32)
    bias[:out_planes] = convolution.bias
    if vectors_in:
        return WINOGRAD, stored, winograd.pack_weights(padded), bias
    return FEW_INPUTS, stored, direct.pack_few_inputs(padded), bias


def _padded(weight: NDArray[np.float32], out_planes: int, in_planes: int) -> NDArray[np.float32]:
    """Weights with zeros for the planes that only padding holds."""
    padded = np.zeros((out_planes, in_planes, 3, 3), np.float32)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded
