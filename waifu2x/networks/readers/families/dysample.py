"""DySample, an upsampler that learns where to sample the map that it enlarges: RealPLKSR, MoSR and
SPANPlus may end with it (https://arxiv.org/abs/2308.15085)."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.expressions import SIGMOID
from waifu2x.networks.nodes import GridSample, ungrouped
from waifu2x.networks.readers.named_graph import NamedGraph

_GROUPS = 4
"""Groups of planes, where the scale has to be told from the number of offsets."""
_MOST_SCALE = 8
_HALF = np.float32(0.5)
_ROUNDING = 2**-7
"""By how much a stored constant may differ: some files are in bfloat16."""


def dysample(net: NamedGraph, source: int, key: str, scale: int | None = None) -> int:
    """Adds the layers of DySample whose names begin with `key`; returns the map that they enlarge
    `scale` times, by default what _GROUPS groups have offsets for.

    Raises ModelError for shapes that do not fit.
    """
    weights, planes = net.weights, net.planes(source)
    made = weights.planes(f"{key}.offset")
    scale = scale or math.isqrt(made // (2 * _GROUPS))
    groups = made // (2 * max(scale, 1) ** 2)
    if not 1 <= scale <= _MOST_SCALE or made != 2 * groups * scale**2 or not made:
        raise ModelError(f"{net.name}: {key}.offset.weight: {made} planes, scale {scale}")
    # The file's are [x, y][group][sample]; halves of them count.
    order = np.arange(made).reshape(2, groups, scale**2).transpose(2, 1, 0).ravel()
    weight, bias = weights.convolution(f"{key}.offset", 1)
    net.layer = f"{key}.offset"
    moves = net.convolution(source, weight[order] * _HALF, bias[order] * _HALF)
    weight, bias = weights.convolution(f"{key}.scope", 1, has_bias=False)
    net.layer = f"{key}.scope"
    scope = net.convolution(source, weight[order], bias, elementwise(SIGMOID, made))
    inner = (np.arange(scale) - (scale - 1) / 2) / scale
    places = np.stack(np.meshgrid(inner, inner, indexing="xy"))[:, np.newaxis]
    stored = weights.take(f"{key}.init_pos", 1, made, 1, 1).reshape(2, groups, scale, scale)
    if np.abs(stored - places).max() > _ROUNDING:
        raise ModelError(f"{net.name}: {key}.init_pos: other places than the middles of pixels")
    net.layer = f"{key}.init_pos"
    value = net.append(GridSample(source, net.multiply(moves, scope), scale, groups))
    last = f"{key}.end_conv"
    if f"{last}.weight" not in weights and scale == 1:
        return value
    # One convolution of all samples of a pixel, in the order of a shuffle: [plane][sample].
    weight, bias = weights.convolution(last, 1)
    if weight.shape[1] != planes:
        raise ModelError(f"{net.name}: {last}.weight reads {weight.shape[1]} planes, not {planes}")
    whole = ungrouped(np.tile(weight, (scale**2, 1, 1, 1)), scale**2)
    whole = whole.reshape(scale**2, len(bias), -1).swapaxes(0, 1).reshape(-1, planes * scale**2)
    net.layer = last
    value = net.convolution(value, whole[:, :, np.newaxis, np.newaxis], bias.repeat(scale**2))
    return net.pixel_shuffle(value, scale) if scale > 1 else value
