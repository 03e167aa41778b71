"""MoSR: gated blocks of convolutions, one of them of each plane with a large kernel."""

from __future__ import annotations

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.expressions import MISH
from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.dysample import dysample
from waifu2x.networks.readers.families.swin import normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights, scale_of

_EPS = 1e-6
_SHIFT = -0.5
"""The shift of each block and of the shortcut. Not stored."""
_TURNED = 8
"""Groups of planes that one kind of upsampler takes the mean of."""


def mosr(weights: NamedWeights) -> Model:
    """Builds blocks between convolutions, a shortcut beside them, and a last one that is shuffled,
    or DySample."""
    net = NamedGraph(weights, weights.length("gblocks.0.weight", 1))
    value, block = net.same_size(0, "gblocks.0"), 1
    while f"gblocks.{block}.fc1.weight" in weights:
        value = _block(net, value, f"gblocks.{block}")
        block += 1
    value = _with_mish(net, _with_mish(net, value, f"gblocks.{block}"), f"gblocks.{block + 2}")
    value = net.same_size(value, f"gblocks.{block + 4}", taps=1)
    beside = _with_mish(net, _with_mish(net, 0, "shortcut.block.0"), "shortcut.block.2")
    beside = net.add(_shifted(net, 0, "shortcut.conv11"), beside)
    value = net.add(value, beside)
    if "upsampler.offset.weight" in weights:
        dysample(net, value, "upsampler")
        return net.model("zero", same_planes=True)
    value = _upsampled(net, value)
    scale = scale_of(net.planes(value), net.planes(0), f"{weights.name}: upsampler")
    if scale > 1:
        net.pixel_shuffle(value, scale)
    return net.model("zero", same_planes=True)


def _with_mish(net: NamedGraph, source: int, layer: str) -> int:
    return net.same_size(source, layer, elementwise(MISH, net.weights.planes(layer)))


def _shifted(net: NamedGraph, source: int, layer: str) -> int:
    """Adds a convolution of one tap, less a half."""
    weight, bias = net.weights.convolution(layer, 1)
    net.layer = layer
    return net.convolution(source, weight, bias + np.float32(_SHIFT))


def _block(net: NamedGraph, source: int, key: str) -> int:
    weights, planes = net.weights, net.planes(source)
    made = net.same_size(normalised(net, source, f"{key}.norm", _EPS), f"{key}.fc1")
    mixed = weights.planes(f"{key}.conv")
    inner = net.planes(made) // 2
    if not inner - mixed >= 0 or net.planes(made) % 2:
        raise ModelError(f"{weights.name}: {key[:80]}: {mixed} planes of {inner} are convolved")
    rest = [inner - mixed] if inner > mixed else []
    gate, *kept, large = net.split(made, inner, *rest, mixed)
    large = net.depthwise(large, f"{key}.conv", weights.length(f"{key}.conv.weight", 2))
    gate = net.activate(gate, elementwise(MISH, inner))
    joined = net.concatenate(*kept, large) if kept else large
    value = _with_mish(net, net.multiply(gate, joined), f"{key}.fc2")
    net.layer = key[:80]
    moved = net.affine(source, np.ones(planes, np.float32), np.full(planes, _SHIFT, np.float32))
    return net.add(value, moved)


def _upsampled(net: NamedGraph, source: int) -> int:
    """Adds the last convolution: one, or the mean of eight, which is one too."""
    if "upsampler.in_to_k.weight" not in net.weights:
        return net.same_size(source, "upsampler.0")
    weight, bias = net.weights.convolution("upsampler.in_to_k")
    if len(bias) % _TURNED:
        raise ModelError(f"{net.name}: upsampler.in_to_k.weight: {len(bias)} planes of eight")
    net.layer = "upsampler.in_to_k"
    weight = weight.reshape(_TURNED, -1, *weight.shape[1:]).mean(axis=0)
    return net.convolution(source, weight, bias.reshape(_TURNED, -1).mean(axis=0), padding=1)
