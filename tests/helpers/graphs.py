"""Random networks of every kind of node, drawn by hypothesis, and deep ones."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.attention import ChannelAttention, PlanesFrom, WindowAttention
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import ACTIVATIONS, LEAKY
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import (
    Gate,
    GridSample,
    GroupNorm,
    Interleave,
    Interpolate,
    InterpolateTo,
    LayerNorm,
    MaxPool,
    Node,
)
from waifu2x.networks.windows import Windows

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

    def random_depthwise(self, source: int, side: int, padding: int, kind: str) -> int:
        planes = self.planes(source)
        weight, bias = self._weights(planes, 1, side, side)
        activation = self._slopes(kind, planes)
        arrays = weight, bias, activation
        return self.convolution(source, *arrays, padding=padding, groups=planes)

    def random_groups(self, source: int, planes: int, groups: int, kind: str) -> int:
        weight, bias = self._weights(planes, self.planes(source) // groups, 3, 3)
        activation = self._slopes(kind, planes)
        return self.convolution(source, weight, bias, activation, padding=1, groups=groups)

    def random_norm(self, source: int, groups: int = 0, eps: float = 1e-5) -> int:
        """Over a pixel's planes, or with groups over the map's."""
        planes = self.planes(source)
        weight = self.rng.uniform(0.3, 0.7, planes).astype(np.float32)
        bias = self.rng.normal(0, 0.1, planes).astype(np.float32)
        if groups:
            return self.append(GroupNorm(source, weight, bias, groups, eps))
        return self.append(LayerNorm(source, weight, bias, eps))

    def random_transposed(
        self, source: int, planes: int, side: int, stride: int, crop: int, kind: str
    ) -> int:
        gain = 1.5 * stride**2
        weight, bias = self._weights(planes, self.planes(source), side, side, gain=gain)
        activation = self._slopes(kind, planes)
        return self.transposed(source, weight, bias, activation, stride=stride, crop=crop)

    def random_attention(self, source: int, windows: Windows, heads: int, depth: int) -> int:
        """Attention of planes that one convolution makes."""
        planes = heads * depth
        made = self.random_convolution(source, 3 * planes, 1, 1, 0, "linear")
        bias = self.rng.normal(size=(heads, *windows.bias_sides)).astype(np.float32)
        queries, keys, values = (PlanesFrom(made, part * planes) for part in range(3))
        scale = 1.5 * depth**-0.5
        return self.append(WindowAttention(queries, keys, values, planes, windows, scale, bias))

    def random_channel_attention(
        self, source: int, heads: int, depth: int, window: int = 0, period: int = 1
    ) -> int:
        """Attention between planes that one convolution makes."""
        planes = heads * depth
        made = self.random_convolution(source, 3 * planes, 1, 1, 0, "linear")
        queries, keys, values = (PlanesFrom(made, part * planes) for part in range(3))
        temperature = self.rng.uniform(0.5, 4, heads).astype(np.float32)
        return self.append(
            ChannelAttention(
                *(queries, keys, values, planes, temperature), window=window, period=period
            )
        )

    def random_samples(
        self, source: int, scale: int, groups: int, reach: float = 1.0, far: float = 0.0
    ) -> int:
        """A map sampled some `reach` pixels off, and by about `far` more to any side, as many
        times as make it `scale` times as large."""
        made = 2 * groups * scale**2
        weight, bias = self._weights(made, self.planes(source), 1, 1)
        bias += np.where(bias > 0, far, -far).astype(np.float32)
        offsets = self.convolution(source, weight * np.float32(reach), bias)
        scope = self.random_convolution(source, made, 1, 1, 0, "sigmoid")
        offsets = self.multiply(offsets, scope)
        return self.append(GridSample(source, offsets, scale, groups))

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


def fit_padding(
    name: str, in_planes: int, nodes: Iterable[Node], border: Border = "replicate"
) -> Model:
    """A model of nodes alone, with the padding and the multiple that they need."""
    builder = GraphBuilder(name, in_planes)
    for node in nodes:
        builder.append(node)
    return builder.model(border)


def sampled_head(scale: int, groups: int, *, far: float = 0.0, planes: int = 48) -> Model:
    """Convolutions, and samples of what they make, as DySample has them."""
    net = RandomGraph(3, scale)
    value = net.random_convolution(0, 24, 3, 1, 1, "leaky")
    value = net.random_convolution(value, planes, 3, 1, 1, "linear")
    value = net.random_samples(value, scale, groups, 0.5, far)
    value = net.random_convolution(value, 3 * scale**2, 1, 1, 0, "linear")
    if scale > 1:
        net.pixel_shuffle(value, scale)
    return net.model()


def halving_model(seed: int) -> Model:
    """A small U-net: a map halved, scaled by means over it, and doubled again."""
    builder = RandomGraph(3, seed)
    value = builder.random_convolution(0, 8, 3, 1, 0, "leaky")
    value = builder.squeeze(builder.random_convolution(value, 8, 2, 2, 0, "leaky"))
    value = builder.random_transposed(value, 8, 2, 2, 0, "leaky")
    builder.random_convolution(value, 3, 3, 1, 0, "linear")
    return builder.model()


def multiplied_maps() -> Model:
    """Maps times maps: of convolutions with and without activations, of one plane, of none."""
    net = RandomGraph(3, 5)
    value = net.random_convolution(0, 48, 3, 1, 1, "linear")
    for kind in ("tanh", "sigmoid"):
        inner = net.random_convolution(value, 48, 3, 1, 1, "relu")
        factors = net.random_convolution(inner, 48, 1, 1, 0, kind)
        value = net.multiply(net.add(inner, value), factors)
        value = net.multiply(value, net.random_convolution(value, 1, 1, 1, 0, kind))
    halved = net.random_convolution(value, 40, 2, 2, 0, "linear")
    halved = net.multiply(halved, net.random_convolution(halved, 40, 3, 1, 1, "slopes"))
    value = net.random_transposed(net.multiply(halved, halved), 3, 2, 2, 0, "linear")
    net.multiply(net.random_convolution(value, 3, 3, 1, 1, "linear"), 0)
    return net.model()


def sliced_maps() -> Model:
    """Planes of maps of each kind."""
    net = RandomGraph(3, 6)
    first = net.random_convolution(0, 64, 3, 1, 1, "mish")
    few, rest = net.split(first, 16, 48)
    few = net.random_convolution(few, 16, 5, 1, 2, "linear")
    value = net.concatenate(few, rest)
    left, right = net.split(net.random_depthwise(value, 3, 1, "linear"), 24, 40)
    middle = net.slice(net.concatenate(left, right), 20, 32)
    value = net.add(net.random_convolution(middle, 32, 1, 1, 0, "gelu"), net.slice(value, 32, 32))
    value = net.multiply(net.slice(value, 0, 12), net.slice(value, 20, 12))
    value = net.random_convolution(net.slice(value, 0, 12), 16, 3, 1, 1, "linear")
    net.slice(net.pixel_shuffle(value, 2), 1, 3)
    return net.model()


def kernels_of_many_taps() -> Model:
    """5x5 to 17x17, of many planes and few, at the ends and between them."""
    net = RandomGraph(3, 7)
    value = net.random_convolution(0, 16, 5, 1, 2, "relu")
    value = net.random_convolution(value, 16, 17, 1, 8, "linear")
    value = net.add(net.random_convolution(value, 16, 7, 1, 3, "tanh"), value)
    value = net.random_convolution(value, 40, 13, 1, 6, "slopes")
    value = net.add(net.random_convolution(value, 40, 5, 1, 2, "linear"), value, 0.2)
    value = net.random_convolution(value, 5, 9, 1, 0, "leaky")
    value = net.random_transposed(value, 20, 6, 2, 2, "leaky")
    net.random_convolution(value, 3, 9, 1, 4, "linear")
    return net.model()


def grouped_convolutions() -> Model:
    """Depthwise convolutions of any size, and those of a few groups."""
    net = RandomGraph(3, 8)
    value = net.random_depthwise(0, 3, 0, "linear")
    value = net.random_convolution(value, 40, 3, 1, 0, "leaky")
    value = net.add(net.random_depthwise(value, 5, 2, "gelu"), value)
    value = net.multiply(value, net.random_depthwise(value, 3, 1, "linear"))
    value = net.random_depthwise(net.concatenate(value, value), 7, 3, "slopes")
    value = net.random_groups(value, 40, 5, "leaky")
    value = net.random_groups(value, 20, 10, "leaky")
    value = net.random_depthwise(net.random_depthwise(value, 2, 0, "linear"), 4, 2, "relu")
    value = net.random_convolution(value, 3, 3, 1, 1, "linear")
    net.random_depthwise(value, 17, 8, "linear")
    return net.model()


def norms() -> Model:
    """Norms of maps of any kind."""
    net = RandomGraph(3, 9)
    value = net.random_convolution(net.random_norm(0, eps=1e-2), 40, 3, 1, 1, "gelu")
    value = net.add(net.random_convolution(net.random_norm(value), 40, 1, 1, 0, "linear"), value)
    value = net.random_norm(net.concatenate(value, net.random_norm(value)), eps=1e-6)
    value = net.random_convolution(net.random_norm(value), 16, 2, 2, 0, "leaky")
    value = net.random_transposed(net.random_norm(value), 3, 2, 2, 0, "linear")
    net.random_norm(value, eps=0.1)
    return net.model()


def norms_of_groups() -> Model:
    """Norms over the picture, one behind the other, and with a map that is added."""
    net = RandomGraph(3, 10)
    value = net.random_norm(net.random_convolution(0, 24, 3, 1, 1, "mish"), 4)
    inner = net.random_norm(net.random_convolution(value, 24, 3, 1, 1, "linear"), 3, 1e-2)
    value = net.add(inner, value, 0.5)
    halved = net.random_convolution(value, 20, 2, 2, 0, "leaky")
    halved = net.random_convolution(net.random_norm(halved, 1), 20, 2, 2, 0, "linear")
    value = net.random_transposed(net.random_norm(halved, 5), 24, 4, 4, 0, "gelu")
    value = net.random_norm(net.squeeze(net.concatenate(value, inner)), 6)
    net.random_norm(net.random_convolution(value, 3, 3, 1, 1, "linear"), 1)
    return net.model()


def reduced_maps() -> Model:
    """Branches on reduced maps: maxima with and without gaps and overlap, of small maps, too, and
    enlarged to sizes that no factor gives."""
    net = RandomGraph(3, 11)
    value = net.random_convolution(0, 24, 3, 1, 1, "leaky")
    for kernel, stride in ((7, 3), (2, 2)):
        few = net.random_convolution(value, 12, 1, 1, 0, "linear")
        inner = net.append(
            MaxPool(net.random_convolution(few, 12, 3, 2, 0, "linear"), kernel, stride)
        )
        inner = net.append(InterpolateTo(net.random_convolution(inner, 12, 3, 1, 1, "linear"), few))
        inner = net.random_convolution(net.add(inner, few), 24, 1, 1, 0, "sigmoid")
        value = net.multiply(value, inner)
    left, right = net.split(value, 9, 15)
    inner = net.random_depthwise(net.append(MaxPool(right, 8, 8)), 3, 1, "linear")
    right = net.append(InterpolateTo(net.append(MaxPool(inner, 1, 2)), right))
    value = net.random_convolution(net.concatenate(left, right), 12, 3, 1, 1, "leaky")
    inner = net.append(MaxPool(net.pixel_shuffle(value, 2), 5, 2))
    net.append(InterpolateTo(inner, net.random_convolution(value, 3, 3, 1, 1, "linear")))
    return net.model(multiple=4)


def every_operation() -> Model:
    """Each of the operations above once, with each activation, on maps of as many planes where that
    is possible: a driver that compiles a program for each kind of step compiles few."""
    net = RandomGraph(3, 12)
    value = net.random_convolution(0, 24, 3, 1, 1, "mish")
    value = net.add(net.random_norm(net.random_depthwise(value, 3, 1, "linear"), 4), value, 0.5)
    value = net.multiply(net.random_convolution(value, 24, 1, 1, 0, "tanh"), value)
    value = net.add(net.random_groups(net.random_norm(value), 24, 3, "gelu"), value)
    few, rest = net.split(value, 8, 16)
    few = net.random_convolution(few, 8, 5, 1, 2, "silu")
    value = net.squeeze(net.concatenate(few, rest))
    value = net.add(net.append(InterpolateTo(net.append(MaxPool(value, 3, 2)), value)), value, 0.5)
    halved = net.random_convolution(value, 24, 2, 2, 0, "slopes")
    net.random_transposed(halved, 3, 2, 2, 0, "linear")
    return net.model()


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
    blocks += [
        "reduced",
        "residual",
        "gate",
        "sampled",
        "multiplied",
        "sliced",
        "norm",
        "depthwise",
        "groups",
        "taps",
    ]
    if resolution <= 1:
        blocks += ["attention", "channel attention"]
        blocks += ["up", "up4", "up5", "shuffle", "enlarge", "enlarged"]
    if resolution == 1:
        blocks.append("compact")
        if not shape.origin:
            blocks.append("interleaved")
    if resolution in (1, 2):
        blocks += ["down", "down3", "unshuffle", "maxima"]
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
        case "multiplied":
            made = shape.planes if draw(st.booleans()) else 1
            inner = builder.random_convolution(value, made, 3, 1, 1, kind)
            if draw(st.booleans()):
                value = builder.random_convolution(value, shape.planes, 3, 1, 1, "linear")
            return builder.multiply(value, inner)
        case "sliced":
            count = draw(st.integers(1, shape.planes))
            first = draw(st.integers(0, shape.planes - count))
            made = builder.random_convolution(value, shape.planes, 3, 1, 1, kind)
            source = draw(st.sampled_from([value, made]))
            return builder.concatenate(builder.slice(source, first, count), made)
        case "norm":
            made = builder.random_convolution(value, max(planes, 5), 3, 1, 1, kind)
            groups = 2 if builder.planes(made) % 2 == 0 else 1
            return builder.random_norm(made, draw(st.sampled_from([0, groups])))
        case "depthwise":
            side = draw(st.sampled_from([1, 3, 5, 7]))
            made = builder.random_depthwise(value, side, side // 2, kind)
            return builder.add(made, value) if draw(st.booleans()) else made
        case "groups":
            groups = next(count for count in (3, 2, 1) if shape.planes % count == 0)
            return builder.random_groups(value, shape.planes, groups, kind)
        case "taps":
            side = draw(st.sampled_from([5, 7, 13]))
            return builder.random_convolution(value, min(planes, 16), side, 1, side // 2, kind)
        case "gate":
            inner = builder.random_convolution(value, shape.planes, 3, 1, 1, "linear")
            return builder.append(Gate(inner, value))
        case "sampled":
            made = builder.random_convolution(value, 8, 1, 1, 0, kind)
            scale, groups = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 4]))
            far = draw(st.sampled_from([0.0, 1e6]))
            made = builder.random_samples(made, scale, groups, far=far)
            return builder.random_convolution(made, planes, 1, 1, 0, "linear")
        case "attention":
            sides = st.integers(1, 9)
            rows, columns = draw(sides), draw(sides)
            windows = Windows(
                *(rows, columns, draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))),
                overlap=draw(st.sampled_from([0, 0, 2])),
                filled_to=draw(st.sampled_from([1, 8])),
                shifts_single=draw(st.booleans()),
            )
            depth = draw(st.sampled_from([1, 5, 12]))
            return builder.random_attention(value, windows, draw(st.sampled_from([1, 2])), depth)
        case "channel attention":
            heads, depth = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 5, 12]))
            window, period = draw(st.sampled_from([(0, 1), (0, 1), (0, 3), (5, 1), (8, 1)]))
            return builder.random_channel_attention(value, heads, depth, window, period)
        case "reduced":
            inner = builder.append(MaxPool(value, draw(st.integers(1, 9)), draw(st.integers(1, 5))))
            if draw(st.booleans()):
                inner = builder.random_convolution(inner, shape.planes, 3, 1, 1, "linear")
            return builder.add(builder.append(InterpolateTo(inner, value)), value)
        case "maxima":
            return builder.append(MaxPool(value, draw(st.sampled_from([2, 4])), 2))
        case "interleaved":
            made = builder.random_convolution(value, planes, 1, 1, 0, kind)
            return builder.append(Interleave(made, 2, inverse=draw(st.booleans())))
        case "resize":
            return builder.append(Interpolate(value, draw(st.sampled_from([1, 2])), 2))
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
