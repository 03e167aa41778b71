"""Graphs of networks, built node by node, every shape known while they grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.attention import ChannelAttention, PlanesFrom, WindowAttention
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    DepthwiseConvolution,
    Enlarge,
    Gate,
    Interleave,
    Interpolate,
    Mean,
    Multiply,
    MultiplyMaps,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    Slice,
    TransposedConvolution,
    Weighted,
    affine,
    arrays,
    renumbered,
    sources,
    ungrouped,
)
from waifu2x.networks.norms import GroupNorm, LayerNorm
from waifu2x.networks.pooling import InterpolateTo, MaxPool
from waifu2x.networks.shapes import ValueShape, infer_shape, node_label, picture_shape
from waifu2x.networks.windows import Windows

MOST_NODES = 10_000
_MOST_MADE = 256 << 20
"""Bytes of all weights that a graph makes itself, such as those of one factor for each plane."""
_MULTIPLES = (1, 2, 4, 8, 16)
"""Rows and columns of a picture may have to be made up to a multiple of one of these."""

_LEAST_OF_GROUP = 8
"""The fewest planes of a group that is a convolution of its own: with fewer, engines would pad it
to more than zeros between the groups of a single one cost."""

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
        self._made = 0
        """Bytes of weights that were made here."""
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
        """Adds a node of any kind, whose numbers must be finite: what is computed of a file's may
        not be."""
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
        """Puts another node, which makes a value of the same shape, in the place of one. Its
        numbers must be finite."""
        label = self.layer or self._makers[value]
        if self._infer(node, self._shapes[:value], label) != self._shapes[value]:
            raise ModelError(f"{self.name}: {label}: changes the shape of what {label} makes")
        self._nodes[value - 1] = node

    def _infer(self, node: Node, before: Sequence[ValueShape], label: str) -> ValueShape:
        try:
            shape = infer_shape(node, before, self._makers)
            if not all(np.isfinite(array).all() for array in arrays(node)):
                raise ModelError("its numbers become too large for single precision")
        except ModelError as error:
            raise ModelError(f"{self.name}: {label}: {error}") from None
        return shape

    def _count_made(self, numbers: int) -> None:
        """Counts weights that are about to be made."""
        self._made += 4 * numbers
        if self._made > _MOST_MADE:
            label = self.layer or f"node {len(self._shapes)}"
            raise ModelError(
                f"{self.name}: {label}: factors of so many planes take more than"
                f" {_MOST_MADE >> 20} MiB"
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
        """A cross-correlation by a weight (out_planes, in_planes / groups, kH, kW), then an
        activation.

        Without padding by zeros it is valid. Without an activation it is linear. Each of several
        groups of neighbouring planes is made of such a group of the source's.
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
        self._count_made(len(factors) ** 2)
        return self.append(affine(source, factors, shifts))

    def activate(self, value: int, activation: Activation) -> int:
        """A function of each number of a value: of the layer with weights that made it, if that is
        linear and nothing else has read it, else of a layer that leaves all as it is."""
        node = self.node(value)
        is_read = any(value in sources(later) for later in self._nodes[value:])
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

    def interpolate_to(self, source: int, like: int) -> int:
        """The map enlarged to the size of another one, by bilinear interpolation."""
        return self.append(InterpolateTo(source, like))

    def max_pool(self, source: int, kernel: int, stride: int) -> int:
        """The maximum of each plane over kernel x kernel pixels, at every `stride` pixels."""
        return self.append(MaxPool(source, kernel, stride))

    def interleave(self, source: int, parts: int, *, inverse: bool = False) -> int:
        """The pixels of parts x parts rectangles of a map interleaved, or back to where they
        were."""
        return self.append(Interleave(source, parts, inverse))

    def concatenate(self, *values: int) -> int:
        """The planes of several maps, one after the other."""
        return self.append(Concatenate(values))

    def slice(self, source: int, first: int, planes: int) -> int:
        """Some neighbouring planes of a map, from plane `first` on."""
        return self.append(Slice(source, first, planes))

    def split(self, source: int, *planes: int) -> tuple[int, ...]:
        """All planes of a map, so many in each of the values that are returned."""
        starts = np.cumsum((0, *planes)).tolist()
        if starts[-1] != self.planes(source):
            layer = self.layer or self.maker(source)
            raise ModelError(
                f"{self.name}: {layer}: splits {self.planes(source)} planes into {starts[-1]}"
            )
        return tuple(self.slice(source, *part) for part in zip(starts, planes, strict=False))

    def layer_norm(self, source: int, weight: Weight, bias: Weight, eps: float = 1e-5) -> int:
        """The planes of each pixel less their mean, divided by their deviation, then * weight +
        bias, both (planes,)."""
        return self.append(LayerNorm(source, weight, bias, eps))

    def group_norm(
        self, source: int, weight: Weight, bias: Weight, groups: int, eps: float = 1e-5
    ) -> int:
        """The same of all values of a group of planes over the whole map."""
        return self.append(GroupNorm(source, weight, bias, groups, eps))

    def mean(self, source: int) -> int:
        """The mean of each plane over the whole map: a vector."""
        return self.append(Mean(source))

    def multiply(self, source: int, factors: int) -> int:
        """Each plane of a map times its element of a vector, or times that of another map of as
        many planes or one."""
        if self.is_vector(factors):
            return self.append(Multiply(source, factors))
        return self.append(MultiplyMaps(source, factors))

    def window_attention(
        self,
        queries: PlanesFrom,
        keys: PlanesFrom,
        values: PlanesFrom,
        planes: int,
        windows: Windows,
        scale: float,
        bias: Weight,
    ) -> int:
        """Attention of so many planes in windows; see WindowAttention for the biases."""
        node = WindowAttention(queries, keys, values, planes, windows, scale, bias)
        return self.append(node)

    def channel_attention(
        self,
        queries: PlanesFrom,
        keys: PlanesFrom,
        values: PlanesFrom,
        planes: int,
        temperature: Weight,
        *,
        window: int = 0,
        period: int = 1,
    ) -> int:
        """Attention between so many planes, over the whole map, in windows, or of the pixels that
        lie a period apart; a temperature for each head."""
        return self.append(
            ChannelAttention(queries, keys, values, planes, temperature, window, period)
        )

    def model(
        self, border: Border = "replicate", *, same_planes: bool = False, multiple: int = 1
    ) -> Model:
        """The network, with the padding that it needs, found, and the multiple: the least one of
        `multiple`.

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
        for times in _MULTIPLES:
            more = times * multiple
            shown: Border = "zero" if padding == 0 and more == 1 else border
            try:
                return Model(
                    *(self.name, planes, self.nodes, int(padding), shown, more),
                    inferred=self._shapes,
                )
            except ModelError as error:
                first = first or error
        assert first is not None
        raise first
