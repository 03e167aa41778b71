"""RCAN and EDSR: residual blocks of two convolutions, in RCAN squeezed, excited and in groups."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.ends import shuffled
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights

_RANGE = 255
"""The largest value of a picture in the training. Not stored."""
_WIDE = 256
"""From this many planes on, an EDSR's blocks add a tenth of their result. Not stored: so
published."""


def rcan(weights: NamedWeights) -> Model:
    """Builds groups of blocks between two convolutions; then enlarges the map in steps."""
    planes = weights.planes("tail.1")
    has_unshuffle = "head.1.weight" in weights
    head = "head.1" if has_unshuffle else "head.0"
    net = NamedGraph(weights, planes)
    value = _shifted(net, 0, "sub_mean", _RANGE, 1)
    if has_unshuffle:
        by = math.isqrt(weights.length(f"{head}.weight", 1) // planes)
        value = net.pixel_unshuffle(value, by) if by > 1 else value
    taps = weights.length(f"{head}.weight", 2)
    first = value = net.same_size(value, head, taps=taps)
    count = weights.count("body.{}.body.0") or weights.count("body.{}.body.0.body.0")
    for group in range(count):
        value = _group(net, value, f"body.{group}", taps)
    value = net.add(net.same_size(value, f"body.{count}", taps=taps), first)
    value = net.same_size(shuffled(net, value, "tail.0"), "tail.1", taps=taps)
    _shifted(net, value, "add_mean", 1, _RANGE)
    return net.model("reflect", same_planes=True)


def _shifted(net: NamedGraph, source: int, layer: str, factor: float, divisor: float) -> int:
    """Subtracts or adds the mean colour of the training's pictures, if the file has one."""
    if f"{layer}.weight" not in net.weights:
        return source
    net.layer = layer
    weight, bias = net.weights.convolution(layer, 1)
    return net.convolution(
        source, weight * np.float32(factor / divisor), bias / np.float32(divisor)
    )


def _group(net: NamedGraph, source: int, key: str, taps: int) -> int:
    """Adds a group of an RCAN, or a block of an EDSR."""
    if f"{key}.body.0.weight" in net.weights:
        return _block(net, source, f"{key}.body", taps)
    value, count = source, net.weights.count(f"{key}.body.{{}}.body.0")
    for block in range(count):
        value = _block(net, value, f"{key}.body.{block}.body", taps)
    return net.add(net.same_size(value, f"{key}.body.{count}", taps=taps), source)


def _block(net: NamedGraph, source: int, key: str, taps: int) -> int:
    value = net.same_size(source, f"{key}.0", 0.0, taps=taps)
    value = net.same_size(value, f"{key}.2", taps=taps)
    if f"{key}.3.conv_du.0.weight" not in net.weights:
        return net.add(value, source, 0.1 if net.planes(source) >= _WIDE else 1.0)
    layers = f"{key}.3.conv_du.0", f"{key}.3.conv_du.2"
    return net.add(net.squeeze_and_excite(value, *layers), source)
