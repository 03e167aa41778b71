"""SPANF3, the nets of AnimeJaNai V3.1: SPAN's blocks with ReLU and a gate of their own."""

from __future__ import annotations

import math

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise, leaky
from waifu2x.networks.expressions import TANH
from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.span import COPIES, folded
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights

_PLANES = 3


def spanf3(weights: NamedWeights) -> Model:
    """Builds blocks between two convolutions, of a picture that may be unshuffled first."""
    has_unshuffle = any(f"conv_1.1.{part}.weight" in weights for part in ("sk", "eval_conv"))
    first = folded(weights, "conv_1.1" if has_unshuffle else "conv_1")
    by = math.isqrt(first[0].shape[1] // _PLANES)
    if first[0].shape[1] != _PLANES * by**2:
        raise ModelError(f"{weights.name}: a SPANF3 that reads {first[0].shape[1]} planes")
    net = NamedGraph(weights, _PLANES)
    source = net.pixel_unshuffle(0, by) if by > 1 else 0

    def same(value: int, key: str, slope: float = 1.0) -> int:
        weight, bias = folded(weights, key)
        net.layer = key
        return net.convolution(value, weight, bias, leaky(slope, len(bias)), padding=1)

    net.layer = "conv_1"
    start = value = net.convolution(source, *first, padding=1)
    after_first = tap = 0
    for block in range(weights.count("block_{}.att_conv", 1)):
        key = f"block_{block + 1}"
        tap = same(value, f"{key}.c1_r", 0.0)
        made = same(same(tap, f"{key}.c2_r", 0.0), f"{key}.c3_r")
        planes = weights.planes(f"{key}.att_conv")
        factors = net.same_size(made, f"{key}.att_conv", elementwise(TANH, planes), taps=1)
        value = net.multiply(net.add(made, value), factors)
        after_first = after_first or value
    value = net.same_size(net.concatenate(start, value, after_first, tap), "conv_cat", taps=1)
    last = "to_pixel.0" if "to_pixel.0.weight" in weights else "to_pixel"
    net.last_convolution(value, last, taps=weights.length(f"{last}.weight", 2))
    weights.ignore(COPIES)
    return net.model("reflect", same_planes=True)
