"""OmniSR: attention between pixels and between planes, each in windows and then in grids that are
spread over the whole picture."""

from __future__ import annotations

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, elementwise
from waifu2x.networks.attention import ChannelAttention, PlanesFrom, WindowAttention
from waifu2x.networks.expressions import GELU, SIGMOID, SILU, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Interleave, InterpolateTo, MaxPool
from waifu2x.networks.readers.families.swin import bias_of, linear, normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights
from waifu2x.networks.windows import Windows

_HEADS = 4
_EPS = 1e-6
"""For norms before convolutions; those before linear layers have the usual one."""
_WINDOW = 8
"""The size of windows where no biases tell it."""
_COUNTED = r".*(total_ops|total_params)"
"""Tensors that programs which count operations leave behind."""


def omnisr(weights: NamedWeights) -> Model:
    """Builds groups of blocks between two convolutions, the map padded to whole windows."""
    net = NamedGraph(weights, weights.length("input.weight", 1))
    side = _WINDOW
    table = "residual_layer.0.residual_layer.0.layer.2.fn.rel_pos_bias.weight"
    if table in weights:
        side = (bias_of(weights, table).shape[1] + 1) // 2
    first = value = _same(net, 0, "input")
    for group in range(weights.count("residual_layer.{}.esa.conv1")):
        key, outer = f"residual_layer.{group}", value
        blocks = weights.count(f"{key}.residual_layer.{{}}.layer.0.fn.0")
        for block in range(blocks):
            value = _block(net, value, f"{key}.residual_layer.{block}.layer", side)
        value = net.add(_same(net, value, f"{key}.residual_layer.{blocks}", taps=1), outer)
        value = _weighed_pixels(net, value, f"{key}.esa")
    value = net.add(_same(net, value, "output"), first)
    net.last_convolution(value, "up.0", has_bias="up.0.bias" in weights)
    weights.ignore(_COUNTED)
    return net.model("zero", same_planes=True, multiple=side)


def _block(net: NamedGraph, source: int, key: str, side: int) -> int:
    """Adds the layers of a block, numbered as in the file."""
    value = _convolved(net, source, f"{key}.0.fn")
    value = _between_pixels(net, value, f"{key}.2", side)
    value = _gated(net, value, f"{key}.4")
    value = _between_planes(net, value, f"{key}.5", window=side)
    value = _gated(net, value, f"{key}.6")
    spread = _between_pixels(net, net.append(Interleave(value, side)), f"{key}.8", side, inner=True)
    value = net.add(net.append(Interleave(spread, side, inverse=True)), value)
    value = _gated(net, value, f"{key}.10")
    value = _between_planes(net, value, f"{key}.11", period=side)
    return _gated(net, value, f"{key}.12")


def _convolved(net: NamedGraph, source: int, key: str) -> int:
    """Adds a convolution of each plane between two of one tap, squeezed and excited."""
    value = _same(net, source, f"{key}.0", GELU, taps=1)
    value = _each(net, value, f"{key}.2", 0, net.planes(value), GELU)
    factors = net.mean(value)
    for layer, function in ((f"{key}.4.gate.1", SILU), (f"{key}.4.gate.3", SIGMOID)):
        net.layer = layer[:80]
        weight = net.weights.take(f"{layer}.weight", None, None)
        none = np.zeros(len(weight), np.float32)
        factors = net.dense(factors, weight, none, elementwise(function, len(weight)))
    value = net.multiply(value, factors)
    return net.add(_same(net, value, f"{key}.5", taps=1), source)


def _between_pixels(
    net: NamedGraph, source: int, key: str, side: int, *, inner: bool = False
) -> int:
    """Adds attention in windows to the map; with `inner`, returns attention alone."""
    planes = net.planes(source)
    joined = linear(net, normalised(net, source, f"{key}.norm"), f"{key}.fn.to_qkv")
    bias = np.zeros((_HEADS, 2 * side - 1, 2 * side - 1), np.float32)
    if f"{key}.fn.rel_pos_bias.weight" in net.weights:
        bias = bias_of(net.weights, f"{key}.fn.rel_pos_bias.weight")
    queries, keys, values = (PlanesFrom(joined, first * planes) for first in range(3))
    net.layer = key[:80]
    windows, scale = Windows(side, side), (planes / _HEADS) ** -0.5
    made = net.append(WindowAttention(queries, keys, values, planes, windows, scale, bias))
    made = linear(net, made, f"{key}.fn.to_out.0")
    return made if inner else net.add(made, source)


