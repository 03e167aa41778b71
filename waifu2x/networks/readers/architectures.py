"""The networks whose files hold weights alone, in order: what is between them is known by name.

vgg_N (N 3x3 convolutions), upconv_7 and its larger upconv_7l, cunet and upcunet (two U-nets, the
second on the first one's result), Real-CUGAN's upcunet3x and upcunet4x. Planes are read from the
weights; taps, strides and the kinds of layers are the architecture's, and the file's are held
against them.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise, leaky
from waifu2x.networks.builder import fit_padding
from waifu2x.networks.expressions import SIGMOID
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import (
    Add,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Mean,
    Multiply,
    Node,
    PixelShuffle,
    TransposedConvolution,
)

SLOPE = 0.1
"""Of the leaky ReLU behind every layer but the last of a network."""

Kind = Literal["convolution", "transposed"]


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one layer, and what its file says of them."""

    kind: Kind
    weight: NDArray[np.float32]
    """(out_planes, in_planes, kH, kW); 1x1 for dense ones."""
    bias: NDArray[np.float32]
    """(out_planes,)."""
    stride: int | None = None
    """None: the file does not say."""
    padding: int | None = None
    """Of a convolution; for a transposed one, pixels dropped on each side."""


def build(
    name: str, architecture: str, layers: Sequence[Layer], border: Border = "replicate"
) -> Model:
    """The network of an architecture with these weights; `name` stands for the file in messages.

    Raises ModelError, which names layer and field, for an architecture that is not known and for
    layers that are not its.
    """
    stack = re.fullmatch(r"vgg_(\d{1,4})", architecture)
    network = None if stack else _NETWORKS.get(architecture)
    if not stack and not network:
        raise ModelError(
            f"{name}: layer 1: model_config: architecture {reprlib.repr(architecture)}"
            f" is not supported: only vgg_7, {', '.join(_NETWORKS)}"
        )
    count, make = network or (int(stack[1]) if stack else 0, _vgg)
    if len(layers) != count:
        raise ModelError(
            f"{name}: {len(layers)} layers with weights, but {architecture} has {count}"
        )
    builder = _Builder(name, layers)
    make(builder)
    return builder.finish(border)


class _Builder:
    """Takes the layers one after the other; values are those of the graph."""

    def __init__(self, name: str, layers: Sequence[Layer]) -> None:
        self._name = name
        self._layers = layers
        self._taken = 0
        self._nodes: list[Node] = []
        self._planes = [layers[0].weight.shape[1]]
        self._makers = [0]
        """Layer that each value is from, counted from 1; 0 is the picture."""

    @property
    def left(self) -> int:
        """Layers not taken."""
        return len(self._layers) - self._taken

    def finish(self, border: Border) -> Model:
        """The network, if it makes a picture of a picture."""
        if self._planes[-1] != self._planes[0]:
            raise ModelError(
                f"{self._where}: weight makes {self._planes[-1]} planes,"
                f" but layer 1 reads {self._planes[0]}: a picture must stay a picture"
            )
        return fit_padding(self._name, self._planes[0], tuple(self._nodes), border)

    def convolution(self, source: int, taps: int = 3, stride: int = 1, slope: float = SLOPE) -> int:
        """The next layer, a convolution without padding."""
        layer = self._take(source, "convolution", taps, stride, 0)
        activation = leaky(slope, len(layer.bias))
        node = Convolution(source, layer.weight, layer.bias, activation, stride)
        return self._append(node, len(layer.bias), self._taken)

    def transposed(
        self, source: int, taps: int, crop: int = 0, slope: float = SLOPE, stride: int = 2
    ) -> int:
        """The next layer, a transposed convolution."""
        layer = self._take(source, "transposed", taps, stride, crop)
        activation = leaky(slope, len(layer.bias))
        node = TransposedConvolution(source, layer.weight, layer.bias, activation, stride, crop)
        return self._append(node, len(layer.bias), self._taken)

    def squeeze_and_excite(self, source: int) -> int:
        """The next two layers: factors for the planes, made of their means."""
        mean = self._append(Mean(source), self._planes[source], self._makers[source])
        squeezed = self._dense(mean, "relu")
        factors = self._dense(squeezed, "sigmoid")
        self._same(factors, source, "multiplied by them")
        return self._append(Multiply(source, factors), self._planes[source], self._makers[source])

    def _dense(self, source: int, activation: Literal["relu", "sigmoid"]) -> int:
        layer = self._take(source, "convolution", 1, 1, 0)
        planes = len(layer.bias)
        follows = leaky(0.0, planes)
        if activation == "sigmoid":
            follows = elementwise(SIGMOID, planes)
        node = Dense(source, layer.weight[:, :, 0, 0], layer.bias, follows)
        return self._append(node, planes, self._taken)

    def shuffled_onto_picture(self, source: int, crop: int, margin: int) -> int:
        """A value cropped and shuffled by two, plus the picture, four times as large, cropped."""
        planes = self._planes[source] // 4
        made = self._append(Crop(source, crop), self._planes[source], self._taken)
        made = self._append(PixelShuffle(made, 2), planes, self._taken)
        picture = self._append(Enlarge(0, 4), self._planes[0], 0)
        picture = self._append(Crop(picture, margin), self._planes[0], 0)
        self._same(picture, made, "added to them")
        return self._append(Add(made, picture), planes, self._taken)

    def add_cropped(self, source: int, pixels: int, other: int) -> int:
        """A value, less so many pixels on each side, plus another."""
        self._same(other, source, "added to them")
        cropped = self._append(Crop(source, pixels), self._planes[source], self._makers[source])
        return self._append(Add(cropped, other), self._planes[other], self._makers[other])

    def _append(self, node: Node, planes: int, maker: int) -> int:
        self._nodes.append(node)
        self._planes.append(planes)
        self._makers.append(maker)
        return len(self._nodes)

    @property
    def _where(self) -> str:
        return f"{self._name}: layer {self._taken}"

    def _take(self, source: int, kind: Kind, taps: int, stride: int, padding: int) -> Layer:
        """The next layer, which must be of that geometry and read that value."""
        layer = self._layers[self._taken]
        self._taken += 1
        if layer.kind != kind:
            word = {"convolution": "a convolution", "transposed": "a transposed convolution"}
            raise ModelError(
                f"{self._where}: class_name: is {word[layer.kind]}, but expected {word[kind]}"
            )
        made, read, height, width = layer.weight.shape
        if (height, width) != (taps, taps):
            raise ModelError(
                f"{self._where}: weight has {width}x{height} taps, but expected {taps}x{taps}"
            )
        if layer.bias.shape != (made,):
            raise ModelError(f"{self._where}: bias has {layer.bias.size} values for {made} planes")
        if layer.stride not in (None, stride):
            raise ModelError(f"{self._where}: dW is {layer.stride}, but expected {stride}")
        if layer.padding not in (None, padding):
            raise ModelError(f"{self._where}: padW is {layer.padding}, but expected {padding}")
        if read != self._planes[source]:
            raise ModelError(
                f"{self._where}: weight reads {read} planes,"
                f" but layer {self._makers[source]} makes {self._planes[source]}"
            )
        return layer

    def _same(self, value: int, other: int, what: str) -> None:
        if self._planes[value] != self._planes[other]:
            raise ModelError(
                f"{self._where}: weight makes {self._planes[value]} planes, but the"
                f" {self._planes[other]} of layer {self._makers[other]} are {what}"
            )


