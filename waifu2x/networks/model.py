"""What a network is: a graph in single assignment form, with every size read from the weights.

Value 0 is the picture, padded; node i makes value i + 1 from earlier values. A value is either a
map (rows, columns, planes) or, behind a mean, a vector (planes,). A map's pixel (0, 0) is the first
that the network computes: a valid 3x3 convolution of h rows makes h - 2, and its row y reads rows y
to y + 2. Convolutions are cross-correlations, weights are not turned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError

Border = Literal["replicate", "reflect", "zero"]
"""Pixels beyond the picture's edges: the nearest one inside; the picture mirrored at the middle of
its last pixel, again and again; or 0."""

MOST_OFFSET = 64
"""Of deep networks: see Model.offset."""

Size = tuple[int, int]
"""Rows and columns."""


ActivationKind = Literal["leaky", "sigmoid", "silu"]


@dataclass(frozen=True, eq=False)
class Activation:
    """What follows a sum x, plane by plane.

    leaky: x if it is above 0, else x * slope. sigmoid: 1 / (1 + exp(-x)). silu: x * sigmoid(x).
    """

    kind: ActivationKind
    slopes: NDArray[np.float32]
    """(planes,) of `leaky`: 1 leaves x as it is, 0 is ReLU; it may exceed 1 or be negative. Of no
    meaning to others."""

    @property
    def code(self) -> int:
        """How kernels know its kind."""
        return get_args(ActivationKind).index(self.kind)

    def __call__(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of sums whose last axis is the planes."""
        if self.kind == "leaky":
            return np.where(sums > 0, sums, sums * self.slopes)
        gate = sigmoid(sums)
        return gate if self.kind == "sigmoid" else sums * gate

    @property
    def is_linear(self) -> bool:
        """Whether it leaves every value as it is."""
        return self.kind == "leaky" and bool((self.slopes == 1).all())


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), which no x overflows."""
    result: NDArray[np.float64] = np.exp(-np.logaddexp(0, -values))
    return result


def cubic_taps(up: int, down: int) -> NDArray[np.float64]:
    """(up, 4): the weights of a Resize for results y = 0 to up - 1, which repeat.

    They belong to the source's pixels floor((y + 1/2) * down / up - 1/2) - 1 and the next three.
    """
    place = (np.arange(up) + 0.5) * down / up - 0.5
    t = (place - np.floor(place))[:, np.newaxis] + np.array([1, 0, -1, -2])
    t, a = abs(t), -0.75
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    taps: NDArray[np.float64] = np.where(t <= 1, near, np.where(t < 2, far, 0))
    return taps


def leaky(slope: float, planes: int) -> Activation:
    """Leaky ReLU with one slope; 1 for none."""
    return Activation("leaky", np.full(planes, slope, np.float32))


@dataclass(frozen=True, eq=False)
class Convolution:
    """A cross-correlation, then an activation."""

    source: int
    weight: NDArray[np.float32]
    """(out_planes, in_planes, kH, kW), kH = kW."""
    bias: NDArray[np.float32]
    """(out_planes,)."""
    activation: Activation
    stride: int = 1
    padding: int = 0
    """Zeros on each side of the source; 0 is a valid convolution."""


def affine(source: int, factors: NDArray[np.float32], shifts: NDArray[np.float32]) -> Convolution:
    """x * factor + shift, plane by plane, both (planes,)."""
    weight = np.diag(factors)[:, :, np.newaxis, np.newaxis]
    return Convolution(source, weight, shifts, leaky(1.0, len(shifts)))


@dataclass(frozen=True, eq=False)
class TransposedConvolution:
    """out[y * stride + k - crop] += weight[:, :, k] @ in[y], then an activation."""

    source: int
    weight: NDArray[np.float32]
    """(out_planes, in_planes, kH, kW), kH = kW."""
    bias: NDArray[np.float32]
    activation: Activation
    stride: int
    crop: int = 0
    """Pixels of the result dropped on each side; other libraries call it padding."""


@dataclass(frozen=True)
class Enlarge:
    """Repeats every pixel `factor` times in both directions (nearest neighbour)."""

    source: int
    factor: int


@dataclass(frozen=True)
class PixelShuffle:
    """out[y * factor + dy][x * factor + dx][c] = in[y][x][(c * factor + dy) * factor + dx]."""

    source: int
    factor: int


@dataclass(frozen=True)
class PixelUnshuffle:
    """The inverse of PixelShuffle."""

    source: int
    factor: int


@dataclass(frozen=True)
class Crop:
    """Drops so many pixels on each side."""

    source: int
    pixels: int


@dataclass(frozen=True)
class Add:
    """source * factor + other, of the same size and planes."""

    source: int
    other: int
    factor: float = 1.0


@dataclass(frozen=True)
class Gate:
    """(source + other) * (sigmoid(source) - 1/2), of the same size and planes: what SPAN calls
    attention without parameters."""

    source: int
    other: int


@dataclass(frozen=True)
class Resize:
    """The map `up / down` times as large, by bicubic interpolation of 4x4 pixels.

    Pixel y of the result stands at y' = (y + 1/2) * down / up - 1/2 of the source; at the distance
    t, the weight is Keys's cubic with a = -3/4. Pixels beyond the map are those at its edge.
    """

    source: int
    up: int
    down: int


@dataclass(frozen=True)
class Concatenate:
    """Planes of several maps of one size, one after the other."""

    sources: tuple[int, ...]


@dataclass(frozen=True)
class Mean:
    """The mean of each plane over the network's whole map, its padding included: a vector."""

    source: int


