"""SPANPlus: groups of SPAN's blocks with Mish."""

from __future__ import annotations

from waifu2x.networks.expressions import MISH
from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.dysample import dysample
from waifu2x.networks.readers.families.span import COPIES, blocks, convolution, folded
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights


def spanplus(weights: NamedWeights) -> Model:
    """Builds a convolution, groups of blocks, and a convolution whose planes are shuffled, or
    DySample."""
    first = folded(weights, "feats.0")
    net = NamedGraph(weights, first[0].shape[1])
    value = convolution(net, 0, "feats.0", stored=first)
    group = 1
    while f"feats.{group}.conv_cat.weight" in weights:
        value = _group(net, value, f"feats.{group}")
        group += 1
    weights.ignore(COPIES)
    if "upsampler.offset.weight" in weights:
        dysample(net, value, "upsampler")
        return net.model("zero", same_planes=True)
    net.last_convolution(value, "upsampler.0")
    return net.model("zero", same_planes=True)


def _group(net: NamedGraph, source: int, key: str) -> int:
    keys = [f"{key}.block_1"]
    while any(
        f"{key}.block_n.{len(keys) - 1}.c1_r.{part}.weight" in net.weights
        for part in ("sk", "eval_conv")
    ):
        keys.append(f"{key}.block_n.{len(keys) - 1}")
    keys.append(f"{key}.block_end")
    return blocks(net, source, keys, f"{key}.conv_2", f"{key}.conv_cat", MISH)
