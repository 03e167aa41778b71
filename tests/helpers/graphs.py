"""Random networks of every kind of node, drawn by hypothesis, and deep ones."""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from waifu2x.errors import ModelError
from waifu2x.networks.model import (
    Activation,
    ActivationKind,
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Gate,
    Mean,
    Model,
    Multiply,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    Resize,
    Shape,
    TransposedConvolution,
    fit_padding,
    leaky,
    shapes_of,
)

_PLANES = (1, 3, 5, 8, 16, 24, 32, 40, 64)


class _Builder:
    """Nodes so far, with random weights whose results stay about as large as what they read."""

    def __init__(self, in_planes: int, seed: int) -> None:
        self.in_planes = in_planes
        self.nodes: list[Node] = []
        self.rng = np.random.default_rng(seed)

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes)

    def shapes(self) -> tuple[Shape, ...]:
        return shapes_of("random", self.in_planes, self.nodes)

    def planes(self, value: int) -> int:
        return self.shapes()[value].planes

    def _weights(self, made: int, read: int, *sides: int, gain: float = 1.5):  # type: ignore[no-untyped-def]
        deviation = np.sqrt(gain / (read * np.prod(sides)))
        weight = self.rng.normal(size=(made, read, *sides)) * deviation
        return weight.astype(np.float32), (self.rng.normal(size=made) * 0.1).astype(np.float32)

    def _slopes(self, kind: str, planes: int) -> Activation:
        slopes = {
            "linear": np.ones(planes),
            "leaky": np.full(planes, 0.1),
            "relu": np.zeros(planes),
            "slopes": self.rng.uniform(-1.3, 1.6, planes),
        }.get(kind, np.ones(planes))
        own = kind if kind in get_args(ActivationKind) else "leaky"
        return Activation(own, slopes.astype(np.float32))  # type: ignore[arg-type]

    def convolution(
        self, source: int, planes: int, side: int, stride: int, padding: int, kind: str
    ) -> int:
        weight, bias = self._weights(planes, self.planes(source), side, side)
        activation = self._slopes(kind, planes)
        return self.add(Convolution(source, weight, bias, activation, stride, padding))

    def transposed(
        self, source: int, planes: int, side: int, stride: int, crop: int, kind: str
    ) -> int:
        gain = 1.5 * stride**2
        weight, bias = self._weights(planes, self.planes(source), side, side, gain=gain)
        activation = self._slopes(kind, planes)
        return self.add(TransposedConvolution(source, weight, bias, activation, stride, crop))

    def squeeze(self, source: int) -> int:
        """Squeeze and excite."""
        planes = self.planes(source)
        few = max(1, planes // 4)
        mean = self.add(Mean(source))
        weight, bias = self._weights(few, planes)
        less = self.add(Dense(mean, weight, bias, self._slopes("relu", few)))
        weight, bias = self._weights(planes, few)
        factors = self.add(Dense(less, weight, bias, self._slopes("sigmoid", planes)))
        return self.add(Multiply(source, factors))


def halving_model(seed: int) -> Model:
    """A small U-net: a map halved, scaled by means over it, and doubled again."""
    builder = _Builder(3, seed)
    value = builder.convolution(0, 8, 3, 1, 0, "leaky")
    value = builder.squeeze(builder.convolution(value, 8, 2, 2, 0, "leaky"))
    value = builder.transposed(value, 8, 2, 2, 0, "leaky")
    builder.convolution(value, 3, 3, 1, 0, "linear")
    return fit_padding("halving", 3, tuple(builder.nodes))


@st.composite
def random_graphs(draw: st.DrawFn) -> Model:
    """A model of up to a dozen random nodes, all checked to make a picture of a picture."""
    builder = _Builder(draw(st.sampled_from([1, 3])), draw(st.integers(0, 2**16)))
    value = 0
    kinds = st.sampled_from(["linear", "leaky", "relu", "slopes", "sigmoid", "silu"])
    planes = st.sampled_from(_PLANES)
    for _ in range(draw(st.integers(1, 6))):
        value = _block(draw, builder, value, draw(planes), draw(kinds))
    shape = builder.shapes()[value]
    assert shape.resolution is not None
    if shape.resolution < 1:
        up = int(1 / shape.resolution)
        value = builder.transposed(value, draw(planes), up, up, 0, draw(kinds))
    if not builder.nodes or draw(st.booleans()):
        value = builder.convolution(value, draw(st.sampled_from([1, 3])), 3, 1, 0, "linear")
    if builder.shapes()[value].planes > 4:
        value = builder.convolution(value, 3, 1, 1, 0, "linear")
    origin = builder.shapes()[value].origin
    if origin.denominator != 1:
        resolution = builder.shapes()[value].resolution
        assert resolution is not None
        missing = (-origin % 1) * resolution
        value = builder.add(Crop(value, int(missing)))
    border = draw(st.sampled_from(["replicate", "reflect", "zero"]))
    try:
        return fit_padding("random", builder.in_planes, tuple(builder.nodes), border)  # type: ignore[arg-type]
    except ModelError:
        # Half a pixel beside the picture, say.
        reject()


def _block(draw: st.DrawFn, builder: _Builder, value: int, planes: int, kind: str) -> int:
    shape = builder.shapes()[value]
    resolution = shape.resolution
    assert resolution is not None
    blocks = ["valid", "same", "pointwise", "crop", "skip", "dense", "squeeze"]
    blocks += ["residual", "gate"]
    if resolution <= 1:
        blocks += ["up", "up4", "up5", "shuffle", "enlarge", "enlarged"]
    if resolution == 1:
        blocks.append("compact")
    if resolution in (1, 2):
        blocks += ["down", "down3", "unshuffle"]
    if resolution == 2:
        blocks.append("resize")
    match draw(st.sampled_from(blocks)):
        case "valid":
            return builder.convolution(value, planes, 3, 1, 0, kind)
        case "same":
            return builder.convolution(value, planes, 3, 1, 1, kind)
        case "pointwise":
            return builder.convolution(value, planes, 1, 1, 0, kind)
        case "crop":
            return builder.add(Crop(value, draw(st.integers(0, 3))))
        case "skip":
            return _skip(draw, builder, value)
        case "dense":
            first = builder.convolution(value, planes, 3, 1, 1, kind)
            both = builder.add(Concatenate((value, first)))
            second = builder.convolution(both, planes, 3, 1, 1, kind)
            return builder.add(Concatenate((value, first, second)))
        case "squeeze":
            return builder.squeeze(value)
        case "residual":
            inner = builder.convolution(value, planes, 3, 1, 1, kind)
            inner = builder.convolution(inner, shape.planes, 3, 1, 1, "linear")
            return builder.add(Add(inner, value, draw(st.sampled_from([1.0, 0.2]))))
        case "gate":
            inner = builder.convolution(value, shape.planes, 3, 1, 1, "linear")
            return builder.add(Gate(inner, value))
        case "resize":
            return builder.add(Resize(value, draw(st.sampled_from([1, 2])), 2))
        case "up":
            return builder.transposed(value, planes, 2, 2, 0, kind)
        case "up4":
            return builder.transposed(value, planes, 4, 2, draw(st.sampled_from([1, 3])), kind)
        case "up5":
            return builder.transposed(value, planes, 5, 3, 2, kind) if resolution == 1 else value
        case "shuffle":
            inner = builder.convolution(value, 4 * min(planes, 16), 3, 1, 0, kind)
            return builder.add(PixelShuffle(inner, 2))
        case "enlarge":
            return builder.add(Enlarge(value, 2))
        case "enlarged":
            return builder.convolution(builder.add(Enlarge(value, 2)), planes, 3, 1, 1, kind)
        case "compact":
            factor, few = draw(st.sampled_from([2, 3, 4])), min(shape.planes, 3)
            inner = builder.convolution(value, planes, 3, 1, 1, kind)
            inner = builder.convolution(inner, few * factor**2, 3, 1, 1, "linear")
            large = builder.add(PixelShuffle(inner, factor))
            if few < shape.planes:
                return large
            return builder.add(Add(large, builder.add(Enlarge(value, factor))))
        case "down":
            return builder.convolution(value, planes, 2, 2, 0, kind)
        case "down3":
            return builder.convolution(value, planes, 4, 2, 1, kind)
        case "unshuffle":
            return builder.add(PixelUnshuffle(value, 2))
    raise AssertionError


def _skip(draw: st.DrawFn, builder: _Builder, value: int) -> int:
    """Adds an earlier map of the same resolution, cropped to size, if there is one."""
    shapes = builder.shapes()
    own = shapes[value]
    fitting = []
    for earlier in range(value):
        shape = shapes[earlier]
        if shape.resolution == own.resolution and shape.planes == own.planes:
            pixels = (own.origin - shape.origin) * (own.resolution or Fraction(1))
            if pixels.denominator == 1 and pixels >= 0:
                fitting.append((earlier, int(pixels)))
    if not fitting:
        return value
    earlier, crop = draw(st.sampled_from(fitting))
    other = builder.add(Crop(earlier, crop)) if crop else earlier
    try:
        candidate = [*builder.nodes, Add(value, other)]
        shapes_of("random", builder.in_planes, candidate)
    except ModelError:
        return value
    return builder.add(Add(value, other))


def residual_in_residual(blocks: int, planes: int = 8, growth: int = 4) -> Model:
    """Dense blocks of two convolutions, three of them in each residual block, as in ESRGAN."""
    rng = np.random.default_rng(blocks)
    nodes: list[Node] = []

    def same(source: int, read: int, made: int, slope: float) -> int:
        weight = rng.normal(size=(made, read, 3, 3)) * np.sqrt(0.5 / (9 * read))
        bias = rng.normal(size=made) * 0.1
        arrays = weight.astype(np.float32), bias.astype(np.float32)
        nodes.append(Convolution(source, *arrays, leaky(slope, made), padding=1))
        return len(nodes)

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes)

    first = value = same(0, 3, planes, 1.0)
    for _ in range(blocks):
        outer = value
        for _ in range(3):
            grown = same(value, planes, growth, 0.2)
            wide = add(Concatenate((value, grown)))
            value = add(Add(same(wide, planes + growth, planes, 1.0), value, 0.2))
        value = add(Add(value, outer, 0.2))
    value = add(Add(same(value, planes, planes, 1.0), first))
    value = same(add(Enlarge(value, 2)), planes, planes, 0.2)
    same(value, planes, 3, 1.0)
    return fit_padding("deep", 3, tuple(nodes))