@dataclass(frozen=True, eq=False)
class Dense:
    """weight @ vector + bias, then an activation."""

    source: int
    weight: NDArray[np.float32]
    """(out_planes, in_planes)."""
    bias: NDArray[np.float32]
    activation: Activation


@dataclass(frozen=True)
class Multiply:
    """Each plane of a map times its element of a vector."""

    source: int
    factors: int


Node = (
    Convolution
    | TransposedConvolution
    | Enlarge
    | PixelShuffle
    | PixelUnshuffle
    | Crop
    | Add
    | Gate
    | Resize
    | Concatenate
    | Mean
    | Dense
    | Multiply
)
Weighted = Convolution | TransposedConvolution | Dense


def sources(node: Node) -> tuple[int, ...]:
    """The values that a node reads."""
    match node:
        case Add() | Gate():
            return (node.source, node.other)
        case Multiply():
            return (node.source, node.factors)
        case Concatenate():
            return node.sources
        case _:
            return (node.source,)


def moved(node: Node, places: Sequence[int]) -> Node:
    """A node that reads each value at another place among the nodes."""
    match node:
        case Concatenate():
            return replace(node, sources=tuple(places[source] for source in node.sources))
        case Add() | Gate():
            return replace(node, source=places[node.source], other=places[node.other])
        case Multiply():
            return replace(node, source=places[node.source], factors=places[node.factors])
        case _:
            return replace(node, source=places[node.source])


@dataclass(frozen=True)
class Shape:
    """What is known of a value without a picture."""

    planes: int
    resolution: Fraction | None
    """Its pixels for each pixel of the picture, in each direction; None for a vector."""
    origin: Fraction
    """Where the upper edge of its row 0 lies, in rows of the padded picture."""


@dataclass(frozen=True, eq=False)
class Model:
    """A network: planes of a picture in [0, 1] in, planes of a picture out.

    The last node's value is the result: its pixel (0, 0) belongs to the picture's, and it is
    `scale` times as large. Raises ModelError, with the number of the node, for a graph that is not
    whole; see `check`.
    """

    name: str
    """For messages: the file that it came from."""
    in_planes: int
    """Planes of the pictures that it takes: 1 or 3 for pictures, anything for tests."""
    nodes: tuple[Node, ...]
    padding: int
    """Pixels that the picture is padded with on each side."""
    border: Border = "replicate"
    """What they hold."""
    multiple: int = 1
    """Rows and columns of the picture are made up to a multiple of it, below and on the right, by
    more of the border; the result is cut to size."""

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Of every value."""
        return shapes_of(self.name, self.in_planes, self.nodes)

    @property
    def out_planes(self) -> int:
        """Planes of the pictures that it makes."""
        return self.shapes[-1].planes

    @property
    def scale(self) -> int:
        """Output pixels for each input pixel, in each direction."""
        resolution = self.shapes[-1].resolution
        assert resolution is not None
        return int(resolution)

    @property
    def offset(self) -> int:
        """Output pixels at each side in which what lies beyond the picture shows: those that it
        would lose without padding, of the picture or of its layers. What is further than
        MOST_OFFSET shows no more."""
        paddings = [
            node.padding * self.scale / resolution
            for node, shape in zip(self.nodes, self.shapes[1:], strict=True)
            if isinstance(node, Convolution) and (resolution := shape.resolution)
        ]
        return self.padding * self.scale + min(MOST_OFFSET, math.ceil(sum(paddings)))

    @property
    def weighted(self) -> tuple[tuple[int, Weighted], ...]:
        """The nodes with weights, with the values that they make, in order."""
        return tuple((v, n) for v, n in enumerate(self.nodes, 1) if isinstance(n, Weighted))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds for one output pixel, by the definition of convolution, rounded."""
        return round(sum(self.node_multiply_adds(value) for value, _ in self.weighted))

    def node_multiply_adds(self, value: int) -> Fraction:
        """Those of the node that makes a value, for one output pixel."""
        node = self.nodes[value - 1]
        if not isinstance(node, Convolution | TransposedConvolution):
            return Fraction(0)
        at = value if isinstance(node, Convolution) else node.source
        resolution = self.shapes[at].resolution
        assert resolution is not None
        return node.weight.size * resolution**2 / self.scale**2

    def sizes(self, height: int, width: int) -> tuple[Size, ...]:
        """Of every value for a picture of that size; (1, 1) for vectors."""
        rows, columns = self._lengths(height), self._lengths(width)
        return tuple(zip(rows, columns, strict=True))

    def _lengths(self, length: int) -> list[int]:
        """Rows, or columns, of every value."""
        lengths = [math.ceil(length / self.multiple) * self.multiple + 2 * self.padding]
        for number, node in enumerate(self.nodes, 1):
            lengths.append(_length(node, lengths, f"{self.name}: node {number} ({_word(node)})"))
        return lengths


