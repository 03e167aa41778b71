"""Packs weights as 16-bit terms in the order in which the kernels of matrix units read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.plan.box import round_up
from waifu2x.networks.activations import Activation

VALUE_BYTES = 2
VECTOR_VALUES = 8
"""The values of a vector of 16 bytes."""


_QUADS = np.arange(32) % 8 // 2 * 8 + np.arange(32) // 8 * 2 + np.arange(32) % 2
"""The plane (0 to 31) of each column of four matrix products of 8 columns, as `pack_quads` orders
them."""


def vectors_of(planes: int) -> int:
    """Returns how many vectors of a pixel of `planes` planes neighbouring threads share."""
    return next(count for count in (8, 4, 1) if planes % (VECTOR_VALUES * count) == 0)


def split(values: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Splits values into high and low terms, whose sum has 22 bits."""
    high = values.astype(np.float16)
    return high, (values - high.astype(np.float32)).astype(np.float16)


def swizzled(block: NDArray[np.float16], group: int) -> NDArray[np.float16]:
    """Reorders the vectors of each row of (..., rows, group) as `swizzle_phase` in
    `kernels/tensor.cuh` does."""
    rows, vectors = block.shape[-2], group // VECTOR_VALUES
    row = np.arange(rows)
    phase = row % 8 if group == 64 else row // 2 % 4
    places = np.arange(vectors) ^ phase[:, np.newaxis]
    cut = block.reshape(*block.shape[:-1], vectors, VECTOR_VALUES)
    return cut[..., row[:, np.newaxis], places, :].reshape(block.shape)


def placed(
    values: NDArray[np.float32], axis: int, places: NDArray[np.intp], count: int
) -> NDArray[np.float32]:
    """Spreads values along `axis` to `places` of `count`, with zeros elsewhere."""
    shape = list(values.shape)
    shape[axis] = count
    result = np.zeros(shape, np.float32)
    np.moveaxis(result, axis, 0)[places] = np.moveaxis(values, axis, 0)
    return result


