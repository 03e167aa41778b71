"""ArtCNN as traiNNer-redux trains it: residual blocks of three convolutions."""

from __future__ import annotations

from waifu2x.networks.model import Model
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights


def artcnn(weights: NamedWeights) -> Model:
    """Builds blocks between two convolutions, whose ends are added, and a last one, shuffled."""
    net = NamedGraph(weights, weights.length("conv0.weight", 1))
    first = value = net.same_size(0, "conv0")
    count = weights.count("res_block.{}.conv.0.0")
    for block in range(count):
        key = f"res_block.{block}.conv"
        inner = net.same_size(value, f"{key}.0.0", 0.0)
        inner = net.same_size(inner, f"{key}.1.0", 0.0)
        value = net.add(net.same_size(inner, f"{key}.2"), value)
    value = net.add(net.same_size(value, f"res_block.{count}"), first)
    net.last_convolution(value, "depth_to_space.upscale.0")
    return net.model("zero", same_planes=True)
