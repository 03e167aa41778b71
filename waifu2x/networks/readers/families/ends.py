"""The first and last layers of SwinIR and its kin."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights

_MEAN = (0.4488, 0.4371, 0.4040)
"""The mean colour of the pictures of the training. Not stored; of one plane it is 0."""
_BEFORE = 0.01
"""The slope behind conv_before_upsample; elsewhere it is 0.2."""


class FirstAndLast:
    """A graph whose first and last layers are SwinIR's."""

    def __init__(self, weights: NamedWeights, most: float) -> None:
        """`most` is what 1 in a picture is to the network."""
        self._weights, self._most = weights, most
        has_unshuffle = "conv_first.1.weight" in weights
        self._first = "conv_first.1" if has_unshuffle else "conv_first"
        read = weights.length(f"{self._first}.weight", 1)
        self.unshuffle = 1
        planes = read
        if has_unshuffle:
            planes = 3 if read % 3 == 0 else 1
            self.unshuffle = math.isqrt(read // planes)
        if planes * self.unshuffle**2 != read:
            raise ModelError(f"{weights.name}: {self._first}.weight reads {read} planes")
        self.net = NamedGraph(weights, planes)
        self._mean = np.array(_MEAN if planes == 3 else [0.0] * planes, np.float32)
        self._picture = 0

    def begin(self) -> int:
        """Adds the picture less its mean, and the first convolution."""
        net, factors = self.net, np.full(len(self._mean), self._most, np.float32)
        net.layer = "the mean"
        self._picture = net.affine(0, factors, -self._mean * factors)
        value = self._picture
        if self.unshuffle > 1:
            value = net.pixel_unshuffle(value, self.unshuffle)
        return net.same_size(value, self._first)

    def finish(self, value: int) -> int:
        """Enlarges the map as the names of layers tell, and adds the mean."""
        net, weights = self.net, self._weights
        if "conv_before_upsample.0.weight" in weights:
            value = net.same_size(value, "conv_before_upsample.0", _BEFORE)
            is_nearest = "conv_up1.weight" in weights
            value = self._nearest(value) if is_nearest else shuffled(net, value, "upsample")
            value = net.same_size(value, "conv_last")
        elif "upsample.0.weight" in weights:
            value = net.last_convolution(value, "upsample.0")
        else:
            value = net.add(net.same_size(value, "conv_last"), self._picture)
        net.layer = "the mean"
        return net.affine(value, np.full(len(self._mean), 1 / self._most, np.float32), self._mean)

    def _nearest(self, value: int) -> int:
        net = self.net
        for step in range(self._weights.count("conv_up{}", 1)):
            value = net.same_size(net.enlarge(value, 2), f"conv_up{step + 1}", 0.2)
        return net.same_size(value, "conv_hr", 0.2)


def shuffled(net: NamedGraph, value: int, layer: str) -> int:
    """Enlarges a map in steps, by the shuffled convolutions LAYER.0, LAYER.2 and so on."""
    step = 0
    while f"{layer}.{step}.weight" in net.weights:
        made, planes = net.weights.planes(f"{layer}.{step}"), net.planes(value)
        by = math.isqrt(made // planes)
        if made != planes * by**2:
            raise ModelError(f"{net.name}: {layer}.{step}.weight: {made} planes of {planes}")
        value = net.pixel_shuffle(net.same_size(value, f"{layer}.{step}"), by)
        step += 2
    return value


def residual_convolution(net: NamedGraph, source: int, key: str) -> int:
    """Adds the convolution at a group's end: one, or three, the middle one of a single tap."""
    if f"{key}.0.weight" not in net.weights:
        return net.same_size(source, key)
    value = net.same_size(source, f"{key}.0", 0.2)
    value = net.same_size(value, f"{key}.2", 0.2, taps=1)
    return net.same_size(value, f"{key}.4")