def pack_middle(
    weight: NDArray[np.float32], width: int, group: int, terms: int
) -> NDArray[np.float16]:
    """Packs (out, in, side, side) as (tiles of `width` outputs, K-blocks, taps, width, group)."""
    outputs, inputs = weight.shape[:2]
    # [tile][group of planes][tap][output plane][input plane]
    order = weight.reshape(outputs // width, width, inputs // group, group, -1)
    return _rounds(order.transpose(0, 2, 4, 1, 3), group, terms)


def pack_quads(
    weight: NDArray[np.float32], width: int, group: int, terms: int
) -> NDArray[np.float16]:
    """Packs as `pack_middle`, in the order of output planes by which `mma` leaves each thread of a
    quad with eight neighbours: column c of product i of 32 planes is c // 2 * 8 + i * 2 + c % 2."""
    outputs = np.arange(0, weight.shape[0], 32)[:, np.newaxis] + _QUADS
    return pack_middle(weight[outputs.ravel()], width, group, terms)


def pack_rows(
    weight: NDArray[np.float32], width: int, group: int, terms: int
) -> NDArray[np.float16]:
    """Packs (out, in, side, side) as (tiles of `width` = 64 output planes, groups, taps, k16,
    128, 4, 2): fragments of `wgmma` m64k16 in registers, of one term.

    Thread 32 * w + l holds output plane 16 * w + l // 4 in words 0 and 2, and the plane 8 further
    in words 1 and 3; each word holds input planes l % 4 * 2 and the next, words 2 and 3 those 8
    further.
    """
    outputs, inputs = weight.shape[:2]
    assert (width, terms) == (64, 1)
    taps = weight.astype(np.float16).reshape(outputs, inputs, -1)
    # [tile][warp][word % 2][lane // 4] [group][k16][word // 2][lane % 4][2] [tap]
    cut = taps.reshape(outputs // 64, 4, 2, 8, inputs // group, group // 16, 2, 4, 2, -1)
    order = cut.transpose(0, 4, 9, 5, 1, 3, 7, 6, 2, 8)
    return np.ascontiguousarray(order).reshape(*order.shape[:4], 128, 4, 2)


def pack_rolling(
    weight: NDArray[np.float32], width: int, group: int, terms: int
) -> NDArray[np.float16]:
    """Packs (out, in, 3, 3) as (tiles of `width` output planes, groups, kx, 5, width, group), of
    one term: taps ky = 2, 1, 0, 2, 1, so that any three consecutive ones are all three."""
    outputs, inputs = weight.shape[:2]
    assert terms == 1
    cut = weight[:, :, [2, 1, 0, 2, 1]].reshape(
        outputs // width, width, inputs // group, group, 5, 3
    )
    order = np.ascontiguousarray(cut.transpose(0, 2, 5, 4, 1, 3))
    return swizzled(order.astype(np.float16), group)


def pack_last(
    weight: NDArray[np.float32], width: int, group: int, terms: int
) -> NDArray[np.float16]:
    """Packs (out, in, side, side) as (1, K-blocks, rows of taps, width, group): the taps of a row
    are columns of the matrix product."""
    outputs, inputs, side = weight.shape[:3]
    columns = np.zeros((side, width, inputs), np.float32)
    # (out, in, ky, kx) to [ky][kx][out][in]
    taps = weight.transpose(2, 3, 0, 1).reshape(side, side * outputs, inputs)
    columns[:, : side * outputs] = taps
    order = columns.reshape(side, width, inputs // group, group).transpose(2, 0, 1, 3)
    return _rounds(order[np.newaxis], group, terms)


def pack_first(weight: NDArray[np.float32], unit: float, is_last: bool) -> NDArray[np.float16]:
    """Packs (out, in, side, side) as (tiles of 32 output planes, k16, n8, lane, 2 terms, word, 2):
    fragments of `mma` m16n8k16.

    Output planes are in the order of `pack_quads`, unless they become pixels. Value k of an output
    plane is [ky][kx][plane], each ky padded to an even count. `unit` is the number by which the
    kernel reads a pixel value of 1.
    """
    outputs, inputs, side = weight.shape[:3]
    values = round_up(side * inputs, 2)
    depth = round_up(side * values, 16)
    rows = np.zeros((outputs, side, values), np.float64)
    taps = weight.transpose(0, 2, 3, 1).reshape(outputs, side, side * inputs)
    rows[:, :, : side * inputs] = taps * np.float64(unit)
    flat = np.zeros((outputs, depth), np.float32)
    flat[:, : side * values] = rows.reshape(outputs, -1)
    # Lane l holds column l // 4 of eight: values 2 * (l % 4) and the next, in word 1 those 8
    # further.
    if not is_last:
        flat = flat.reshape(-1, 32, depth)[:, _QUADS].reshape(outputs, depth)
    cut = np.stack(split(flat)).reshape(2, outputs // 32, 4, 8, depth // 16, 2, 4, 2)
    order = cut.transpose(1, 4, 2, 3, 6, 0, 5, 7)
    return np.ascontiguousarray(order).reshape(outputs // 32, depth // 16, 4, 32, 2, 2, 2)


def pack_epilogue(
    bias: NDArray[np.float32],
    activation: Activation,
    places: Sequence[int] | NDArray[np.intp],
    planes: int,
) -> NDArray[np.float32]:
    """Packs biases and slopes as (2, planes), at `places`, with zeros elsewhere."""
    epilogue = np.zeros((2, planes), np.float32)
    epilogue[0, places] = bias
    epilogue[1, places] = activation.slopes
    return epilogue


def _rounds(weight: NDArray[np.float32], group: int, terms: int) -> NDArray[np.float16]:
    """Returns [tile][group of planes]... as K-blocks: with two terms, three for each group, of
    high, low and again high weights."""
    weight = np.ascontiguousarray(weight)
    if terms == 1:
        return swizzled(weight.astype(np.float16), group)
    high, low = (swizzled(part, group) for part in split(weight))
    return np.concatenate([high, low, high], axis=1)
