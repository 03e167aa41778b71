"""ArtCNN as traiNNer-redux trains it: residual blocks of three convolutions."""

from __future__ import annotations

from waifu2x.networks.model import Model
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights, scale_and_planes


def artcnn(weights: NamedWeights) -> Model:
    """Blocks between two convolutions, whose ends are added, and a last one that is shuffled."""
    net = NamedGraph(weights, weights.length("conv0.weight", 1))
    first = value = net.same_size(0, "conv0")
    count = 0
    while f"res_block.{count}.conv.0.0.weight" in weights:
        key = f"res_block.{count}.conv"
        inner = net.same_size(value, f"{key}.0.0", 0.0)
        inner = net.same_size(inner, f"{key}.1.0", 0.0)
        value = net.add(net.same_size(inner, f"{key}.2"), value)
        count += 1
    value = net.add(net.same_size(value, f"res_block.{count}"), first)
    last = "depth_to_space.upscale.0"
    where = f"{weights.name}: {last}.weight"
    scale, _ = scale_and_planes(weights.planes(last), net.planes(0), where)
    value = net.same_size(value, last)
    if scale > 1:
        net.pixel_shuffle(value, scale)
    return net.model("zero", same_planes=True)
