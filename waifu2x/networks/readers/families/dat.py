"""DAT: attention in windows and between planes by turns, each beside a convolution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.attention import ChannelAttention, PlanesFrom, WindowAttention
from waifu2x.networks.expressions import GELU, SIGMOID, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.ends import FirstAndLast, residual_convolution
from waifu2x.networks.readers.families.swin import linear, normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights
from waifu2x.networks.windows import Windows

_EPS = 1e-5
_MOST_WINDOW = 64
_DERIVED = r".*\.(relative_position_index|num_batches_tracked|attn_mask_[01])"
"""Tensors that follow from others: most of a file, and never read."""

Numbers = NDArray[np.float32]


def dat(weights: NamedWeights) -> Model:
    """Builds groups of blocks, each group with a convolution at its end."""
    ends = FirstAndLast(weights, 1.0)
    net = ends.net
    start = ends.begin()
    value = normalised(net, start, "before_RG.1")
    for group in range(weights.count("layers.{}.blocks.0.norm1")):
        outer = value
        for block in range(weights.count(f"layers.{group}.blocks.{{}}.norm1")):
            is_shifted = block % 4 == (2 if group % 2 == 0 else 0)
            value = _block(net, value, f"layers.{group}.blocks.{block}", is_shifted)
        value = net.add(residual_convolution(net, value, f"layers.{group}.conv"), outer)
    value = residual_convolution(net, normalised(net, value, "norm"), "conv_after_body")
    ends.finish(net.add(value, start))
    weights.ignore(_DERIVED)
    return net.model("zero", same_planes=True)


def _block(net: NamedGraph, source: int, key: str, is_shifted: bool) -> int:
    attn, planes = f"{key}.attn", net.planes(source)
    joined, own = _queries_keys_and_values(net, normalised(net, source, f"{key}.norm1"), attn)
    beside = _depthwise(net, own, f"{attn}.dwconv.0", f"{attn}.dwconv.1", GELU)
    if f"{attn}.temperature" in net.weights:
        temperature = net.weights.take(f"{attn}.temperature", None, 1, 1).reshape(-1)
        parts = PlanesFrom(joined), PlanesFrom(joined, planes), PlanesFrom(own)
        net.layer = attn[:80]
        made = net.append(ChannelAttention(*parts, planes, temperature))
        by_pixel, by_plane = _of_pixels(net, beside, attn), _of_planes(net, made, attn)
        first, second = net.multiply(made, by_pixel), net.multiply(beside, by_plane)
    else:
        made = _in_windows(net, joined, own, attn, is_shifted)
        by_pixel, by_plane = _of_pixels(net, made, attn), _of_planes(net, beside, attn)
        first, second = net.multiply(made, by_plane), net.multiply(beside, by_pixel)
    value = net.add(linear(net, net.add(first, second), f"{attn}.proj"), source)
    return net.add(_mixed(net, normalised(net, value, f"{key}.norm2"), f"{key}.ffn"), value)


def _queries_keys_and_values(net: NamedGraph, source: int, key: str) -> tuple[int, int]:
    """Adds a map of queries and keys, and one of values, which a convolution reads as well."""
    planes = net.planes(source)
    net.layer = f"{key}.qkv"[:80]
    weight = net.weights.take(f"{key}.qkv.weight", 3 * planes, planes)[:, :, np.newaxis, np.newaxis]
    bias = np.zeros(3 * planes, np.float32)
    if f"{key}.qkv.bias" in net.weights:
        bias = net.weights.take(f"{key}.qkv.bias", 3 * planes)
    both = slice(2 * planes), slice(2 * planes, None)
    joined, own = (net.convolution(source, weight[part], bias[part]) for part in both)
    return joined, own


def _in_windows(net: NamedGraph, joined: int, own: int, key: str, is_shifted: bool) -> int:
    """Adds attention, half of the planes in windows that lie, the others in windows that stand."""
    planes = net.planes(own)
    sides = [_window(net.weights, f"{key}.attns.{half}") for half in (0, 1)]
    filled, halves = max(map(max, sides)), []
    for half, (rows, columns) in enumerate(sides):
        bias = _biases(net.weights, f"{key}.attns.{half}", rows, columns)
        shifts = (rows // 2, columns // 2) if is_shifted else (0, 0)
        windows = Windows(rows, columns, *shifts, filled_to=filled)
        first = half * (planes // 2)
        parts = (
            PlanesFrom(joined, first),
            PlanesFrom(joined, planes + first),
            PlanesFrom(own, first),
        )
        net.layer = f"{key}.attns.{half}"[:80]
        scale = (planes // 2 / len(bias)) ** -0.5
        made = net.append(WindowAttention(*parts, planes // 2, windows, scale, bias))
        halves.append(made)
    return net.concatenate(*halves)


def _window(weights: NamedWeights, key: str) -> tuple[int, int]:
    """Returns rows and columns of a window, one more than the furthest key of a query."""
    last = weights.take(f"{key}.rpe_biases", None, 2)[-1]
    rows, columns = (int(each) + 1 for each in last)
    count = weights.length(f"{key}.rpe_biases", 0)
    if not (0 < rows <= _MOST_WINDOW and 0 < columns <= _MOST_WINDOW) or (
        count != (2 * rows - 1) * (2 * columns - 1)
    ):
        raise ModelError(f"{weights.name}: {key[:80]}.rpe_biases is no table of places")
    return rows, columns


def _biases(weights: NamedWeights, key: str, rows: int, columns: int) -> Numbers:
    """Returns (heads, 2 rows - 1, 2 columns - 1), which a small network makes of each place."""
    down, along = np.arange(1 - rows, rows), np.arange(1 - columns, columns)
    places = np.stack(np.meshgrid(down, along, indexing="ij"), axis=-1).reshape(-1, 2)

    def dense(values: NDArray[np.float64], layer: str) -> NDArray[np.float64]:
        weight = weights.take(f"{layer}.weight", None, values.shape[1])
        weights.budget.take_bytes(values.itemsize * len(values) * len(weight))
        made: NDArray[np.float64] = values @ weight.T.astype(np.float64)
        return made + weights.take(f"{layer}.bias", len(weight))

    values = dense(places.astype(np.float64), f"{key}.pos.pos_proj")
    for step in (1, 2, 3):
        inner = f"{key}.pos.pos{step}"
        width = values.shape[1]
        scale, shift = (weights.take(f"{inner}.0.{part}", width) for part in ("weight", "bias"))
        centred = values - values.mean(axis=1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + _EPS)
        values = dense((centred / spread * scale + shift).clip(0), f"{inner}.2")
    table = values.reshape(2 * rows - 1, 2 * columns - 1, -1)
    # In the file a place is the query's less the key's.
    return np.ascontiguousarray(table[::-1, ::-1].transpose(2, 0, 1), np.float32)


def _folded_norm(
    weights: NamedWeights, key: str, weight: Numbers, bias: Numbers
) -> tuple[Numbers, Numbers]:
    """Returns a layer and the batch norm behind it as one."""
    planes = len(bias)
    scale, shift, mean, variance = (
        weights.take(f"{key}.{part}", planes).astype(np.float64)
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    if (variance + _EPS <= 0).any():
        raise ModelError(f"{weights.name}: {key[:80]}.running_var is below 0")
    factors = scale / np.sqrt(variance + _EPS)
    folded = weight * factors.reshape(-1, *[1] * (weight.ndim - 1))
    return folded.astype(np.float32), ((bias - mean) * factors + shift).astype(np.float32)


def _depthwise(
    net: NamedGraph, source: int, key: str, norm: str | None, function: Expression | None
) -> int:
    """Adds a 3x3 convolution of each plane, with a norm and a function, if given."""
    planes = net.planes(source)
    weight = net.weights.take(f"{key}.weight", planes, 1, 3, 3)
    bias = net.weights.take(f"{key}.bias", planes)
    if norm:
        weight, bias = _folded_norm(net.weights, norm, weight, bias)
    net.layer = key[:80]
    activation = elementwise(function, planes) if function else None
    return net.convolution(source, weight, bias, activation, groups=planes, padding=1)


def _of_planes(net: NamedGraph, source: int, key: str) -> int:
    """Adds a factor for each plane, made of the means over the picture."""
    key = f"{key}.channel_interaction"
    weight, bias = _folded_norm(net.weights, f"{key}.2", *net.weights.convolution(f"{key}.1", 1))
    net.layer = key[:80]
    inner = elementwise(GELU, len(bias))
    value = net.dense(net.mean(source), weight[:, :, 0, 0], bias, inner)
    weight, bias = net.weights.convolution(f"{key}.4", 1)
    return net.dense(value, weight[:, :, 0, 0], bias, elementwise(SIGMOID, len(bias)))


def _of_pixels(net: NamedGraph, source: int, key: str) -> int:
    """Adds a factor for each pixel, made of its planes."""
    key = f"{key}.spatial_interaction"
    weight, bias = _folded_norm(net.weights, f"{key}.1", *net.weights.convolution(f"{key}.0", 1))
    net.layer = key[:80]
    value = net.convolution(source, weight, bias, elementwise(GELU, len(bias)))
    weight, bias = net.weights.convolution(f"{key}.3", 1)
    return net.convolution(value, weight, bias, elementwise(SIGMOID, len(bias)))


def _mixed(net: NamedGraph, source: int, key: str) -> int:
    """Adds two linear layers, half of the planes between them a gate of the others."""
    made = linear(net, source, f"{key}.fc1", GELU)
    if net.planes(made) % 2:
        raise ModelError(f"{net.name}: {key[:80]}.fc1.weight makes {net.planes(made)} planes")
    half = net.planes(made) // 2
    value, gate = net.split(made, half, half)
    gate = _depthwise(net, normalised(net, gate, f"{key}.sg.norm"), f"{key}.sg.conv", None, None)
    return linear(net, net.multiply(value, gate), f"{key}.fc2")
