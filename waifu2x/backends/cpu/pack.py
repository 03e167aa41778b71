"""A model in the order in which the compiled code reads it, and the memory plan of a strip."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu import isa, weights
from waifu2x.backends.cpu.layout import (
    CELL,
    FEW_INPUTS,
    FEW_OUTPUTS,
    FEW_TILES,
    LAYER,
    SOURCE,
    TILES,
    WINOGRAD,
    aligned,
)
from waifu2x.backends.cpu.shapes import (
    BLOCK,
    COLUMNS,
    CONFIG_FLOATS,
    FREQUENCIES,
    LANES,
    MOST_OUTPUTS,
    ROW_BLOCK,
    STAGE_FLOATS,
    WIDTHS,
)
from waifu2x.model import Model
from waifu2x.tiling import Box

_TILE_ROWS = 2
"""Rows at a time on tiles: the fewest, to leave the L2 cache to the weights."""
_SPARE_PIXELS = 2 * max(ROW_BLOCK, BLOCK)
"""At the end of each row, for tiles that run past the last column and those that read there."""


class PackedModel:
    """Weights and biases, flat, and the table of layers that points into them."""

    def __init__(self, model: Model, bfloats: bool) -> None:
        """`bfloats`: the layers with many planes in and out run in bf16, on tiles."""
        self.out_planes = model.out_planes
        self._cache_bytes = isa.l2_bytes()
        self._layers = np.zeros(len(model.convolutions) + 1, LAYER)
        self._rows = _TILE_ROWS if bfloats else CELL
        self._layers["rows"] = self._rows
        self._layers[0]["kind"] = SOURCE
        self._layers[0]["out_planes"] = self._layers[0]["pixel_floats"] = model.in_planes
        packed, biases = [weights.tile_config()], []
        weight_offset, bias_offset = CONFIG_FLOATS, 0
        # What a layer gives is stored in whole vectors, or in whole blocks of the tiles.
        unit = BLOCK if bfloats else LANES
        kinds = _kinds(model, unit, TILES if bfloats else WINOGRAD)
        centres = _centres(model)
        for index, (convolution, kind) in enumerate(zip(model.convolutions, kinds, strict=True)):
            before, record = self._layers[index], self._layers[index + 1]
            in_planes = int(before["out_planes"])
            out_planes = convolution.out_planes
            if kind not in _FEW:
                out_planes = -(-out_planes // unit) * unit
            weight = _padded(convolution.weight, out_planes, in_planes)
            whole = -(-out_planes // LANES) * LANES  # they are read in whole vectors
            bias, centre = np.zeros(whole, np.float32), np.zeros(whole, np.float32)
            bias[: convolution.out_planes] = convolution.bias
            if kind in _TERMS:
                # The inputs come less their centre: its share of the result is a constant.
                share = convolution.weight.sum(axis=(2, 3), dtype=np.float64) @ centres[index]
                bias[: convolution.out_planes] += share
            record["kind"] = kind
            record["in_planes"], record["out_planes"] = in_planes, out_planes
            record["pixel_floats"] = out_planes
            if index + 1 < len(kinds) and kinds[index + 1] in _TERMS:
                record["bfloats"] = _TERMS[kinds[index + 1]]
                record["pixel_floats"] = out_planes * record["bfloats"] // 2
                centre[: convolution.out_planes] = centres[index + 1]
            record["slope"] = convolution.slope
            record["weight"] = weight_offset
            record["bias"], record["centre"] = bias_offset, bias_offset + whole
            packed.append(_PACKERS[kind](weight))
            biases += [bias, centre]
            weight_offset += packed[-1].size
            bias_offset += 2 * whole
        self.on_tiles = [kind in _TERMS for kind in kinds]
        self.weights = np.concatenate(packed, out=aligned(weight_offset))
        self.biases = np.concatenate(biases, out=aligned(bias_offset))

    def rows(self, index: int, start: int, stop: int) -> tuple[int, int]:
        """The rows of layer `index` behind rows start..stop of the last layer."""
        return self._span(index, start, stop, self._rows)

    def columns(self, index: int, start: int, stop: int) -> tuple[int, int]:
        """The columns of layer `index` behind columns start..stop of the last layer."""
        return self._span(index, start, stop, CELL)

    def _span(self, index: int, start: int, stop: int, unit: int) -> tuple[int, int]:
        """Whole units: the last layer's begin at multiples, each layer's one before the next's."""
        first = start // unit * unit
        last = -(-stop // unit) * unit
        for _ in range(len(self._layers) - 1 - index):
            first -= 1
            last = first + -(-(last + 1 - first) // unit) * unit
        return first, last

    def layout(self, strip: Box) -> tuple[Any, int]:
        """The table of layers for a strip, and the floats of scratch memory that it takes."""
        layers = self._layers.copy()
        floats = inputs = products = 0
        for index, layer in enumerate(layers):
            layer["next_row"], layer["end_row"] = self.rows(index, strip.top, strip.bottom)
            layer["column"], end = self.columns(index, strip.left, strip.right)
            layer["columns"] = end - layer["column"]
            pixels = int(layer["columns"]) + _SPARE_PIXELS
            row_vectors = -(-pixels * int(layer["pixel_floats"]) // LANES)
            layer["row_floats"] = (row_vectors + 1) * LANES
            layer["ring"] = floats
            floats += 2 * self._rows * int(layer["row_floats"])
            if layer["kind"] == WINOGRAD:
                in_planes, out_planes = int(layer["in_planes"]), int(layer["out_planes"])
                cells = -(-int(layer["columns"]) // CELL // ROW_BLOCK) * ROW_BLOCK
                best = group_size(in_planes, out_planes, self._cache_bytes)
                layer["group"] = min(cells, best)
                needed = scratch_floats(in_planes, int(layer["group"]))
                inputs, products = max(inputs, needed[0]), max(products, needed[1])
            elif layer["kind"] == TILES:
                products = max(products, 2 * STAGE_FLOATS)
            elif layer["kind"] == FEW_TILES:
                products = max(products, self._rows * pixels * COLUMNS)
            elif layer["bfloats"]:
                products = max(products, pixels * int(layer["out_planes"]))
        layers["inputs"] = floats
        layers["products"] = floats + inputs
        return layers, floats + inputs + products


def group_size(in_planes: int, out_planes: int, cache_bytes: int) -> int:
    """Cells whose V and M take at most three quarters of a cache, a multiple of ROW_BLOCK."""
    floats = FREQUENCIES * (in_planes + min(out_planes, WIDTHS[0] * LANES))
    return max(1, cache_bytes * 3 // 4 // (4 * floats * ROW_BLOCK)) * ROW_BLOCK


def scratch_floats(in_planes: int, group: int) -> tuple[int, int]:
    """Floats of V and of M for a group of cells; each frequency is followed by one spare vector.

    Without the spare vector the frequencies would lie a multiple of 4 KiB apart, in the same few
    sets of the L1 cache.
    """
    return (
        FREQUENCIES * (group * in_planes + LANES),
        FREQUENCIES * (group * WIDTHS[0] * LANES + LANES),
    )


_PACKERS = {
    FEW_INPUTS: weights.pack_few_inputs,
    WINOGRAD: weights.pack_winograd,
    FEW_OUTPUTS: weights.pack_few_outputs,
    TILES: weights.pack_tiles,
    FEW_TILES: weights.pack_few_tiles,
}
_FEW = (FEW_OUTPUTS, FEW_TILES)
_TERMS = {TILES: 1, FEW_TILES: 2}
"""Kinds that read bf16, and in how many terms."""


def _kinds(model: Model, unit: int, many: int) -> list[int]:
    """How each layer is computed; `many` is the kind for many planes in and out.

    All but FEW_INPUTS need whole units in, and all but those of _FEW give them. The picture itself
    comes as floats, which tiles cannot read.
    """
    kinds: list[int] = []
    for layer in model.convolutions:
        stored = layer.in_planes if not kinds or kinds[-1] in _FEW else unit
        if stored % unit or (many == TILES and not kinds):
            kinds.append(FEW_INPUTS)
        elif many == TILES and layer.out_planes <= MOST_OUTPUTS:
            kinds.append(FEW_TILES)
        else:
            kinds.append(FEW_OUTPUTS if layer.out_planes < LANES else many)
    return kinds


def _centres(model: Model) -> list[NDArray[np.float64]]:
    """What every layer, the picture first, is everywhere when the picture is mid grey."""
    centres = [np.full(model.in_planes, 0.5)]
    for layer in model.convolutions:
        values = layer.weight.sum(axis=(2, 3), dtype=np.float64) @ centres[-1] + layer.bias
        centres.append(np.maximum(values, layer.slope * values))
    return centres


def _padded(weight: NDArray[np.float32], out_planes: int, in_planes: int) -> NDArray[np.float32]:
    """Weights with zeros for the planes that only padding holds."""
    padded = np.zeros((out_planes, in_planes, 3, 3), np.float32)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded
