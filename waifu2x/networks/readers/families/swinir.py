"""SwinIR, SRFormer, HAT and DRCT: blocks of attention in windows between convolutions."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.attention import PlanesFrom, WindowAttention
from waifu2x.networks.expressions import GELU
from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.ends import FirstAndLast, residual_convolution
from waifu2x.networks.readers.families.swin import attention, bias_of, linear, mixed, normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights
from waifu2x.networks.windows import Windows

_JPEG_WINDOW = 7
"""Windows of models that clean JPEGs, whose values go up to 255. Not stored otherwise."""
_BESIDE = 0.01
"""The factor of HAT's convolutions beside attention. Not stored."""
_DERIVED = (
    r".*\.(attn_mask|relative_position_index|aligned_relative_position_index|mean)"
    r"|relative_position_index_(SA|OCA)"
)
"""Tensors that follow from others: their numbers are never read."""


def swinir(weights: NamedWeights) -> Model:
    """Builds groups of blocks, each group with a convolution at its end."""
    first = "layers.0.residual_group.blocks.0"
    if "absolute_pos_embed" in weights:
        raise ModelError(f"{weights.name}: positions that depend on the size: not supported")
    window = _window(weights, f"{first}.attn")
    ends = FirstAndLast(weights, 255.0 if window == _JPEG_WINDOW else 1.0)
    net = ends.net
    start = value = ends.begin()
    value = normalised(net, value, "patch_embed.norm")
    for group in range(weights.count("layers.{}.residual_group.blocks.0.norm1")):
        key, outer = f"layers.{group}", value
        for block in range(weights.count(f"{key}.residual_group.blocks.{{}}.norm1")):
            value = _block(net, value, f"{key}.residual_group.blocks.{block}", block % 2 == 1)
        if f"{key}.residual_group.overlap_attn.qkv.weight" in weights:
            value = _overlapped(net, value, f"{key}.residual_group.overlap_attn", window)
        value = net.add(residual_convolution(net, value, f"{key}.conv"), outer)
    value = normalised(net, value, "norm")
    value = net.add(residual_convolution(net, value, "conv_after_body"), start)
    ends.finish(value)
    weights.ignore(_DERIVED)
    return net.model("reflect", same_planes=True, multiple=window * ends.unshuffle)


def _window(weights: NamedWeights, key: str) -> int:
    cell = 2 if f"{key}.kv.weight" in weights else 1
    count = weights.length(f"{key}.relative_position_bias_table", 0)
    return (math.isqrt(count) + 1) // 2 * cell


def _block(net: NamedGraph, source: int, key: str, is_shifted: bool) -> int:
    normal = normalised(net, source, f"{key}.norm1")
    if f"{key}.attn.kv.weight" in net.weights:
        made = _with_cells(net, normal, f"{key}.attn", is_shifted)
    else:
        made = attention(net, normal, f"{key}.attn", is_shifted=is_shifted)
    value = net.add(made, source)
    if f"{key}.conv_block.cab.0.weight" in net.weights:
        value = net.add(_beside(net, normal, f"{key}.conv_block.cab"), value, _BESIDE)
    normal = normalised(net, value, f"{key}.norm2")
    deep = "mlp.dwconv.depthwise_conv.0"
    if f"{key}.{deep}.weight" not in net.weights:
        return net.add(mixed(net, normal, f"{key}.mlp.fc1", f"{key}.mlp.fc2"), value)
    inner = linear(net, normal, f"{key}.mlp.fc1", GELU)
    taps = net.weights.length(f"{key}.{deep}.weight", 2)
    near = net.depthwise(inner, f"{key}.{deep}", taps, elementwise(GELU, net.planes(inner)))
    return net.add(linear(net, net.add(near, inner), f"{key}.mlp.fc2"), value)


