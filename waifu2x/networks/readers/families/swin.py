"""Parts of networks of window attention: linear layers, tables of biases, and blocks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.attention import PlanesFrom, WindowAttention
from waifu2x.networks.expressions import GELU, Expression
from waifu2x.networks.nodes import LayerNorm
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights
from waifu2x.networks.windows import Windows


def linear(net: NamedGraph, source: int, layer: str, function: Expression | None = None) -> int:
    """Adds a linear layer, with a bias, if stored, and a function: a convolution of one tap."""
    net.layer = layer[:80]
    weight = net.weights.take(f"{layer}.weight", None, None)
    bias = np.zeros(len(weight), np.float32)
    if f"{layer}.bias" in net.weights:
        bias = net.weights.take(f"{layer}.bias", len(weight))
    activation = elementwise(function, len(bias)) if function else None
    return net.convolution(source, weight[:, :, np.newaxis, np.newaxis], bias, activation)


def normalised(net: NamedGraph, source: int, layer: str, eps: float = 1e-5) -> int:
    """Adds a LayerNorm over the planes of each pixel."""
    planes = net.planes(source)
    net.layer = layer[:80]
    weight, bias = (net.weights.take(f"{layer}.{part}", planes) for part in ("weight", "bias"))
    return net.append(LayerNorm(source, weight, bias, eps))


def bias_of(weights: NamedWeights, key: str) -> NDArray[np.float32]:
    """Returns a table of biases of windows of w x w, (heads, 2 w - 1, 2 w - 1).

    It is indexed by a key's place less its query's; the file's, (rows, heads), by the opposite.
    """
    side = math.isqrt(weights.length(key, 0))
    if side % 2 == 0 or side**2 != weights.length(key, 0):
        raise ModelError(f"{weights.name}: {key[:80]} is no table of biases")
    table = weights.take(key, None, None)
    return np.ascontiguousarray(table.reshape(side, side, -1)[::-1, ::-1].transpose(2, 0, 1))


def attention(
    net: NamedGraph, source: int, key: str, *, is_shifted: bool, shifts_single: bool = True
) -> int:
    """Adds attention in square windows, of queries, keys and values of one layer, and a linear
    layer."""
    bias = bias_of(net.weights, f"{key}.relative_position_bias_table")
    side, planes = (bias.shape[1] + 1) // 2, net.planes(source)
    shift = side // 2 if is_shifted else 0
    windows = Windows(side, side, shift, shift, shifts_single=shifts_single)
    joined = linear(net, source, f"{key}.qkv")
    parts = [PlanesFrom(joined, first * planes) for first in range(3)]
    net.layer = key[:80]
    scale = (planes / len(bias)) ** -0.5
    made = net.append(WindowAttention(parts[0], parts[1], parts[2], planes, windows, scale, bias))
    return linear(net, made, f"{key}.proj")


def mixed(net: NamedGraph, source: int, first: str, last: str) -> int:
    """Adds two linear layers, GELU between them."""
    return linear(net, linear(net, source, first, GELU), last)
