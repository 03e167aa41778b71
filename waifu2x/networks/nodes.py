"""The kinds of nodes of a network's graph, and the values that they read.

Values are numbered: 0 is the padded picture, node i makes value i + 1. A value is a map (rows,
columns, planes) or, behind a mean, a vector (planes,). A map's pixel (0, 0) is the first that the
network computes: a valid 3x3 convolution of h rows makes h - 2, and its row y reads rows y to
y + 2. Convolutions are cross-correlations: their weights are not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.attention import ChannelAttention, WindowAttention
from waifu2x.networks.norms import GroupNorm, LayerNorm
from waifu2x.networks.pooling import InterpolateTo, MaxPool
from waifu2x.system.lazy_dataclass import dataclass


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


def ungrouped(weight: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """The weight (out, in, kH, kW) of what a weight (out, in / groups, kH, kW) does by groups."""
    made, read, height, width = weight.shape
    whole = np.zeros((groups, made // groups, groups, read, height, width), np.float32)
    own = weight.reshape(groups, made // groups, read, height, width)
    whole[np.arange(groups), :, np.arange(groups)] = own
    return whole.reshape(made, groups * read, height, width)


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


@dataclass(frozen=True, eq=False)
class DepthwiseConvolution:
    """A cross-correlation of each plane with a kernel of its own, then an activation."""

    source: int
    weight: NDArray[np.float32]
    """(planes, 1, kH, kW), kH = kW."""
    bias: NDArray[np.float32]
    """(planes,)."""
    activation: Activation
    padding: int = 0
    """Zeros on each side of the source."""


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
class Interpolate:
    """The map `up / down` times as large, by bicubic interpolation of 4x4 pixels.

    Pixel y of the result stands at y' = (y + 1/2) * down / up - 1/2 of the source; at the distance
    t, the weight is Keys's cubic with a = -3/4. Pixels beyond the map are those at its edge.
    """

    source: int
    up: int
    down: int


@dataclass(frozen=True)
class Interleave:
    """The map cut into `parts` x `parts` rectangles of one size, and their pixels interleaved:

    out[y * parts + i][x * parts + j] = in[i * (rows // parts) + y][j * (columns // parts) + x].
    """

    source: int
    parts: int
    inverse: bool = False
    """The way back: `out` is the source."""


@dataclass(frozen=True)
class Concatenate:
    """Planes of several maps of one size, one after the other."""

    sources: tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """Some neighbouring planes of a map: `planes` of them, from plane `first` on."""

    source: int
    first: int
    planes: int


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


@dataclass(frozen=True)
class MultiplyMaps:
    """Each value of a map times that of another map of the same size: of its own plane, or of the
    only one."""

    source: int
    other: int


Node = (
    Convolution
    | TransposedConvolution
    | DepthwiseConvolution
    | Enlarge
    | PixelShuffle
    | PixelUnshuffle
    | Crop
    | Add
    | Gate
    | Interpolate
    | InterpolateTo
    | MaxPool
    | Interleave
    | Concatenate
    | Slice
    | Mean
    | Dense
    | Multiply
    | MultiplyMaps
    | WindowAttention
    | LayerNorm
    | GroupNorm
    | ChannelAttention
)
Weighted = Convolution | TransposedConvolution | DepthwiseConvolution | Dense


def sources(node: Node) -> tuple[int, ...]:
    """The values that a node reads."""
    match node:
        case Add() | Gate() | MultiplyMaps():
            return (node.source, node.other)
        case Multiply():
            return (node.source, node.factors)
        case InterpolateTo():
            return (node.source, node.like)
        case Concatenate():
            return node.sources
        case WindowAttention() | ChannelAttention():
            return node.sources
        case _:
            return (node.source,)


def arrays(node: Node) -> tuple[NDArray[np.float32], ...]:
    """The arrays of numbers that a node computes with."""
    match node:
        case Convolution() | TransposedConvolution() | DepthwiseConvolution() | Dense():
            return node.weight, node.bias, node.activation.slopes
        case LayerNorm() | GroupNorm():
            return node.weight, node.bias
        case WindowAttention():
            return (node.bias,)
        case ChannelAttention():
            return (node.temperature,)
        case Add():
            return (np.array([node.factor], np.float32),)
    return ()


def renumbered(node: Node, places: Sequence[int]) -> Node:
    """The node, reading value places[n] where it read value n."""
    match node:
        case WindowAttention() | ChannelAttention():
            return node.renumbered(places)
        case Concatenate():
            return replace(node, sources=tuple(places[source] for source in node.sources))
        case Add() | Gate() | MultiplyMaps():
            return replace(node, source=places[node.source], other=places[node.other])
        case Multiply():
            return replace(node, source=places[node.source], factors=places[node.factors])
        case InterpolateTo():
            return replace(node, source=places[node.source], like=places[node.like])
        case _:
            return replace(node, source=places[node.source])


def cubic_taps(up: int, down: int) -> NDArray[np.float64]:
    """(up, 4): the weights of an Interpolate for results y = 0 to up - 1, which repeat.

    They belong to the source's pixels floor((y + 1/2) * down / up - 1/2) - 1 and the next three.
    """
    place = (np.arange(up) + 0.5) * down / up - 0.5
    t = (place - np.floor(place))[:, np.newaxis] + np.array([1, 0, -1, -2])
    t, a = abs(t), -0.75
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    taps: NDArray[np.float64] = np.where(t <= 1, near, np.where(t < 2, far, 0))
    return taps
