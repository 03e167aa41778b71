"""Compact networks (SRVGGNetCompact), such as Real-ESRGAN's for animated video."""

from __future__ import annotations

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import LEAKY
from waifu2x.networks.model import Model
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights


def compact(weights: NamedWeights) -> Model:
    """Builds convolutions with a slope for each plane; the last is shuffled onto the picture."""
    last = 0
    while f"body.{last + 2}.weight" in weights:
        last += 2
    planes = weights.length("body.0.weight", 1)
    net = NamedGraph(weights, planes)
    value = 0
    for index in range(0, last, 2):
        made = weights.planes(f"body.{index}")
        slopes = weights.take(f"body.{index + 1}.weight", None)
        if len(slopes) not in (1, made):
            raise ModelError(
                f"{weights.name}: body.{index + 1}.weight: {len(slopes)} slopes for {made} planes"
            )
        weights.budget.take_bytes(4 * made)
        slopes = np.broadcast_to(slopes, (made,)).copy()
        value = net.same_size(value, f"body.{index}", Activation(LEAKY, slopes))
    net.last_convolution(value, f"body.{last}", adds_picture=True)
    return net.model("zero", same_planes=True)