def stack(
    name: str,
    layers: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
    slope: float,
    enlarge: int = 1,
) -> Model:
    """Valid 3x3 convolutions one after the other, leaky ReLU behind each but the last.

    With `enlarge` the picture is enlarged before them, as vgg_7 doubles it. Layers are weights
    (out_planes, in_planes, 3, 3) and biases (out_planes,).
    """
    margin = len(layers)
    padding = math.ceil(margin / enlarge)
    nodes: list[Node] = []
    if enlarge > 1:
        nodes.append(Enlarge(0, enlarge))
        if padding * enlarge > margin:
            nodes.append(Crop(1, padding * enlarge - margin))
    for index, (weight, bias) in enumerate(layers):
        activation = leaky(slope if index < margin - 1 else 1.0, len(bias))
        nodes.append(Convolution(len(nodes), weight, bias, activation))
    return Model(name, layers[0][0].shape[1], tuple(nodes), padding)


def fit_padding(
    name: str, in_planes: int, nodes: tuple[Node, ...], border: Border = "replicate"
) -> Model:
    """A model from its nodes alone: the padding and the multiple that they need, found.

    What no padding shows is taken to be zero, as its padded convolutions do: so they can read it.
    Raises ModelError if no padding makes the result a multiple of the picture's size.
    """
    padding = shapes_of(name, in_planes, nodes)[-1].origin
    if padding.denominator != 1 or padding < 0:
        raise ModelError(f"{name}: its result begins {padding} pixels off the picture's")
    error: ModelError | None = None
    for multiple in (1, 2, 4, 8, 16):
        try:
            unseen = padding == 0 and multiple == 1
            shown: Border = "zero" if unseen else border
            return Model(name, in_planes, nodes, int(padding), shown, multiple)
        except ModelError as found:
            error = error or found
    assert error is not None
    raise error


def _word(node: Node) -> str:
    return type(node).__name__


def shapes_of(name: str, in_planes: int, nodes: Sequence[Node]) -> tuple[Shape, ...]:
    """Of every value. Raises ModelError for nodes that do not fit together."""
    shapes = [Shape(in_planes, Fraction(1), Fraction(0))]
    for number, node in enumerate(nodes, 1):
        where = f"{name}: node {number} ({_word(node)})"
        for source in sources(node):
            if not 0 <= source < number:
                raise ModelError(f"{where}: reads value {source}, which is not made before it")
        shapes.append(_shape(node, shapes, where))
    return tuple(shapes)


