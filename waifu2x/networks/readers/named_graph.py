"""Graphs of layers whose weights stand in a file under names."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import SIGMOID
from waifu2x.networks.readers.limits import MAX_TENSOR_BYTES, ModelBudget
from waifu2x.networks.readers.tensors import Contents, floats


class NamedWeights:
    """The tensors of a file, to be taken by name; none must be left at the end."""

    def __init__(self, contents: Contents, name: str) -> None:
        """`name` stands for the file in messages."""
        self.name = name
        self.marks, self.maker = contents.marks, contents.maker
        self.budget = ModelBudget(name, size=MAX_TENSOR_BYTES // 2)
        """For arrays computed from the file's tensors."""
        self._tensors = contents.tensors
        self._left = set(contents.tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def shape(self, key: str) -> tuple[int, ...]:
        """Returns the shape of a tensor. Raises ModelError if it is missing."""
        if key not in self._tensors:
            raise ModelError(f"{self.name}: {key[:80]} is missing")
        return self._tensors[key].shape

    def length(self, key: str, axis: int) -> int:
        """Returns the length of a tensor along an axis; 0 if it has fewer axes."""
        shape = self.shape(key)
        return shape[axis] if axis < len(shape) else 0

    def planes(self, layer: str) -> int:
        """Returns how many planes a convolution makes."""
        return self.length(f"{layer}.weight", 0)

    def count(self, layer: str, first: int = 0) -> int:
        """Returns how many layers there are, named `layer` with `first`, `first` + 1 ... for {}."""
        return next(n for n in itertools.count() if f"{layer.format(first + n)}.weight" not in self)

    def take(self, key: str, *shape: int | None) -> NDArray[np.float32]:
        """Returns a tensor of this shape; None stands for any length.

        Raises ModelError for another shape, and for values that are not finite.
        """
        found = self.shape(key)
        if (
            len(found) != len(shape)
            or any(
                have != want for have, want in zip(found, shape, strict=True) if want is not None
            )
            or 0 in found
        ):
            wanted = " x ".join("any" if each is None else str(each) for each in shape)
            raise ModelError(
                f"{self.name}: {key[:80]} has the shape {found}, but expected {wanted}"
            )
        self._left.discard(key)
        return floats(self._tensors[key].read(), f"{self.name}: {key[:80]}")

    def convolution(
        self, layer: str, taps: int = 3, *, has_bias: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns a layer's weight (out_planes, in_planes, taps, taps) and bias, zeros for none."""
        weight = self.take(f"{layer}.weight", None, None, taps, taps)
        planes = len(weight)
        bias = self.take(f"{layer}.bias", planes) if has_bias else np.zeros(planes, np.float32)
        return weight, bias

    def ignore(self, pattern: str) -> None:
        """Ignores tensors whose names match a regular expression."""
        self._left = {key for key in self._left if not re.fullmatch(pattern, key)}

    def finish(self) -> None:
        """Raises ModelError if a tensor is left."""
        if self._left:
            key = min(self._left)
            raise ModelError(f"{self.name}: {key[:80]} belongs to no layer of this network")


class NamedGraph(GraphBuilder):
    """A graph whose layers take their weights by name."""

    def __init__(self, weights: NamedWeights, in_planes: int) -> None:
        """`in_planes` are those of the picture."""
        super().__init__(weights.name, in_planes)
        self.weights = weights

    def same_size(
        self,
        source: int,
        layer: str,
        activation: float | Activation = 1.0,
        *,
        taps: int = 3,
        has_bias: bool = True,
    ) -> int:
        """Adds a convolution padded to keep the size, and an activation (a number: a leaky
        ReLU)."""
        self.layer = layer[:80]
        weight, bias = self.weights.convolution(layer, taps, has_bias=has_bias)
        if isinstance(activation, float):
            activation = leaky(activation, len(bias))
        return self.convolution(source, weight, bias, activation, padding=taps // 2)

    def depthwise(
        self, source: int, layer: str, taps: int = 3, activation: Activation | None = None
    ) -> int:
        """Adds a convolution of each plane, padded to keep the size, and an activation."""
        planes = self.planes(source)
        weight = self.weights.take(f"{layer}.weight", planes, 1, taps, taps)
        bias = self.weights.take(f"{layer}.bias", planes)
        self.layer = layer[:80]
        return self.convolution(source, weight, bias, activation, groups=planes, padding=taps // 2)

    def last_convolution(
        self,
        source: int,
        layer: str,
        *,
        taps: int = 3,
        has_bias: bool = True,
        adds_picture: bool = False,
    ) -> int:
        """Appends the layer that makes the result, shuffled by the scale that its planes tell.

        With `adds_picture`, the picture is added, each pixel repeated to that scale.
        """
        scale = scale_of(self.weights.planes(layer), self.planes(0), f"{self.name}: {layer}.weight")
        value = self.same_size(source, layer, taps=taps, has_bias=has_bias)
        if scale > 1:
            value = self.pixel_shuffle(value, scale)
        if adds_picture:
            value = self.add(value, self.enlarge(0, scale) if scale > 1 else 0)
        return value

    def squeeze_and_excite(self, source: int, first: str, last: str) -> int:
        """Multiplies planes by factors that two layers of one tap make of their means."""
        factors = self.mean(source)
        for layer in (first, last):
            self.layer = layer[:80]
            weight, bias = self.weights.convolution(layer, 1)
            made = len(bias)
            function = leaky(0.0, made) if layer == first else elementwise(SIGMOID, made)
            factors = self.dense(factors, weight[:, :, 0, 0], bias, function)
        return self.multiply(source, factors)


def scale_of(made: int, read: int, where: str) -> int:
    """Returns by how much a last layer that makes `made` planes enlarges a picture of `read`.

    Raises ModelError, which begins with `where`, where `made` planes are no picture's.
    """
    for planes in (read, 3, 4, 1):
        scale = math.isqrt(made // planes) if planes else 0
        if scale and made == planes * scale**2:
            return scale
    raise ModelError(f"{where}: {made} planes are no picture's")
