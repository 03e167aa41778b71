"""SPAN networks: gated blocks of three convolutions, each stored in several parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.expressions import LEAKY, SILU, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Gate
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights

MEAN = (0.4488, 0.4371, 0.4040)
"""The mean colour of the pictures that SPAN was trained on."""


COPIES = r".*\.eval_conv\.(weight|bias)"
"""Names of the training's copies of folded weights, which may be older."""

Norm = Callable[[NamedGraph, int, str], int]
"""Adds the norm of that name to a value."""


def span(weights: NamedWeights) -> Model:
    """Builds six blocks between two convolutions; some of their results, joined, are shuffled."""
    first = folded(weights, "conv_1")
    planes = first[0].shape[1]
    net = NamedGraph(weights, planes)
    source = 0
    if "no_norm" not in weights.marks:
        if planes != 3:
            raise ModelError(f"{weights.name}: a SPAN of {planes} planes: only of 3 is known")
        shifts = np.array([-255 * mean for mean in MEAN], np.float32)
        source = net.affine(0, np.full(3, 255, np.float32), shifts)
    start = convolution(net, source, "conv_1", stored=first)
    value = blocks(net, start, [f"block_{n}" for n in range(1, 7)], "conv_2", "conv_cat")
    net.last_convolution(value, "upsampler.0")
    weights.ignore(COPIES)
    return net.model("zero", same_planes=True)


def blocks(
    net: NamedGraph,
    start: int,
    keys: Sequence[str],
    last: str,
    joining: str,
    function: Expression = SILU,
    norm: Norm | None = None,
) -> int:
    """Adds blocks in a row and the convolution `last`, and joins the results of the start, of that,
    of the first block and of the last block's first convolution by the layer `joining`."""
    value = after_first = tap = start
    for number, key in enumerate(keys):
        value, tap = _block(net, value, key, function, norm)
        after_first = after_first if number else value
    joined = net.concatenate(start, convolution(net, value, last), after_first, tap)
    return net.same_size(joined, joining, taps=1)


def _block(
    net: NamedGraph, source: int, key: str, function: Expression, norm: Norm | None
) -> tuple[int, int]:
    """Adds a block; returns its result and that of its first convolution."""
    made, value = list[int](), source
    for number in (1, 2, 3):
        applied = LEAKY if number == 3 else function
        if norm is None:
            value = convolution(net, value, f"{key}.c{number}_r", applied)
        else:
            value = norm(net, convolution(net, value, f"{key}.c{number}_r"), f"{key}.norm{number}")
            if number < 3:
                value = net.activate(value, elementwise(applied, net.planes(value)))
        made.append(value)
    return net.append(Gate(value, source)), made[0]


def convolution(
    net: NamedGraph,
    source: int,
    key: str,
    function: Expression = LEAKY,
    stored: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
) -> int:
    """Adds a folded convolution, whose weight and bias may have been taken already, and a function;
    by default none."""
    weight, bias = stored or folded(net.weights, key)
    net.layer = key[:80]
    return net.convolution(source, weight, bias, elementwise(function, len(bias)), padding=1)


def folded(weights: NamedWeights, key: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns three convolutions, of 1, 3 and 1 taps, and one beside them, as one weight and bias.

    The stored `eval_conv` may be older than these.
    """
    if f"{key}.conv.0.weight" not in weights:
        return weights.convolution(f"{key}.eval_conv")

    def pair(part: str, taps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        weight = weights.take(f"{key}.{part}.weight", None, None, taps, taps)
        bias = np.zeros(len(weight), np.float32)
        if f"{key}.{part}.bias" in weights:
            bias = weights.take(f"{key}.{part}.bias", len(weight))
        return weight.astype(np.float64), bias.astype(np.float64)

    (w1, b1), (w2, b2), (w3, b3) = pair("conv.0", 1), pair("conv.1", 3), pair("conv.2", 1)
    beside, beside_bias = pair("sk", 1)
    shapes = (w1.shape[0], w2.shape[0], w3.shape[0], w1.shape[1])
    if (w2.shape[1], w3.shape[1], beside.shape[0], beside.shape[1]) != shapes:
        raise ModelError(f"{weights.name}: the parts of {key} do not fit together")
    weights.budget.take_bytes(2 * 8 * 9 * w2.shape[0] * w1.shape[1] + 2 * 8 * 9 * beside.size)
    weight = np.einsum("po,omyx,mi->piyx", w3[:, :, 0, 0], w2, w1[:, :, 0, 0], optimize=True)
    weight[:, :, 1, 1] += beside[:, :, 0, 0]
    bias = w3[:, :, 0, 0] @ (w2.sum(axis=(2, 3)) @ b1 + b2) + b3 + beside_bias
    return weight.astype(np.float32), bias.astype(np.float32)