def _shape(node: Node, shapes: Sequence[Shape], where: str) -> Shape:
    source = shapes[sources(node)[0]]
    planes, resolution, origin = source.planes, source.resolution, source.origin
    if isinstance(node, Dense):
        if resolution is not None:
            raise ModelError(f"{where}: reads a map, but expected a vector")
        return Shape(_weighted(node, planes, where), None, origin)
    if resolution is None:
        raise ModelError(f"{where}: reads a vector, but expected a map")
    pixel = 1 / resolution
    match node:
        case Convolution():
            if node.stride < 1 or node.padding < 0:
                raise ModelError(f"{where}: stride {node.stride}, padding {node.padding}")
            side = node.weight.shape[-1]
            shift = pixel * (Fraction(side - node.stride, 2) - node.padding)
            made = _weighted(node, planes, where)
            return Shape(made, resolution / node.stride, origin + shift)
        case TransposedConvolution():
            if node.stride < 1 or node.crop < 0:
                raise ModelError(f"{where}: stride {node.stride}, crop {node.crop}")
            side = node.weight.shape[-1]
            shift = pixel / node.stride * (Fraction(side - node.stride, 2) - node.crop)
            made = _weighted(node, planes, where)
            return Shape(made, resolution * node.stride, origin - shift)
        case Enlarge():
            return Shape(planes, resolution * _positive(node.factor, where), origin)
        case PixelShuffle():
            area = _positive(node.factor, where) ** 2
            if planes % area:
                raise ModelError(f"{where}: {planes} planes are not a multiple of {area}")
            return Shape(planes // area, resolution * node.factor, origin)
        case PixelUnshuffle():
            area = _positive(node.factor, where) ** 2
            return Shape(planes * area, resolution / node.factor, origin)
        case Crop():
            if node.pixels < 0:
                raise ModelError(f"{where}: crops {node.pixels} pixels")
            return Shape(planes, resolution, origin + node.pixels * pixel)
        case Resize():
            up, down = _positive(node.up, where), _positive(node.down, where)
            return Shape(planes, resolution * Fraction(up, down), origin)
        case Add() | Gate():
            _alike(source, shapes[node.other], where)
            if shapes[node.other].planes != planes:
                raise ModelError(f"{where}: adds {shapes[node.other].planes} planes to {planes}")
            return source
        case Concatenate():
            for other in node.sources[1:]:
                _alike(source, shapes[other], where)
            return replace(source, planes=sum(shapes[value].planes for value in node.sources))
        case Mean():
            return Shape(planes, None, Fraction(0))
        case Multiply():
            factors = shapes[node.factors]
            if factors.resolution is not None or factors.planes != planes:
                raise ModelError(f"{where}: expected a vector of {planes} factors")
            return source
    raise ModelError(f"{where}: no such node")


def _weighted(node: Weighted, planes: int, where: str) -> int:
    """Planes that a node with weights makes."""
    flat = isinstance(node, Dense)
    weight = node.weight
    if (
        weight.ndim != (2 if flat else 4)
        or weight.shape[2:3] != weight.shape[3:]
        or not weight.size
    ):
        raise ModelError(f"{where}: weight has the shape {weight.shape}")
    made, read = weight.shape[:2]
    if read != planes:
        raise ModelError(f"{where}: weight reads {read} planes, but its source has {planes}")
    if node.bias.shape != (made,):
        raise ModelError(f"{where}: bias has {node.bias.size} values for {made} planes")
    if node.activation.slopes.shape != (made,):
        raise ModelError(
            f"{where}: activation has {node.activation.slopes.size} slopes for {made} planes"
        )
    return int(made)


def _alike(first: Shape, second: Shape, where: str) -> None:
    if (first.resolution, first.origin) != (second.resolution, second.origin):
        raise ModelError(f"{where}: its sources lie at different places of the picture")


def _positive(factor: int, where: str) -> int:
    if factor < 1:
        raise ModelError(f"{where}: factor {factor}")
    return factor


def _length(node: Node, lengths: Sequence[int], where: str) -> int:
    """Rows, or columns, of the value that a node makes."""
    length = lengths[sources(node)[0]]
    match node:
        case Convolution():
            made = (length + 2 * node.padding - node.weight.shape[-1]) // node.stride + 1
        case TransposedConvolution():
            made = (length - 1) * node.stride + node.weight.shape[-1] - 2 * node.crop
        case Enlarge() | PixelShuffle():
            made = length * node.factor
        case PixelUnshuffle():
            made = length // node.factor
            if length % node.factor:
                raise ModelError(f"{where}: {length} pixels do not divide by {node.factor}")
        case Resize():
            made = length * node.up // node.down
            if length * node.up % node.down:
                raise ModelError(f"{where}: {length} pixels do not divide by {node.down}")
        case Crop():
            made = length - 2 * node.pixels
        case Mean() | Dense():
            made = 1
        case Add() | Gate() | Concatenate():
            made = length
            if any(lengths[source] != length for source in sources(node)):
                raise ModelError(f"{where}: its sources differ in size")
        case Multiply():
            made = length
    if made < 1:
        raise ModelError(f"{where}: nothing is left of the picture")
    return int(made)


_CHECKED = (1, 2, 3, 4, 5, 7, 16, 17, 100)
"""Lengths of pictures, in multiples, for which a model's sizes are computed."""


def _check(model: Model) -> None:
    """Raises ModelError unless the nodes fit together and make a picture of a picture."""
    if not model.nodes:
        raise ModelError(f"{model.name}: a network without nodes")
    last = model.shapes[-1]
    if last.resolution is None or last.resolution.denominator != 1:
        raise ModelError(f"{model.name}: its result is {last.resolution} times the picture")
    if last.origin != model.padding:
        off = last.origin - model.padding
        raise ModelError(f"{model.name}: its result begins {off} pixels off the picture's")
    for count in _CHECKED:
        length = count * model.multiple
        made = model._lengths(length)[-1]
        if made != length * model.scale:
            raise ModelError(
                f"{model.name}: makes {made} pixels of {length}, not {length * model.scale}"
            )
