"""The networks whose files hold only weights, in order: the layers between them follow from a name.

vgg_N (N 3x3 convolutions), upconv_7 and its larger upconv_7l, cunet and upcunet (two U-nets, the
second on the first one's result), Real-CUGAN's upcunet3x and upcunet4x, Anime4K's anime4k_2x and
anime4k_restore. Planes are read from the weights; taps, strides and the kinds of layers are the
architecture's, and the file's must agree.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import SIGMOID
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import Node, Weighted
from waifu2x.system.lazy_dataclass import dataclass

SLOPE = 0.1
"""The slope of the leaky ReLU behind every layer but the last of a network."""

_MOST_PLANES = 4
"""Planes of a picture, for networks that compute weights for each pair of them."""

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
    """Zeros around a convolution; for a transposed one, pixels dropped on each side."""


def build(
    name: str, architecture: str, layers: Sequence[Layer], border: Border = "replicate"
) -> Model:
    """Returns the network of an architecture with these weights; `name` stands for the file in
    messages.

    Raises ModelError, which names layer and field, for an unknown architecture and for layers that
    are not its.
    """
    stack = re.fullmatch(r"vgg_(\d{1,4})", architecture)
    vgg = (int(stack[1]), _vgg) if stack else None
    network = vgg or _NETWORKS.get(architecture)
    if not network:
        raise ModelError(
            f"{name}: layer 1: model_config: architecture {reprlib.repr(architecture)}"
            f" is not supported: only vgg_7, {', '.join(_NETWORKS)}"
        )
    count, make = network[0] or max(2, len(layers)), network[1]
    if len(layers) != count:
        raise ModelError(
            f"{name}: {len(layers)} layers with weights, but {architecture} has {count}"
        )
    net = _LayeredGraph(name, layers)
    make(net)
    # The picture's planes are those that the first layer reads.
    return net.model(border, same_planes=True)


class _LayeredGraph(GraphBuilder):
    """A graph whose layers with weights are a file's, taken one after the other."""

    def __init__(self, name: str, layers: Sequence[Layer]) -> None:
        super().__init__(name, layers[0].weight.shape[1])
        self._layers = layers
        self._taken = 0

    @property
    def left(self) -> int:
        """Returns the number of layers that are not taken yet."""
        return len(self._layers) - self._taken

    def append(self, node: Node) -> int:
        """Adds a node; one without weights is named, in messages, as the layer that it reads."""
        value = super().append(node)
        if not isinstance(node, Weighted):
            self._makers[value] = self._makers[node.sources[0]]
        return value

    def next_convolution(
        self, source: int, taps: int = 3, stride: int = 1, slope: float = SLOPE
    ) -> int:
        layer = self._take("convolution", taps, stride, 0)
        activation = leaky(slope, len(layer.bias))
        return self.convolution(source, layer.weight, layer.bias, activation, stride=stride)

    def next_both_signs(self, source: int) -> int:
        """Adds the next layer, a 3x3 convolution without padding, with twice its planes.

        First its values above 0, then those below, made positive.
        """
        layer = self._take("convolution", 3, 1, 0)
        weight, bias = (np.concatenate([part, -part]) for part in (layer.weight, layer.bias))
        return self.convolution(source, weight, bias, leaky(0.0, len(bias)))

    def last_repeated(self, planes: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns weights and biases of the last layer, repeated until it makes `planes` planes."""
        layer = self._take("convolution", self.last_taps, 1, 0)
        times, rest = divmod(planes, len(layer.weight))
        if rest or not times:
            raise ModelError(
                f"{self.name}: {self.layer}: weight makes {len(layer.weight)} planes, which do not"
                f" divide the {planes} of the result"
            )
        return np.tile(layer.weight, (times, 1, 1, 1)), np.tile(layer.bias, times)

    @property
    def last_taps(self) -> int:
        return int(self._layers[-1].weight.shape[-1])

    def next_transposed(
        self, source: int, taps: int, crop: int = 0, slope: float = SLOPE, stride: int = 2
    ) -> int:
        layer = self._take("transposed", taps, stride, crop)
        activation = leaky(slope, len(layer.bias))
        return self.transposed(
            source, layer.weight, layer.bias, activation, stride=stride, crop=crop
        )

    def squeeze_and_excite(self, source: int) -> int:
        """Adds the next two layers, which make factors for a value's planes of their means."""
        squeezed = self._next_dense(self.mean(source), partial(leaky, 0.0))
        return self.multiply(source, self._next_dense(squeezed, partial(elementwise, SIGMOID)))

    def _next_dense(self, source: int, activation: Callable[[int], Activation]) -> int:
        layer = self._take("convolution", 1, 1, 0)
        weight = layer.weight[:, :, 0, 0]
        return self.dense(source, weight, layer.bias, activation(len(layer.bias)))

    def add_cropped(self, source: int, pixels: int, other: int) -> int:
        """Adds a value, cropped by `pixels` on each side, to another."""
        return self.add(self.crop(source, pixels), other)

    def _take(self, kind: Kind, taps: int, stride: int, padding: int) -> Layer:
        """Takes the next layer, which must be of that geometry."""
        layer = self._layers[self._taken]
        self._taken += 1
        self.layer = f"layer {self._taken}"
        where = f"{self.name}: {self.layer}"
        if layer.kind != kind:
            word = {"convolution": "a convolution", "transposed": "a transposed convolution"}
            raise ModelError(
                f"{where}: class_name is {word[layer.kind]}, but expected {word[kind]}"
            )
        height, width = layer.weight.shape[2:]
        if (height, width) != (taps, taps):
            raise ModelError(
                f"{where}: weight has {width}x{height} taps, but expected {taps}x{taps}"
            )
        if layer.stride not in (None, stride):
            raise ModelError(f"{where}: dW is {layer.stride}, but expected {stride}")
        if layer.padding not in (None, padding):
            raise ModelError(f"{where}: padW is {layer.padding}, but expected {padding}")
        return layer


def _vgg(net: _LayeredGraph) -> None:
    value = 0
    while net.left > 1:
        value = net.next_convolution(value)
    net.next_convolution(value, slope=1.0)


def _upconv(net: _LayeredGraph) -> None:
    value = 0
    while net.left > 1:
        value = net.next_convolution(value)
    net.next_transposed(value, taps=4, crop=3, slope=1.0)


def _upcunet4x(net: _LayeredGraph) -> None:
    """Adds Real-CUGAN's network of 4x, whose halves hand on many planes.

    The picture is padded by 19 pixels, which are 76 of the result.
    """
    made = net.crop(net.next_convolution(_both(net, (4, 2, 3)), slope=1.0), 1)
    made = net.pixel_shuffle(made, 2)
    net.add(made, net.crop(net.enlarge(0, 4), 76))


def _both(net: _LayeredGraph, enlarge: tuple[int, int, int] | None = None) -> int:
    first = _shallow(net, enlarge)
    return net.add_cropped(first, 20, _deep(net, first))


def _shallow(net: _LayeredGraph, enlarge: tuple[int, int, int] | None) -> int:
    """Adds the first U-net, which goes down once.

    `enlarge` is taps, stride and crop of a transposed convolution at its end.
    """
    wide = net.next_convolution(net.next_convolution(0))
    value = net.next_convolution(wide, taps=2, stride=2)
    value = net.next_convolution(net.next_convolution(value))
    value = net.next_transposed(net.squeeze_and_excite(value), taps=2)
    value = net.next_convolution(net.add_cropped(wide, 4, value))
    if enlarge:
        taps, stride, crop = enlarge
        return net.next_transposed(value, taps, crop, 1.0, stride)
    return net.next_convolution(value, slope=1.0)


def _deep(net: _LayeredGraph, source: int) -> int:
    wide = net.next_convolution(net.next_convolution(source))
    value = net.next_convolution(wide, taps=2, stride=2)
    value = net.next_convolution(net.next_convolution(value))
    half = net.squeeze_and_excite(value)
    value = net.next_convolution(half, taps=2, stride=2)
    value = net.next_convolution(net.next_convolution(value))
    value = net.next_transposed(net.squeeze_and_excite(value), taps=2)
    value = net.next_convolution(net.next_convolution(net.add_cropped(half, 4, value)))
    value = net.next_transposed(net.squeeze_and_excite(value), taps=2)
    value = net.next_convolution(net.add_cropped(wide, 16, value))
    return net.next_convolution(value, slope=1.0)


def _anime4k_2x(net: _LayeredGraph) -> None:
    """Adds the picture, enlarged by bilinear interpolation, plus the result of the layers.

    The last layer reads the former, too, and passes it on.
    """
    maps, lost = _anime4k(net)
    planes = net.planes(0)
    made = 4 * planes
    # Pixels of the result lie a quarter of a pixel above and below those of the picture.
    near = np.array([[1, 3, 0], [0, 3, 1]]) / 4
    weight = np.einsum("ab,dy,ex->adebyx", np.eye(planes), near, near)
    weight = weight.reshape(made, planes, 3, 3).astype(np.float32)
    inner = net.crop(0, lost - 1) if lost > 1 else 0
    enlarged = net.convolution(inner, weight, np.zeros(made, np.float32))
    weight, bias = net.last_repeated(made)
    middle = weight.shape[-1] // 2
    passed = np.zeros((made, made, *weight.shape[2:]), np.float32)
    passed[:, :, middle, middle] = np.eye(made)
    value = net.concatenate(*maps, enlarged)
    net.pixel_shuffle(net.convolution(value, np.concatenate([weight, passed], 1), bias), 2)


def _anime4k_restore(net: _LayeredGraph) -> None:
    maps, lost = _anime4k(net)
    weight, bias = net.last_repeated(net.planes(0))
    value = net.convolution(net.concatenate(*maps), weight, bias)
    net.add(value, net.crop(0, lost + weight.shape[-1] // 2))


def _anime4k(net: _LayeredGraph) -> tuple[list[int], int]:
    """Returns the maps that the last layer reads, and the pixels that they lost on each side.

    A last layer of 3x3 taps reads the one before it; one of a single tap reads all, cropped to one
    size.
    """
    if net.planes(0) > _MOST_PLANES:
        raise ModelError(
            f"{net.name}: layer 1: it reads {net.planes(0)} planes, which is no picture"
        )
    made = [net.next_both_signs(0)]
    while net.left > 1:
        made.append(net.next_both_signs(made[-1]))
    if net.last_taps == 3:
        return made[-1:], len(made)
    cropped = [net.crop(value, len(made) - lost) for lost, value in enumerate(made[:-1], 1)]
    return [*cropped, made[-1]], len(made)


_NETWORKS: dict[str, tuple[int, Callable[[_LayeredGraph], object]]] = {
    "upconv_7": (7, _upconv),
    "upconv_7l": (7, _upconv),
    "cunet": (30, _both),
    "upcunet": (30, partial(_both, enlarge=(4, 2, 3))),
    "upcunet3x": (30, partial(_both, enlarge=(5, 3, 2))),
    "upcunet4x": (31, _upcunet4x),
    "anime4k_2x": (0, _anime4k_2x),
    "anime4k_restore": (0, _anime4k_restore),
}
"""For each architecture, the number of layers with weights (0: two or more), and its function."""