def _vgg(net: _Builder) -> None:
    value = 0
    while net.left > 1:
        value = net.convolution(value)
    net.convolution(value, slope=1.0)


def _upconv(net: _Builder) -> None:
    value = 0
    while net.left > 1:
        value = net.convolution(value)
    net.transposed(value, taps=4, crop=3, slope=1.0)


def _cunet(net: _Builder) -> None:
    _both(net, None)


def _upcunet(net: _Builder) -> None:
    _both(net, (4, 2, 3))


def _upcunet3x(net: _Builder) -> None:
    _both(net, (5, 3, 2))


def _upcunet4x(net: _Builder) -> None:
    """What Real-CUGAN's first half hands to its second, and both to a last layer, has many planes.

    The picture is padded by 19 pixels, which are 76 of the result.
    """
    net.shuffled_onto_picture(net.convolution(_both(net, (4, 2, 3)), slope=1.0), 1, 76)


def _both(net: _Builder, enlarge: tuple[int, int, int] | None) -> int:
    first = _shallow(net, enlarge)
    return net.add_cropped(first, 20, _deep(net, first))


def _shallow(net: _Builder, enlarge: tuple[int, int, int] | None) -> int:
    """The first U-net, which goes down once; it may enlarge at its end, by a transposed convolution
    of so many taps, stride and crop."""
    wide = net.convolution(net.convolution(0))
    value = net.convolution(wide, taps=2, stride=2)
    value = net.convolution(net.convolution(value))
    value = net.transposed(net.squeeze_and_excite(value), taps=2)
    value = net.convolution(net.add_cropped(wide, 4, value))
    if enlarge:
        taps, stride, crop = enlarge
        return net.transposed(value, taps, crop, 1.0, stride)
    return net.convolution(value, slope=1.0)


def _deep(net: _Builder, source: int) -> int:
    """The second, which goes down twice."""
    wide = net.convolution(net.convolution(source))
    value = net.convolution(wide, taps=2, stride=2)
    value = net.convolution(net.convolution(value))
    half = net.squeeze_and_excite(value)
    value = net.convolution(half, taps=2, stride=2)
    value = net.convolution(net.convolution(value))
    value = net.transposed(net.squeeze_and_excite(value), taps=2)
    value = net.convolution(net.convolution(net.add_cropped(half, 4, value)))
    value = net.transposed(net.squeeze_and_excite(value), taps=2)
    value = net.convolution(net.add_cropped(wide, 16, value))
    return net.convolution(value, slope=1.0)


_NETWORKS: dict[str, tuple[int, Callable[[_Builder], None]]] = {
    "upconv_7": (7, _upconv),
    "upconv_7l": (7, _upconv),
    "cunet": (30, _cunet),
    "upcunet": (30, _upcunet),
    "upcunet3x": (30, _upcunet3x),
    "upcunet4x": (31, _upcunet4x),
}
"""Layers with weights of each architecture, and what takes them."""
