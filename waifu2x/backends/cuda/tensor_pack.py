"""Weights in the order in which the kernels of matrix units read them, as 16-bit terms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.layer import padded as with_zeros
from waifu2x.backends.gpu.road import whole
from waifu2x.model import Convolution

PIECE = 8
"""Values of a piece of 16 bytes."""


def group_of(planes: int) -> int:
    """Planes of a group of a map: see `kernels/tensor.cuh`."""
    return 64 if planes % 64 == 0 else 32


def padded(planes: int) -> int:
    """Planes of a map, with those that are zero."""
    return whole(planes, 32)


def split(values: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """High and low terms, whose sum keeps 22 bits."""
    high = values.astype(np.float16)
    return high, (values - high.astype(np.float32)).astype(np.float16)


def swizzled(block: NDArray[np.float16], group: int) -> NDArray[np.float16]:
    """(..., rows, group), the pieces of rows in the order of `phase` in `kernels/tensor.cuh`."""
    rows, pieces = block.shape[-2], group // PIECE
    row = np.arange(rows)
    phase = row % 8 if group == 64 else row // 2 % 4
    places = np.arange(pieces) ^ phase[:, np.newaxis]
    cut = block.reshape(*block.shape[:-1], pieces, PIECE)
    return cut[..., row[:, np.newaxis], places, :].reshape(block.shape)


def pack_middle(layer: Convolution, width: int, terms: int) -> NDArray[np.float16]:
    """(tiles of `width` output planes, visits, 9 taps, width, group)."""
    inputs, outputs = padded(layer.in_planes), whole(layer.out_planes, width)
    weight, _ = with_zeros(layer, inputs, outputs)
    group = group_of(inputs)
    # [tile][group of planes][tap][output plane][input plane]
    order = weight.reshape(outputs // width, width, inputs // group, group, 9)
    return _rounds(order.transpose(0, 2, 4, 1, 3), group, terms)


def pack_last(layer: Convolution, width: int, terms: int) -> NDArray[np.float16]:
    """(1, visits, 3 rows of taps, width, group): the columns of taps are columns of the product."""
    inputs, planes = padded(layer.in_planes), layer.out_planes
    weight = np.zeros((3, width, inputs, 1), np.float32)
    # (out, in, ky, kx) to [ky][kx][out][in]
    taps = layer.weight.transpose(2, 3, 0, 1).reshape(3, 3 * planes, layer.in_planes)
    weight[:, : 3 * planes, : layer.in_planes, 0] = taps
    group = group_of(inputs)
    order = weight.reshape(3, width, inputs // group, group).transpose(2, 0, 1, 3)
    return _rounds(order[np.newaxis], group, terms)


def pack_first(layer: Convolution, unit: float) -> NDArray[np.float16]:
    """(2 terms, tiles of 32 output planes, k16, n8, word, lane, 2): fragments of `mma` m16n8k16.

    Value k of an output plane is [ky][kx][plane], each ky padded to an even count. `unit` is what a
    pixel value of 1 is worth, see the kernel.
    """
    inputs, outputs = layer.in_planes, padded(layer.out_planes)
    values = whole(3 * inputs, 2)
    depth = whole(3 * values, 16)
    rows = np.zeros((outputs, 3, values), np.float64)
    taps = layer.weight.transpose(0, 2, 3, 1).reshape(layer.out_planes, 3, 3 * inputs)
    rows[: layer.out_planes, :, : 3 * inputs] = taps * np.float64(unit)
    flat = np.zeros((outputs, depth), np.float32)
    flat[:, : 3 * values] = rows.reshape(outputs, -1)
    # Lane l holds column l // 4 of eight, values 2 * (l % 4) and the next, word 1 those 8 further.
    cut = np.stack(split(flat)).reshape(2, outputs // 32, 4, 8, depth // 16, 2, 4, 2)
    order = cut.transpose(0, 1, 4, 2, 5, 3, 6, 7)
    return np.ascontiguousarray(order).reshape(2, outputs // 32, depth // 16, 4, 2, 32, 2)


def pack_bias(layer: Convolution, planes: int) -> NDArray[np.float32]:
    """(planes,), padded with zeros."""
    bias = np.zeros(planes, np.float32)
    bias[: layer.out_planes] = layer.bias
    return bias


def _rounds(weight: NDArray[np.float32], group: int, terms: int) -> NDArray[np.float16]:
    """[tile][group of planes]... as visits: with two terms, weights high, low and high again."""
    high, low = (swizzled(part, group) for part in split(np.ascontiguousarray(weight)))
    return high if terms == 1 else np.concatenate([high, low, high], axis=1)
