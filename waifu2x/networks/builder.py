"""Builds graphs of networks node by node, every shape known while they grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.model import Border, Model, Surround
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    DepthwiseConvolution,
    Enlarge,
    Mean,
    Multiply,
    MultiplyMaps,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    Slice,
    TransposedConvolution,
    ValueShape,
    Weighted,
    affine,
    ungrouped,
)

MOST_NODES = 10_000
_MOST_MADE = 256 << 20
"""Bytes of all weights that a builder makes itself, such as diagonals of one factor a plane."""
_MULTIPLES = (1, 2, 4, 8, 16)
"""Rows and columns of a picture may have to be made up to a multiple of one of these."""

_LEAST_OF_GROUP = 8
"""The fewest planes of a group that is a convolution of its own: with fewer, engines would pad it
to more than zeros between the groups of a single one cost."""

Weight = NDArray[np.float32]


class GraphBuilder:
    """A graph in the making. `append` adds a node of any kind and returns the value that it makes;
    further methods add the most frequent kinds.

    A value is a number: 0 is the padded picture, node i makes value i + 1. A node that does not fit
    raises ModelError, which names the file and the layer.
    """

    def __init__(self, name: str, in_planes: int) -> None:
        """Begins a graph for pictures of `in_planes` planes; `name` is the file's, for messages."""
        self.name = name
        self.layer = ""
        """The file's own name for the layer whose nodes are added now, for messages. Empty: number
        and kind of the node."""
        self._nodes: list[Node] = []
        self._makers = ["the picture"]
        self._made = 0
        """Bytes of weights that the builder made."""
        self._shapes = [ValueShape(in_planes, Fraction(1), Fraction(0))]
        try:
            self._shapes[0].check_bounds()
        except ModelError as error:
            raise error.of(f"{name}: the picture") from None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Returns the nodes, in order."""
        return tuple(self._nodes)

    @property
    def last(self) -> int:
        """Returns the number of the last node's value; 0 while there is no node."""
        return len(self._nodes)

    def shape(self, value: int) -> ValueShape:
        """Returns planes, resolution and origin of a value."""
        return self._shapes[value]

    def planes(self, value: int) -> int:
        """Returns the planes of a value."""
        return self._shapes[value].planes

    def is_vector(self, value: int) -> bool:
        """Returns whether a value is a number for each plane, and not a map."""
        return self._shapes[value].resolution is None

    def maker(self, value: int) -> str:
        """Returns the name that messages use for the layer that made a value."""
        return self._makers[value]

    def node(self, value: int) -> Node | None:
        """Returns the node that makes a value; None for the picture."""
        return self._nodes[value - 1] if value else None

    def append(self, node: Node) -> int:
        """Adds a node of any kind; returns its value. Its numbers must be finite: those computed
        from a file's may not be."""
        label = self.layer or node.label(len(self._shapes))
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
            places.append(self.append(node.renumbered(places)))
        return places[-1]

    def exchange(self, value: int, node: Node) -> None:
        """Replaces the node that makes a value by one that makes a value of the same shape, from
        finite numbers."""
        label = self.layer or self._makers[value]
        if self._infer(node, self._shapes[:value], label) != self._shapes[value]:
            raise ModelError(f"{self.name}: {label}: it changes the shape of what {label} makes")
        self._nodes[value - 1] = node

    def _infer(self, node: Node, before: Sequence[ValueShape], label: str) -> ValueShape:
        try:
            shape = node.infer_shape(before, self._makers)
            if not all(np.isfinite(array).all() for array in node.arrays):
                raise ModelError("its numbers become too large for single precision")
        except ModelError as error:
            raise error.of(f"{self.name}: {label}") from None
        return shape

    def _count_made(self, numbers: int) -> None:
        """Counts weights before they are made; raises ModelError if they are too many."""
        self._made += 4 * numbers
        if self._made > _MOST_MADE:
            label = self.layer or f"node {len(self._shapes)}"
            raise ModelError(
                f"{self.name}: {label}: factors of its planes take more than {_MOST_MADE >> 20} MiB"
            )

    def convolution(
        self,
        source: int,
        weight: Weight,
        bias: Weight,
        activation: Activation | None = None,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> int:
        """Adds a cross-correlation by a weight (out_planes, in_planes / groups, kH, kW), then an
        activation, by default none.

        Without padding by zeros it is valid. Each of several groups of neighbouring planes reads
        one such group of the source.
        """
        function = activation or leaky(1.0, len(bias))
        if groups == 1:
            return self.append(Convolution(source, weight, bias, function, stride, padding))
        made, read = len(bias), self.planes(source)
        fits = groups > 1 and made % groups == read % groups == 0
        if not fits or weight.shape[:2] != (made, read // groups):
            label = self.layer or f"node {len(self._shapes)} (Convolution)"
            raise ModelError(
                f"{self.name}: {label}: {groups} groups and a weight {weight.shape} do not fit"
                f" {read} planes that become {made}"
            )
        if groups == made == read and stride == 1:
            return self.append(DepthwiseConvolution(source, weight, bias, function, padding))
        if min(made, read) // groups < _LEAST_OF_GROUP:
            self._count_made(weight.size * groups)
            whole = ungrouped(weight, groups)
            return self.append(Convolution(source, whole, bias, function, stride, padding))
        parts = []
        for number, group in enumerate(np.split(np.arange(made), groups)):
            inner = self.slice(source, number * read // groups, read // groups)
            own = Activation(function.function, function.slopes[group])
            arrays = weight[group], bias[group], own
            parts.append(self.convolution(inner, *arrays, stride=stride, padding=padding))
        return self.concatenate(*parts)

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
        """Adds a transposed convolution by a weight (out_planes, in_planes, kH, kW), then an
        activation; `crop` pixels of its result are dropped on each side."""
        function = activation or leaky(1.0, len(bias))
        return self.append(TransposedConvolution(source, weight, bias, function, stride, crop))

    def dense(
        self, source: int, weight: Weight, bias: Weight, activation: Activation | None = None
    ) -> int:
        """Adds a vector times a weight (out_planes, in_planes), then an activation."""
        return self.append(Dense(source, weight, bias, activation or leaky(1.0, len(bias))))

    def affine(self, source: int, factors: Weight, shifts: Weight) -> int:
        """Adds x * factor + shift, plane by plane, both (planes,): a convolution of one tap."""
        self._count_made(len(factors) ** 2)
        return self.append(affine(source, factors, shifts))

    def activate(self, value: int, activation: Activation) -> int:
        """Applies an activation to a value: in the layer with weights that made it, if that is
        linear and nothing else has read it, else in a new layer that passes all planes on."""
        node = self.node(value)
        is_read = any(value in later.sources for later in self._nodes[value:])
        if isinstance(node, Weighted) and node.activation.is_linear and not is_read:
            self.exchange(value, replace(node, activation=activation))
            return value
        planes = self.planes(value)
        self._count_made(planes**2)
        ones, zeros = np.ones(planes, np.float32), np.zeros(planes, np.float32)
        if self.is_vector(value):
            return self.dense(value, np.diag(ones), zeros, activation)
        return self.append(replace(affine(value, ones, zeros), activation=activation))

    def enlarge(self, source: int, factor: int) -> int:
        """Repeats each pixel in both directions (nearest neighbour)."""
        return self.append(Enlarge(source, factor))

    def pixel_shuffle(self, source: int, factor: int) -> int:
        """Makes planes [plane][dy][dx] of a pixel the planes of factor x factor pixels."""
        return self.append(PixelShuffle(source, factor))

    def pixel_unshuffle(self, source: int, factor: int) -> int:
        """Does the inverse of pixel_shuffle."""
        return self.append(PixelUnshuffle(source, factor))

    def crop(self, source: int, pixels: int) -> int:
        """Drops `pixels` pixels on each side of a map."""
        return self.append(Crop(source, pixels))

    def add(self, source: int, other: int, factor: float = 1.0) -> int:
        """Adds source * factor + other."""
        return self.append(Add(source, other, factor))

    def concatenate(self, *values: int) -> int:
        """Joins the planes of several maps, one after the other."""
        return self.append(Concatenate(values))

    def slice(self, source: int, first: int, planes: int) -> int:
        """Takes `planes` neighbouring planes of a map, from plane `first` on."""
        return self.append(Slice(source, first, planes))

    def split(self, source: int, *planes: int) -> tuple[int, ...]:
        """Divides the planes of a map: each value returned has the next `planes` of them."""
        starts = np.cumsum((0, *planes)).tolist()
        if starts[-1] != self.planes(source):
            layer = self.layer or self.maker(source)
            raise ModelError(
                f"{self.name}: {layer}: it splits {self.planes(source)} planes into {starts[-1]}"
            )
        return tuple(self.slice(source, *part) for part in zip(starts, planes, strict=False))

    def mean(self, source: int) -> int:
        """Takes the mean of each plane over the whole map: a vector."""
        return self.append(Mean(source))

    def multiply(self, source: int, factors: int) -> int:
        """Multiplies each plane of a map by its element of a vector, or by that plane of another
        map, or by its only one."""
        if self.is_vector(factors):
            return self.append(Multiply(source, factors))
        return self.append(MultiplyMaps(source, factors))

    def model(
        self,
        border: Border = "replicate",
        *,
        same_planes: bool = False,
        multiple: int = 1,
        frames: int = 1,
        surround: Surround | None = None,
    ) -> Model:
        """Returns the network with the padding that it needs and the least multiple of `multiple`
        that it needs.

        Where no padding shows, the border is zero, as it is for padded convolutions, which can then
        read it. Raises ModelError if no padding makes the result a multiple of the picture's size,
        or, with `same_planes`, if it has other planes than the picture.
        """
        if not self._nodes:
            raise ModelError(f"{self.name}: a network without nodes")
        made, planes = self._shapes[-1].planes, self._shapes[0].planes
        if same_planes and made != planes:
            raise ModelError(
                f"{self.name}: {self._makers[-1]}: it makes {made} planes of the picture's"
                f" {planes}:"
                " a picture must stay one"
            )
        padding = self._shapes[-1].origin
        if padding.denominator != 1 or padding < 0:
            raise ModelError(f"{self.name}: its result begins {padding} pixels off the picture's")
        first: ModelError | None = None
        for times in _MULTIPLES:
            more = times * multiple
            shown: Border = "zero" if padding == 0 and more == 1 else border
            try:
                return Model(
                    *(self.name, planes, self.nodes, int(padding), shown, more),
                    frames=frames,
                    surround=surround,
                    inferred=self._shapes,
                )
            except ModelError as error:
                first = first or error
        assert first is not None
        raise first
