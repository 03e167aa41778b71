"""A small network for each operation, for the contract suite and the table of the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from tests.helpers.attention import WINDOWS, attention_model, channel_attention_model
from tests.helpers.graphs import RandomGraph
from waifu2x.networks.activations import leaky
from waifu2x.networks.expressions import ACTIVATIONS
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Gate, Interleave, Interpolate, InterpolateTo, MaxPool

_PLANES = 16


def _between(add: Callable[[RandomGraph, int], int]) -> Model:
    """Returns a network of one operation on a map, between two convolutions."""
    net = RandomGraph(3, 12)
    return _finished(net, add(net, net.random_convolution(0, _PLANES, 3, 1, 1, "leaky")))


def _finished(net: RandomGraph, value: int, multiple: int = 1) -> Model:
    """Returns the network with a last convolution whose results are mostly between 0 and 1."""
    weight, bias = net._weights(3, net.planes(value), 3, 3, gain=0.1)
    net.convolution(value, weight, bias + np.float32(0.5), leaky(1.0, 3), padding=1)
    return net.model(multiple=multiple)


def _convolution(side: int, stride: int, kind: str) -> Model:
    return _between(
        lambda net, value: net.random_convolution(value, _PLANES, side, stride, side // 2, kind)
    )


def _strided_twice() -> Model:
    net = RandomGraph(3, 12)
    value = net.random_convolution(0, _PLANES, 3, 1, 1, "leaky")
    value = net.random_convolution(value, 24, 2, 2, 0, "leaky")
    value = net.random_convolution(value, 24, 4, 2, 1, "leaky")
    for _ in range(2):
        value = net.random_transposed(value, _PLANES, 2, 2, 0, "leaky")
    return _finished(net, value, multiple=4)


def _interleaved() -> Model:
    net = RandomGraph(3, 12)
    value = net.append(Interleave(net.random_convolution(0, _PLANES, 3, 1, 1, "leaky"), 4))
    value = net.append(
        Interleave(net.random_convolution(value, _PLANES, 1, 1, 0, "silu"), 4, inverse=True)
    )
    return _finished(net, value, multiple=4)


OPERATIONS: Mapping[str, Callable[[], Model]] = {
    "convolution 3x3": partial(_convolution, 3, 1, "leaky"),
    "convolution 1x1": partial(_convolution, 1, 1, "leaky"),
    "convolution 7x7": partial(_convolution, 7, 1, "leaky"),
    "convolution, stride 2": lambda: _between(
        lambda net, value: net.random_transposed(
            net.random_convolution(value, 24, 2, 2, 0, "leaky"), _PLANES, 2, 2, 0, "leaky"
        )
    ),
    "convolutions, stride 2, in a row": _strided_twice,
    "transposed convolution, stride 2": lambda: _between(
        lambda net, value: net.random_transposed(value, _PLANES, 4, 2, 1, "leaky")
    ),
    "convolution of groups": lambda: _between(
        lambda net, value: net.random_groups(value, _PLANES, 2, "leaky")
    ),
    "depthwise convolution": lambda: _between(
        lambda net, value: net.random_depthwise(value, 5, 2, "leaky")
    ),
    **{
        f"activation {name}": partial(_convolution, 3, 1, name)
        for name in ACTIVATIONS
        if name != "leaky"
    },
    "sum of maps": lambda: _between(lambda net, value: net.add(net.squeeze(value), value)),
    "product of maps": lambda: _between(lambda net, value: net.multiply(net.squeeze(value), value)),
    "gate": lambda: _between(lambda net, value: net.append(Gate(net.squeeze(value), value))),
    "concatenation and slice": lambda: _between(
        lambda net, value: net.slice(net.concatenate(value, net.squeeze(value)), 8, _PLANES)
    ),
    "crop": lambda: _between(
        lambda net, value: net.crop(net.random_convolution(value, 8, 3, 1, 2, "leaky"), 1)
    ),
    "enlargement, nearest": lambda: _between(lambda net, value: net.enlarge(net.squeeze(value), 2)),
    "depth-to-space and back": lambda: _between(
        lambda net, value: net.pixel_unshuffle(net.pixel_shuffle(net.squeeze(value), 2), 2)
    ),
    "resize, bicubic": lambda: _between(
        lambda net, value: net.append(Interpolate(net.append(Interpolate(value, 2, 1)), 1, 2))
    ),
    "maxima, and resize to a size, bilinear": lambda: _between(
        lambda net, value: net.append(InterpolateTo(net.append(MaxPool(value, 3, 2)), value))
    ),
    "pixels interleaved": _interleaved,
    "samples at computed places": lambda: _between(
        lambda net, value: net.random_samples(value, 2, 4, 2.0)
    ),
    "squeeze and excite": lambda: _between(lambda net, value: net.squeeze(value)),
    "norm of a pixel's planes": lambda: _between(lambda net, value: net.random_norm(value)),
    "norm of groups over the picture": lambda: _between(
        lambda net, value: net.random_norm(value, 4)
    ),
    **{
        f"attention, windows of {name}": partial(attention_model, windows)
        for name, windows in WINDOWS.items()
    },
    "attention between planes": partial(channel_attention_model, 4, 8),
    "attention between planes, in windows": lambda: _between(
        lambda net, value: net.random_channel_attention(value, 2, 8, window=4)
    ),
}
"""Networks by the name of what they do between convolutions."""
