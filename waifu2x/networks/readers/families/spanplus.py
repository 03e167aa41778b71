"""SPANPlus: groups of SPAN's blocks with Mish."""

from __future__ import annotations

from waifu2x.networks.activations import elementwise
from waifu2x.networks.expressions import LEAKY, MISH, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Gate
from waifu2x.networks.readers.families.dysample import dysample
from waifu2x.networks.readers.families.span import folded
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights


def spanplus(weights: NamedWeights) -> Model:
    """Builds a convolution, groups of blocks, and a convolution whose planes are shuffled, or
    DySample."""
    first = folded(weights, "feats.0")
    net = NamedGraph(weights, first[0].shape[1])
    net.layer = "feats.0"
    value = net.convolution(0, *first, padding=1)
    group = 1
    while f"feats.{group}.conv_cat.weight" in weights:
        value = _group(net, value, f"feats.{group}")
        group += 1
    weights.ignore(r".*\.eval_conv\.(weight|bias)")
    if "upsampler.offset.weight" in weights:
        dysample(net, value, "upsampler")
        return net.model("zero", same_planes=True)
    net.last_convolution(value, "upsampler.0")
    return net.model("zero", same_planes=True)


def _group(net: NamedGraph, source: int, key: str) -> int:
    weights = net.weights
    value, _ = _block(net, source, f"{key}.block_1")
    after_first, block = value, 0
    while any(
        f"{key}.block_n.{block}.c1_r.{part}.weight" in weights for part in ("sk", "eval_conv")
    ):
        value, _ = _block(net, value, f"{key}.block_n.{block}")
        block += 1
    value, tap = _block(net, value, f"{key}.block_end")
    value = _same(net, value, f"{key}.conv_2")
    joined = net.concatenate(source, value, after_first, tap)
    return net.same_size(joined, f"{key}.conv_cat", taps=1)


def _block(net: NamedGraph, source: int, key: str) -> tuple[int, int]:
    """Adds a block; returns its result and that of its first convolution."""
    first = _same(net, source, f"{key}.c1_r", MISH)
    last = _same(net, _same(net, first, f"{key}.c2_r", MISH), f"{key}.c3_r")
    return net.append(Gate(last, source)), first


def _same(net: NamedGraph, source: int, key: str, function: Expression = LEAKY) -> int:
    weight, bias = folded(net.weights, key)
    net.layer = key[:80]
    return net.convolution(source, weight, bias, elementwise(function, len(bias)), padding=1)
