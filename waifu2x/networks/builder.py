"""Graphs of networks, built node by node, every shape known while they grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Gate,
    Interpolate,
    Mean,
    Multiply,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
    affine,
    renumbered,
)
from waifu2x.networks.shapes import ValueShape, infer_shape, node_label, picture_shape

MOST_NODES = 10_000
_MULTIPLES = (1, 2, 4, 8, 16)
"""Rows and columns of a picture may have to be made up to a multiple of one of these."""

Weight = NDArray[np.float32]


class GraphBuilder:
    """A graph in the making. Each method adds a node and returns the value that it makes.

    A value is a number: 0 is the padded picture, node i makes value i + 1. Whatever does not fit
    raises ModelError, which names the file and the layer.
    """

    def __init__(self, name: str, in_planes: int) -> None:
        """A graph for pictures of so many planes; `name` is the file's, for messages."""
        self.name = name
        self.layer = ""
        """What messages call the nodes that are added now: the file's own name for its layer.
        Empty: number and kind of the node."""
        self._nodes: list[Node] = []
        self._makers = ["the picture"]
        try:
            self._shapes = [picture_shape(in_planes)]
        except ModelError as error:
            raise ModelError(f"{name}: the picture {error}") from None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes so far."""
        return tuple(self._nodes)

    @property
    def last(self) -> int:
        """The value of the last node; 0 while there is none."""
        return len(self._nodes)

    def shape(self, value: int) -> ValueShape:
        """What is known of a value."""
        return self._shapes[value]

    def planes(self, value: int) -> int:
        """Planes of a value."""
        return self._shapes[value].planes

    def is_vector(self, value: int) -> bool:
        """Whether a value is a number for each plane, and not a map."""
        return self._shapes[value].resolution is None

    def maker(self, value: int) -> str:
        """What messages call the layer that made a value."""
        return self._makers[value]

    def node(self, value: int) -> Node | None:
        """The node that makes a value; None for the picture."""
        return self._nodes[value - 1] if value else None

    def append(self, node: Node) -> int:
        """Adds a node of any kind."""
        label = self.layer or node_label(len(self._shapes), node)
        if len(self._nodes) == MOST_NODES:
            raise ModelError(f"{self.name}: {label}: more than {MOST_NODES} nodes")
        self._shapes.append(self._infer(node, self._shapes, label))
        self._nodes.append(node)
        self._makers.append(label)
        return len(self._nodes)

    def extend(self, nodes: Iterable[Node], source: int = 0) -> int:
        """Adds the nodes of another graph, whose picture is `source`; returns the last value."""
        places = [source]
        for node in nodes:
            places.append(self.append(renumbered(node, places)))
        return places[-1]

    def exchange(self, value: int, node: Node) -> None:
        """Puts another node, which makes a value of the same shape, in the place of one."""
        label = self.layer or self._makers[value]
        if self._infer(node, self._shapes[:value], label) != self._shapes[value]:
            raise ModelError(f"{self.name}: {label}: changes the shape of what {label} makes")
        self._nodes[value - 1] = node

    def _infer(self, node: Node, before: Sequence[ValueShape], label: str) -> ValueShape:
        try:
            return infer_shape(node, before, self._makers)
        except ModelError as error:
            raise ModelError(f"{self.name}: {label}: {error}") from None

    def convolution(
        self,
        source: int,
        weight: Weight,
        bias: Weight,
        activation: Activation | None = None,
        *,
        stride: int = 1,
        padding: int = 0,
    ) -> int:
        """A cross-correlation by a weight (out_planes, in_planes, kH, kW), then an activation.

        Without padding by zeros it is valid. Without an activation it is linear.
        """
        function = activation or leaky(1.0, len(bias))
        return self.append(Convolution(source, weight, bias, function, stride, padding))

    def transposed(
        self,
        source: int,
        weight: Weight,
        bias: Weight,
        activation: Activation | None = None,
        *,
        stride: int,
        crop: int = 0,
    ) -> int:
        """A transposed convolution by a weight (out_planes, in_planes, kH, kW), then an
        activation; so many pixels of its result are dropped on each side."""
        function = activation or leaky(1.0, len(bias))
        return self.append(TransposedConvolution(source, weight, bias, function, stride, crop))

    def dense(
        self, source: int, weight: Weight, bias: Weight, activation: Activation | None = None
    ) -> int:
        """A vector times a weight (out_planes, in_planes), then an activation."""
        return self.append(Dense(source, weight, bias, activation or leaky(1.0, len(bias))))

    def affine(self, source: int, factors: Weight, shifts: Weight) -> int:
        """x * factor + shift, plane by plane, both (planes,): a convolution of one tap."""
        return self.append(affine(source, factors, shifts))

    def activate(self, value: int, activation: Activation) -> int:
        """Gives the layer with weights that made a value, so far linear, an activation."""
        node = self.node(value)
        assert isinstance(node, Convolution | TransposedConvolution | Dense)
        assert node.activation.is_linear
        self.exchange(value, replace(node, activation=activation))
        return value

    def enlarge(self, source: int, factor: int) -> int:
        """Each pixel repeated in both directions (nearest neighbour)."""
        return self.append(Enlarge(source, factor))

    def pixel_shuffle(self, source: int, factor: int) -> int:
        """Planes [plane][dy][dx] of a pixel as the planes of factor x factor pixels."""
        return self.append(PixelShuffle(source, factor))

    def pixel_unshuffle(self, source: int, factor: int) -> int:
        """The inverse of pixel_shuffle."""
        return self.append(PixelUnshuffle(source, factor))

    def crop(self, source: int, pixels: int) -> int:
        """The map without so many pixels on each side."""
        return self.append(Crop(source, pixels))

    def add(self, source: int, other: int, factor: float = 1.0) -> int:
        """source * factor + other."""
        return self.append(Add(source, other, factor))

    def gate(self, source: int, other: int) -> int:
        """(source + other) * (sigmoid(source) - 1/2)."""
        return self.append(Gate(source, other))

    def interpolate(self, source: int, up: int, down: int) -> int:
        """The map up / down times as large, by bicubic interpolation."""
        return self.append(Interpolate(source, up, down))

    def concatenate(self, *values: int) -> int:
        """The planes of several maps, one after the other."""
        return self.append(Concatenate(values))

    def mean(self, source: int) -> int:
        """The mean of each plane over the whole map: a vector."""
        return self.append(Mean(source))

    def multiply(self, source: int, factors: int) -> int:
        """Each plane of a map times its element of a vector."""
        return self.append(Multiply(source, factors))

    def model(self, border: Border = "replicate", *, same_planes: bool = False) -> Model:
        """The network, with the padding and the multiple that it needs, found.

        What no padding shows is taken to be zero, as its padded convolutions do: so they can read
        it. Raises ModelError if no padding makes the result a multiple of the picture's size, or,
        with `same_planes`, if it has other planes than the picture.
        """
        if not self._nodes:
            raise ModelError(f"{self.name}: a network without nodes")
        made, planes = self._shapes[-1].planes, self._shapes[0].planes
        if same_planes and made != planes:
            raise ModelError(
                f"{self.name}: {self._makers[-1]}: makes {made} planes of the picture's {planes}:"
                " a picture must stay one"
            )
        padding = self._shapes[-1].origin
        if padding.denominator != 1 or padding < 0:
            raise ModelError(f"{self.name}: its result begins {padding} pixels off the picture's")
        first: ModelError | None = None
        for multiple in _MULTIPLES:
            shown: Border = "zero" if padding == 0 and multiple == 1 else border
            try:
                return Model(
                    *(self.name, planes, self.nodes, int(padding), shown, multiple),
                    inferred=self._shapes,
                )
            except ModelError as error:
                first = first or error
        assert first is not None
        raise first


def fit_padding(
    name: str, in_planes: int, nodes: Iterable[Node], border: Border = "replicate"
) -> Model:
    """A model from its nodes alone: the padding and the multiple that they need, found.

    Raises ModelError for nodes that do not fit together, and if no padding makes the result a
    multiple of the picture's size.
    """
    builder = GraphBuilder(name, in_planes)
    for node in nodes:
        builder.append(node)
    return builder.model(border)
