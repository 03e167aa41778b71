"""SPAN networks: gated blocks of three convolutions, each stored in several parts."""

from __future__ import annotations

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

    def same(value: int, key: str, function: Expression = LEAKY) -> int:
        weight, bias = first if key == "conv_1" else folded(weights, key)
        net.layer = key
        activation = elementwise(function, len(bias))
        return net.convolution(value, weight, bias, activation, padding=1)

    value = start = same(source, "conv_1")
    after_first = tap = 0
    for block in range(1, 7):
        tap = same(value, f"block_{block}.c1_r", SILU)
        inner = same(tap, f"block_{block}.c2_r", SILU)
        value = net.append(Gate(same(inner, f"block_{block}.c3_r"), value))
        after_first = after_first or value
    joined = net.concatenate(start, same(value, "conv_2"), after_first, tap)
    joined = net.same_size(joined, "conv_cat", taps=1)
    net.last_convolution(joined, "upsampler.0")
    # The training's copies of the folded weights, which may be older.
    weights.ignore(r".*\.eval_conv\.(weight|bias)")
    return net.model("zero", same_planes=True)


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
