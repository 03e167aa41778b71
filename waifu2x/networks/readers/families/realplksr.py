"""RealPLKSR: some planes of each block have a convolution of 13x13 or 17x17 taps."""

from __future__ import annotations

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.expressions import MISH, SIGMOID
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import GroupNorm
from waifu2x.networks.readers.families.dysample import dysample
from waifu2x.networks.readers.families.swin import normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights, scale_of

_GROUPS = 4
"""Groups of planes of a norm. Not stored."""
_LAYER_EPS, _GROUP_EPS = 1e-6, 1e-5


def realplksr(weights: NamedWeights) -> Model:
    """Builds blocks between two convolutions; the last one is added to the picture's planes, and
    shuffled, or enlarged by DySample."""
    planes = weights.length("feats.0.weight", 1)
    net = NamedGraph(weights, planes)
    value, block = net.same_size(0, "feats.0"), 1
    while f"feats.{block}.lk.conv.weight" in weights:
        value = _block(net, value, f"feats.{block}")
        block += 1
    # A dropout, which has no weights, may stand before the last one.
    last = f"feats.{block}" if f"feats.{block}.weight" in weights else f"feats.{block + 1}"
    if "to_img.offset.weight" not in weights:
        net.last_convolution(value, last, adds_picture=True)
    else:
        scale = scale_of(weights.planes(last), planes, f"{weights.name}: {last}.weight")
        value, area = net.same_size(value, last), scale**2
        net.layer = "to_img"
        repeated = np.eye(planes, dtype=np.float32).repeat(area, axis=0)[:, :, None, None]
        picture = net.convolution(0, repeated, np.zeros(planes * area, np.float32))
        dysample(net, net.add(value, picture), "to_img", scale)
    return net.model("zero", same_planes=True)


def _block(net: NamedGraph, source: int, key: str) -> int:
    weights, planes = net.weights, net.planes(source)
    is_local = f"{key}.layer_norm.weight" in weights
    value = normalised(net, source, f"{key}.layer_norm", _LAYER_EPS) if is_local else source
    inner = weights.planes(f"{key}.channel_mixer.0")
    value = net.same_size(value, f"{key}.channel_mixer.0", elementwise(MISH, inner))
    value = _partly(net, net.same_size(value, f"{key}.channel_mixer.2"), f"{key}.lk.conv")
    if f"{key}.attn.f.0.weight" in weights:
        gate = net.same_size(value, f"{key}.attn.f.0", elementwise(SIGMOID, planes))
        value = net.multiply(value, gate)
    value = net.same_size(value, f"{key}.refine", taps=1)
    if not is_local:
        numbers = [weights.take(f"{key}.norm.{part}", planes) for part in ("weight", "bias")]
        net.layer = f"{key}.norm"
        value = net.append(GroupNorm(value, numbers[0], numbers[1], _GROUPS, _GROUP_EPS))
    return net.add(value, source)


def _partly(net: NamedGraph, source: int, layer: str) -> int:
    """Convolves the first planes, and passes the others on."""
    planes, convolved = net.planes(source), net.weights.planes(layer)
    taps = net.weights.length(f"{layer}.weight", 2)
    if convolved > planes or taps % 2 == 0:
        raise ModelError(f"{net.name}: {layer[:80]}.weight: {convolved} planes, {taps} taps")
    if convolved == planes:
        return net.same_size(source, layer, taps=taps)
    net.layer = layer
    first, rest = net.split(source, convolved, planes - convolved)
    return net.concatenate(net.same_size(first, layer, taps=taps), rest)