def _between_planes(
    net: NamedGraph, source: int, key: str, *, window: int = 0, period: int = 1
) -> int:
    """Adds attention between planes to the map."""
    planes = net.planes(source)
    joined = _same(net, normalised(net, source, f"{key}.norm", _EPS), f"{key}.fn.qkv", taps=1)
    joined = _each(net, joined, f"{key}.fn.qkv_dwconv", 0, 3 * planes)
    queries, keys, values = (PlanesFrom(joined, first * planes) for first in range(3))
    temperature = net.weights.take(f"{key}.fn.temperature", _HEADS, 1, 1).reshape(-1)
    net.layer = key[:80]
    made = net.append(
        ChannelAttention(queries, keys, values, planes, temperature, window=window, period=period)
    )
    return net.add(_same(net, made, f"{key}.fn.project_out", taps=1), source)


def _gated(net: NamedGraph, source: int, key: str) -> int:
    """Adds to the map half of the planes of a convolution of each, times the other half."""
    made = _same(net, normalised(net, source, f"{key}.norm", _EPS), f"{key}.fn.project_in", taps=1)
    half, over = divmod(net.planes(made), 2)
    if over:
        raise ModelError(
            f"{net.name}: {key[:80]}.fn.project_in.weight makes {net.planes(made)} planes"
        )
    layer = f"{key}.fn.dwconv"
    first, second = net.split(made, half, half)
    value = net.multiply(
        _each(net, first, layer, 0, 2 * half, GELU), _each(net, second, layer, half, 2 * half)
    )
    return net.add(_same(net, value, f"{key}.fn.project_out", taps=1), source)


def _weighed_pixels(net: NamedGraph, source: int, key: str) -> int:
    """Multiplies by factors from 0 to 1, which a reduced map makes of the surroundings."""
    few = _same(net, source, f"{key}.conv1", taps=1)
    net.layer = f"{key}.conv2"[:80]
    weight, bias = net.weights.convolution(f"{key}.conv2")
    reduced = net.append(MaxPool(net.convolution(few, weight, bias, stride=2), 7, 3))
    reduced = net.append(InterpolateTo(_same(net, reduced, f"{key}.conv3"), few))
    both = net.add(reduced, _same(net, few, f"{key}.conv_f", taps=1))
    return net.multiply(source, _same(net, both, f"{key}.conv4", SIGMOID, taps=1))


def _same(
    net: NamedGraph, source: int, layer: str, function: Expression | None = None, *, taps: int = 3
) -> int:
    """Adds a convolution that keeps the size, with a bias, if it is stored, and a function."""
    activation: float | Activation = 1.0
    if function:
        activation = elementwise(function, net.weights.planes(layer))
    has_bias = f"{layer}.bias" in net.weights
    return net.same_size(source, layer, activation, taps=taps, has_bias=has_bias)


def _each(
    net: NamedGraph,
    source: int,
    layer: str,
    first: int,
    planes: int,
    function: Expression | None = None,
) -> int:
    """Adds a 3x3 convolution of each plane of a map, with a bias, if it is stored.

    Its kernels are those from `first` on of a layer of `planes`.
    """
    net.layer = layer[:80]
    own = slice(first, first + net.planes(source))
    weight = net.weights.take(f"{layer}.weight", planes, 1, 3, 3)[own]
    bias = np.zeros(len(weight), np.float32)
    if f"{layer}.bias" in net.weights:
        bias = net.weights.take(f"{layer}.bias", planes)[own]
    activation = elementwise(function, len(weight)) if function else None
    return net.convolution(source, weight, bias, activation, groups=len(weight), padding=1)
