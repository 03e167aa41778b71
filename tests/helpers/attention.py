"""Networks with attention in windows, of every rule that the field has."""

from __future__ import annotations

import numpy as np

from tests.helpers.graphs import RandomGraph
from waifu2x.networks.attention import PlanesFrom, WindowAttention
from waifu2x.networks.model import Model
from waifu2x.networks.windows import Windows

WINDOWS = {
    "swin": Windows(8, 8),
    "swin, shifted": Windows(8, 8, 4, 4),
    "dat": Windows(4, 8, filled_to=8),
    "dat, shifted": Windows(8, 4, 4, 2, filled_to=8),
    "hat": Windows(4, 4, overlap=2),
    "srformer": Windows(8, 8, 4, 4, cell=2),
    "swin_unet": Windows(6, 6, 3, 3, shifts_single=False),
}


def attention_model(
    windows: Windows, heads: int = 2, depth: int = 5, seed: int = 0, gain: float = 1.0
) -> Model:
    """A network of convolutions around attention, whose logits are `gain` times as large as usual;
    two halves of the heads, as in DAT, where there are four."""
    net = RandomGraph(3, seed)
    planes = heads * depth
    first = net.random_convolution(0, planes, 3, 1, 1, "linear")
    queries = keys = net.random_convolution(first, 3 * planes, 1, 1, 0, "linear")
    if windows.cell > 1:
        cell = windows.cell
        keys = net.random_convolution(first, 3 * planes, cell, cell, 0, "linear")
    parts = 2 if heads == 4 else 1
    made = []
    for part in range(parts):
        own = heads // parts
        bias = net.rng.normal(size=(own, *windows.bias_sides)).astype(np.float32)
        begin = part * own * depth
        made.append(
            net.append(
                WindowAttention(
                    PlanesFrom(queries, begin),
                    PlanesFrom(keys, begin + planes),
                    PlanesFrom(keys, begin + 2 * planes),
                    own * depth,
                    windows,
                    depth**-0.5 * gain,
                    bias,
                )
            )
        )
    whole = made[0] if parts == 1 else net.concatenate(*made)
    last = net.random_convolution(whole, planes, 1, 1, 0, "linear")
    net.random_convolution(net.add(last, first), 3, 3, 1, 1, "linear")
    return net.model(multiple=windows.cell)


def channel_attention_model(
    heads: int, depth: int, seed: int = 0, *, window: int = 0, period: int = 1
) -> Model:
    """A network of convolutions around attention between planes: of all pixels, in windows, or of
    those a period apart."""
    net = RandomGraph(3, seed)
    planes = heads * depth
    first = net.random_convolution(0, planes, 3, 1, 1, "linear")
    value = net.random_channel_attention(first, heads, depth, window, period)
    last = net.random_convolution(value, planes, 1, 1, 0, "linear")
    net.random_convolution(net.add(last, first), 3, 3, 1, 1, "linear")
    return net.model()
