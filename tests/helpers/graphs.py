"""Random networks of every kind of node, drawn by hypothesis, and deep ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import ACTIVATIONS, LEAKY
from waifu2x.networks.model import Model

_PLANES = (1, 3, 5, 8, 16, 24, 32, 40, 64)


class RandomGraph(GraphBuilder):
    """A graph with random weights whose results stay about as large as what they read."""

    def __init__(self, in_planes: int, seed: int) -> None:
        super().__init__("random", in_planes)
        self.rng = np.random.default_rng(seed)

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
        return Activation(ACTIVATIONS.get(kind, LEAKY), slopes.astype(np.float32))

    def random_convolution(
        self, source: int, planes: int, side: int, stride: int, padding: int, kind: str
    ) -> int:
        weight, bias = self._weights(planes, self.planes(source), side, side)
        activation = self._slopes(kind, planes)
        return self.convolution(source, weight, bias, activation, stride=stride, padding=padding)

    def random_transposed(
        self, source: int, planes: int, side: int, stride: int, crop: int, kind: str
    ) -> int:
        gain = 1.5 * stride**2
        weight, bias = self._weights(planes, self.planes(source), side, side, gain=gain)
        activation = self._slopes(kind, planes)
        return self.transposed(source, weight, bias, activation, stride=stride, crop=crop)

    def squeeze(self, source: int) -> int:
        """Squeeze and excite."""
        planes = self.planes(source)
        few = max(1, planes // 4)
        mean = self.mean(source)
        weight, bias = self._weights(few, planes)
        less = self.dense(mean, weight, bias, self._slopes("relu", few))
        weight, bias = self._weights(planes, few)
        factors = self.dense(less, weight, bias, self._slopes("sigmoid", planes))
        return self.multiply(source, factors)


def halving_model(seed: int) -> Model:
    """A small U-net: a map halved, scaled by means over it, and doubled again."""
    builder = RandomGraph(3, seed)
    value = builder.random_convolution(0, 8, 3, 1, 0, "leaky")
    value = builder.squeeze(builder.random_convolution(value, 8, 2, 2, 0, "leaky"))
    value = builder.random_transposed(value, 8, 2, 2, 0, "leaky")
    builder.random_convolution(value, 3, 3, 1, 0, "linear")
    return builder.model()


@st.composite
def random_graphs(draw: st.DrawFn) -> Model:
    """A model of up to a dozen random nodes, all checked to make a picture of a picture."""
    builder = RandomGraph(draw(st.sampled_from([1, 3])), draw(st.integers(0, 2**16)))
    value = 0
    kinds = st.sampled_from(["linear", "relu", "slopes", *ACTIVATIONS])
    planes = st.sampled_from(_PLANES)
    for _ in range(draw(st.integers(1, 6))):
        value = _block(draw, builder, value, draw(planes), draw(kinds))
    shape = builder.shape(value)
    assert shape.resolution is not None
    if shape.resolution < 1:
        up = int(1 / shape.resolution)
        value = builder.random_transposed(value, draw(planes), up, up, 0, draw(kinds))
    if not builder.nodes or draw(st.booleans()):
        value = builder.random_convolution(value, draw(st.sampled_from([1, 3])), 3, 1, 0, "linear")
    if builder.planes(value) > 4:
        value = builder.random_convolution(value, 3, 1, 1, 0, "linear")
    origin = builder.shape(value).origin
    if origin.denominator != 1:
        resolution = builder.shape(value).resolution
        assert resolution is not None
        missing = (-origin % 1) * resolution
        value = builder.crop(value, int(missing))
    border = draw(st.sampled_from(["replicate", "reflect", "zero"]))
    try:
        return builder.model(border)  # type: ignore[arg-type]
    except ModelError:
        # Half a pixel beside the picture, say.
        reject()


def _block(draw: st.DrawFn, builder: RandomGraph, value: int, planes: int, kind: str) -> int:
    shape = builder.shape(value)
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
            return builder.random_convolution(value, planes, 3, 1, 0, kind)
        case "same":
            return builder.random_convolution(value, planes, 3, 1, 1, kind)
        case "pointwise":
            return builder.random_convolution(value, planes, 1, 1, 0, kind)
        case "crop":
            return builder.crop(value, draw(st.integers(0, 3)))
        case "skip":
            return _skip(draw, builder, value)
        case "dense":
            first = builder.random_convolution(value, planes, 3, 1, 1, kind)
            both = builder.concatenate(value, first)
            second = builder.random_convolution(both, planes, 3, 1, 1, kind)
            return builder.concatenate(value, first, second)
        case "squeeze":
            return builder.squeeze(value)
        case "residual":
            inner = builder.random_convolution(value, planes, 3, 1, 1, kind)
            inner = builder.random_convolution(inner, shape.planes, 3, 1, 1, "linear")
            return builder.add(inner, value, draw(st.sampled_from([1.0, 0.2])))
        case "gate":
            inner = builder.random_convolution(value, shape.planes, 3, 1, 1, "linear")
            return builder.gate(inner, value)
        case "resize":
            return builder.interpolate(value, draw(st.sampled_from([1, 2])), 2)
        case "up":
            return builder.random_transposed(value, planes, 2, 2, 0, kind)
        case "up4":
            return builder.random_transposed(
                value, planes, 4, 2, draw(st.sampled_from([1, 3])), kind
            )
        case "up5":
            return (
                builder.random_transposed(value, planes, 5, 3, 2, kind)
                if resolution == 1
                else value
            )
        case "shuffle":
            inner = builder.random_convolution(value, 4 * min(planes, 16), 3, 1, 0, kind)
            return builder.pixel_shuffle(inner, 2)
        case "enlarge":
            return builder.enlarge(value, 2)
        case "enlarged":
            return builder.random_convolution(builder.enlarge(value, 2), planes, 3, 1, 1, kind)
        case "compact":
            factor, few = draw(st.sampled_from([2, 3, 4])), min(shape.planes, 3)
            inner = builder.random_convolution(value, planes, 3, 1, 1, kind)
            inner = builder.random_convolution(inner, few * factor**2, 3, 1, 1, "linear")
            large = builder.pixel_shuffle(inner, factor)
            if few < shape.planes:
                return large
            return builder.add(large, builder.enlarge(value, factor))
        case "down":
            return builder.random_convolution(value, planes, 2, 2, 0, kind)
        case "down3":
            return builder.random_convolution(value, planes, 4, 2, 1, kind)
        case "unshuffle":
            return builder.pixel_unshuffle(value, 2)
    raise AssertionError


def _skip(draw: st.DrawFn, builder: RandomGraph, value: int) -> int:
    """Adds an earlier map of the same resolution, cropped to size, if there is one."""
    own = builder.shape(value)
    fitting = []
    for earlier in range(value):
        shape = builder.shape(earlier)
        if shape.resolution == own.resolution and shape.planes == own.planes:
            pixels = (own.origin - shape.origin) * (own.resolution or Fraction(1))
            if pixels.denominator == 1 and pixels >= 0:
                fitting.append((earlier, int(pixels)))
    if not fitting:
        return value
    earlier, crop = draw(st.sampled_from(fitting))
    other = builder.crop(earlier, crop) if crop else earlier
    try:
        return builder.add(value, other)
    except ModelError:
        return value


def residual_in_residual(blocks: int, planes: int = 8, growth: int = 4) -> Model:
    """Dense blocks of two convolutions, three of them in each residual block, as in ESRGAN."""
    rng = np.random.default_rng(blocks)
    builder = GraphBuilder("deep", 3)

    def same(source: int, read: int, made: int, slope: float) -> int:
        weight = rng.normal(size=(made, read, 3, 3)) * np.sqrt(0.5 / (9 * read))
        bias = rng.normal(size=made) * 0.1
        arrays = weight.astype(np.float32), bias.astype(np.float32)
        return builder.convolution(source, *arrays, leaky(slope, made), padding=1)

    first = value = same(0, 3, planes, 1.0)
    for _ in range(blocks):
        outer = value
        for _ in range(3):
            grown = same(value, planes, growth, 0.2)
            wide = builder.concatenate(value, grown)
            value = builder.add(same(wide, planes + growth, planes, 1.0), value, 0.2)
        value = builder.add(value, outer, 0.2)
    value = builder.add(same(value, planes, planes, 1.0), first)
    value = same(builder.enlarge(value, 2), planes, planes, 0.2)
    same(value, planes, 3, 1.0)
    return builder.model()