def _with_cells(net: NamedGraph, source: int, key: str, is_shifted: bool) -> int:
    """Adds SRFormer's attention: a quarter of the keys, each made of 2x2 pixels."""
    weights, planes = net.weights, net.planes(source)
    bias = bias_of(weights, f"{key}.relative_position_bias_table")
    window = bias.shape[1] + 1
    shift = window // 2 if is_shifted else 0
    queries = linear(net, source, f"{key}.q")
    if planes % 4:
        raise ModelError(f"{net.name}: {key[:80]}.kv: {planes} planes do not divide by four")
    part = planes // 4
    small = weights.take(f"{key}.kv.weight", 2 * part, planes)
    shifts = weights.take(f"{key}.kv.bias", 2 * part)
    # A linear layer of each pixel of a cell, joined, is a convolution of 2x2 taps.
    weights.budget.take_bytes(4 * 2 * planes * planes * 4)
    kernel = np.zeros((2, 4, part, planes, 2, 2), np.float32)
    for place in range(4):
        kernel[:, place, :, :, place // 2, place % 2] = small.reshape(2, part, planes)
    joined_bias = np.tile(shifts.reshape(2, 1, part), (1, 4, 1)).reshape(-1)
    net.layer = f"{key}.kv"[:80]
    joined = kernel.reshape(2 * planes, planes, 2, 2)
    cells = net.convolution(source, joined, joined_bias, stride=2)
    windows = Windows(window, window, shift, shift, cell=2)
    parts = PlanesFrom(queries), PlanesFrom(cells), PlanesFrom(cells, planes)
    scale = (planes / len(bias)) ** -0.5
    made = net.append(WindowAttention(*parts, planes, windows, scale, bias))
    return linear(net, made, f"{key}.proj")


def _beside(net: NamedGraph, source: int, key: str) -> int:
    """Adds HAT's convolutions beside attention, squeezed and excited."""
    inner = net.weights.planes(f"{key}.0")
    value = net.same_size(source, f"{key}.0", elementwise(GELU, inner))
    value = net.same_size(value, f"{key}.2")
    return net.squeeze_and_excite(value, f"{key}.3.attention.1", f"{key}.3.attention.3")


def _overlapped(net: NamedGraph, source: int, key: str, window: int) -> int:
    """Adds HAT's attention to keys around the windows, too."""
    table = net.weights.take(f"{key}.relative_position_bias_table", None, None)
    side = math.isqrt(len(table))  # window + keys - 1
    keys = side - window + 1
    if side**2 != len(table) or keys < window or (keys - window) % 2:
        raise ModelError(f"{net.name}: {key[:80]} has no table of biases")
    # The reference counts from the far end; negative indices count from the table's end.
    along = np.arange(side) - keys + 2
    places = (along[:, np.newaxis] * side + along) % len(table)
    bias = np.ascontiguousarray(table[places].transpose(2, 0, 1))
    planes = net.planes(source)
    joined = linear(net, normalised(net, source, f"{key}.norm1"), f"{key}.qkv")
    parts = [PlanesFrom(joined, first * planes) for first in range(3)]
    windows = Windows(window, window, overlap=(keys - window) // 2)
    net.layer = key[:80]
    scale = (planes / len(bias)) ** -0.5
    made = net.append(WindowAttention(parts[0], parts[1], parts[2], planes, windows, scale, bias))
    value = net.add(linear(net, made, f"{key}.proj"), source)
    normal = normalised(net, value, f"{key}.norm2")
    return net.add(mixed(net, normal, f"{key}.mlp.fc1", f"{key}.mlp.fc2"), value)


def drct(weights: NamedWeights) -> Model:
    """Builds groups of five blocks; each reads the results of all before it."""
    window = _window(weights, "layers.0.swin1.attn")
    ends = FirstAndLast(weights, 1.0)
    net = ends.net
    start = value = ends.begin()
    value = normalised(net, value, "patch_embed.norm")
    for group in range(weights.count("layers.{}.swin1.norm1")):
        key, parts, made = f"layers.{group}", [value], value
        for number in range(1, 6):
            read = parts[0] if number == 1 else net.concatenate(*parts)
            made = _block(net, read, f"{key}.swin{number}", number % 2 == 0)
            slope = 0.2 if number < 5 else 1.0
            made = net.same_size(made, f"{key}.adjust{number}", slope, taps=1)
            parts.append(made)
        value = net.add(made, value, 0.2)
    value = net.add(
        residual_convolution(net, normalised(net, value, "norm"), "conv_after_body"), start
    )
    ends.finish(value)
    weights.ignore(_DERIVED)
    return net.model("reflect", same_planes=True, multiple=window)
