"""The kinds of nodes of a network's graph: each says what it reads, and the shape and size of the
value that it makes.

Values are numbered: 0 is the padded picture, node i makes value i + 1. A value is a map (rows,
columns, planes) or, behind a mean, a vector (planes,). A map's pixel (0, 0) is the first that the
network computes: a valid 3x3 convolution of h rows makes h - 2, and its row y reads rows y to
y + 2. Convolutions are cross-correlations: their weights are not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, leaky
from waifu2x.system.lazy_dataclass import dataclass

MOST_PLANES = 1 << 16
"""Planes of one value; the widest networks of the field have some hundreds."""
MOST_SCALE = 64
"""By how much any value may enlarge, or reduce, the picture in each direction."""
MOST_MARGIN = 1024
"""Pixels of the picture that a network may lose on each side."""
MOST_KERNEL = 64
"""Rows and columns of the pixels that MaxPool takes a maximum of."""


@dataclass(frozen=True)
class ValueShape:
    """The shape of a value, as far as it is known without a picture."""

    planes: int
    resolution: Fraction | None
    """Its pixels for each pixel of the picture, in each direction; None for a vector."""
    origin: Fraction
    """Where the upper edge of its row 0 lies, in rows of the padded picture."""

    def scaled(self, planes: int, by: Fraction | int = 1, inset: Fraction | int = 0) -> ValueShape:
        """Returns the shape of a map `by` times as large whose row 0 lies `inset` rows of this map
        further inside."""
        assert self.resolution is not None
        return ValueShape(planes, self.resolution * by, self.origin + inset / self.resolution)

    def check_bounds(self) -> None:
        """Raises ModelError, without file and node, if the shape exceeds what is supported."""
        if not 1 <= self.planes <= MOST_PLANES:
            raise ModelError(f"it makes {self.planes} planes, but expected 1 to {MOST_PLANES}")
        resolution = self.resolution
        if resolution is not None and not Fraction(1, MOST_SCALE) <= resolution <= MOST_SCALE:
            raise ModelError(
                f"its map is {resolution} times the picture, but at most {MOST_SCALE} is supported"
            )
        if abs(self.origin) > MOST_MARGIN:
            raise ModelError(f"its map begins more than {MOST_MARGIN} pixels inside the picture")

    def check_alike(self, other: ValueShape) -> None:
        """Raises ModelError unless `other` is a map whose pixels lie where this one's do."""
        if other.resolution is None:
            raise ModelError("it reads a vector, but expected maps")
        if (self.resolution, self.origin) != (other.resolution, other.origin):
            raise ModelError("its sources lie at different places of the picture")


@dataclass(frozen=True, eq=False)
class Node:
    """A node of a graph, which makes one value of the values that it reads."""

    _read_by: ClassVar[tuple[str, ...]] = ("source",)
    """The fields that hold the numbers of the values that it reads."""
    _reads_vector: ClassVar[bool] = False

    @property
    def sources(self) -> tuple[int, ...]:
        """Returns the numbers of the values that it reads."""
        return tuple(getattr(self, field) for field in self._read_by)

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """Returns the numbers that it computes with."""
        return ()

    @property
    def multiply_adds(self) -> int | Fraction:
        """Returns the multiply-adds for a pixel of its map."""
        return 0

    def renumbered(self, places: Sequence[int]) -> Self:
        """Returns the node with each value n that it reads replaced by places[n]."""
        return replace(self, **{name: places[getattr(self, name)] for name in self._read_by})

    def label(self, value: int) -> str:
        """Returns the name that messages use for this node, which makes `value`, where its file has
        none."""
        return f"node {value} ({type(self).__name__})"

    def infer_shape(self, shapes: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        """Returns the shape of the value that it makes, from the shapes of all values before it.

        `makers` are the names, for messages, of the nodes that made those. Raises ModelError, whose
        message has neither file nor node, if the node does not fit.
        """
        sources = self.sources
        if not sources:
            raise ModelError("it reads no value")
        for source in sources:
            if not 0 <= source < len(shapes):
                raise ModelError(f"it reads value {source}, which is not made before it")
        read = [shapes[source] for source in sources]
        if self._reads_vector and read[0].resolution is not None:
            raise ModelError("it reads a map, but expected a vector")
        if not self._reads_vector and read[0].resolution is None:
            raise ModelError("it reads a vector, but expected a map")
        made = self._shape(read, [makers[source] for source in sources])
        made.check_bounds()
        return made

    def infer_length(self, lengths: Sequence[int]) -> int:
        """Returns the rows, or columns, of the value that it makes, 1 for a vector, from those of
        all values before it.

        Raises ModelError, whose message has neither file nor node, if nothing is left or sizes do
        not match.
        """
        made = self._length([lengths[source] for source in self.sources])
        if made < 1:
            raise ModelError("nothing is left of the picture")
        return made

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        """Returns the shape that it makes of those of its sources."""
        return read[0]

    def _length(self, read: Sequence[int]) -> int:
        """Returns the rows, or columns, that it makes of those of its sources."""
        # Compared one by one, not in a set: to hash a symbol fixes its value, and launches would be
        # planned anew for each size.
        if any(length != read[0] for length in read[1:]):
            raise ModelError("its sources differ in size")
        return read[0]


@dataclass(frozen=True, eq=False)
class Weighted(Node):
    """A node with weights, biases and an activation."""

    source: int
    weight: NDArray[np.float32]
    """(out_planes, in_planes, kH, kW), kH = kW."""
    bias: NDArray[np.float32]
    """(out_planes,)."""
    activation: Activation

    _axes: ClassVar[int] = 4

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        return self.weight, self.bias, self.activation.slopes

    @property
    def multiply_adds(self) -> int | Fraction:
        return self.weight.size

    @property
    def taps(self) -> int:
        """Rows and columns of the kernels."""
        return int(self.weight.shape[-1])

    def _made(self, read: ValueShape, maker: str) -> int:
        """Checks all arrays; returns the planes that the node makes."""
        weight = self.weight
        if weight.ndim != self._axes or not weight.size:
            raise ModelError(f"weight has the shape {weight.shape}")
        if weight.shape[2:3] != weight.shape[3:]:
            rows, columns = weight.shape[2:]
            raise ModelError(f"kernels of {rows}x{columns} taps, but expected square ones")
        self._check_read(read.planes, maker)
        made = len(weight)
        if self.bias.shape != (made,):
            raise ModelError(f"bias has {self.bias.size} values for {made} planes")
        slopes = self.activation.slopes
        if slopes.shape != (made,):
            raise ModelError(f"activation has {slopes.size} slopes for {made} planes")
        return made

    def _check_read(self, planes: int, maker: str) -> None:
        if self.weight.shape[1] != planes:
            raise ModelError(
                f"weight reads {self.weight.shape[1]} planes, but {maker} makes {planes}"
            )


@dataclass(frozen=True, eq=False)
class Convolution(Weighted):
    """A cross-correlation, then an activation."""

    stride: int = 1
    padding: int = 0
    """Zeros on each side of the source; 0 is a valid convolution."""

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        if self.stride < 1 or self.padding < 0:
            raise ModelError(f"stride {self.stride}, padding {self.padding}")
        made = self._made(read[0], makers[0])
        inset = Fraction(self.taps - self.stride, 2) - self.padding
        return read[0].scaled(made, Fraction(1, self.stride), inset)

    def _length(self, read: Sequence[int]) -> int:
        return (read[0] + 2 * self.padding - self.taps) // self.stride + 1


def affine(source: int, factors: NDArray[np.float32], shifts: NDArray[np.float32]) -> Convolution:
    """Returns the node of x * factor + shift, plane by plane, both (planes,)."""
    weight = np.diag(factors)[:, :, np.newaxis, np.newaxis]
    return Convolution(source, weight, shifts, leaky(1.0, len(shifts)))


def ungrouped(weight: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """Returns the weight (out, in, kH, kW) that computes what a weight (out, in / groups, kH, kW)
    does by groups."""
    made, read, height, width = weight.shape
    whole = np.zeros((groups, made // groups, groups, read, height, width), np.float32)
    own = weight.reshape(groups, made // groups, read, height, width)
    whole[np.arange(groups), :, np.arange(groups)] = own
    return whole.reshape(made, groups * read, height, width)


@dataclass(frozen=True, eq=False)
class TransposedConvolution(Weighted):
    """out[y * stride + k - crop] += weight[:, :, k] @ in[y], then an activation."""

    stride: int
    crop: int = 0
    """Pixels of the result dropped on each side; other libraries call it padding."""

    @property
    def multiply_adds(self) -> int | Fraction:
        return Fraction(self.weight.size, self.stride**2)

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        if self.stride < 1 or self.crop < 0:
            raise ModelError(f"stride {self.stride}, crop {self.crop}")
        made = self._made(read[0], makers[0])
        inset = (self.crop - Fraction(self.taps - self.stride, 2)) / self.stride
        return read[0].scaled(made, self.stride, inset)

    def _length(self, read: Sequence[int]) -> int:
        return (read[0] - 1) * self.stride + self.taps - 2 * self.crop


@dataclass(frozen=True, eq=False)
class DepthwiseConvolution(Weighted):
    """A cross-correlation of each plane with a kernel of its own, (planes, 1, kH, kW), then an
    activation."""

    padding: int = 0
    """Zeros on each side of the source."""

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        if self.padding < 0:
            raise ModelError(f"padding {self.padding}")
        made = self._made(read[0], makers[0])
        return read[0].scaled(made, inset=Fraction(self.taps - 1, 2) - self.padding)

    def _length(self, read: Sequence[int]) -> int:
        return read[0] + 2 * self.padding - self.taps + 1

    def _check_read(self, planes: int, maker: str) -> None:
        made, own = self.weight.shape[:2]
        if (made, own) != (planes, 1):
            raise ModelError(
                f"weight has {made} kernels of {own} planes, but {maker} makes {planes} planes"
            )


@dataclass(frozen=True)
class Enlarge(Node):
    """Repeats every pixel `factor` times in both directions (nearest neighbour)."""

    source: int
    factor: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        return read[0].scaled(read[0].planes, _positive(self.factor))

    def _length(self, read: Sequence[int]) -> int:
        return read[0] * self.factor


@dataclass(frozen=True)
class PixelShuffle(Node):
    """out[y * factor + dy][x * factor + dx][c] = in[y][x][(c * factor + dy) * factor + dx]."""

    source: int
    factor: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        planes, area = read[0].planes, _positive(self.factor) ** 2
        if planes % area:
            raise ModelError(f"{planes} planes are not a multiple of {area}")
        return read[0].scaled(planes // area, self.factor)

    def _length(self, read: Sequence[int]) -> int:
        return read[0] * self.factor


@dataclass(frozen=True)
class PixelUnshuffle(Node):
    """The inverse of PixelShuffle."""

    source: int
    factor: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        area = _positive(self.factor) ** 2
        return read[0].scaled(read[0].planes * area, Fraction(1, self.factor))

    def _length(self, read: Sequence[int]) -> int:
        return _divided(read[0], self.factor)


@dataclass(frozen=True)
class Crop(Node):
    """Drops `pixels` pixels on each side."""

    source: int
    pixels: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        if self.pixels < 0:
            raise ModelError(f"it crops {self.pixels} pixels")
        return read[0].scaled(read[0].planes, inset=self.pixels)

    def _length(self, read: Sequence[int]) -> int:
        return read[0] - 2 * self.pixels


@dataclass(frozen=True)
class _Pair(Node):
    source: int
    other: int

    _read_by = ("source", "other")

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        source, other = read
        source.check_alike(other)
        if other.planes != source.planes:
            raise ModelError(
                f"it adds the {other.planes} planes of {makers[1]}"
                f" to the {source.planes} of {makers[0]}"
            )
        return source


@dataclass(frozen=True)
class Add(_Pair):
    """source * factor + other, of the same size and planes."""

    factor: float = 1.0

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        return (np.array([self.factor], np.float32),)


@dataclass(frozen=True)
class Gate(_Pair):
    """(source + other) * (sigmoid(source) - 1/2), of the same size and planes, which SPAN calls
    attention without parameters."""


@dataclass(frozen=True)
class Interpolate(Node):
    """The map `up / down` times as large, by bicubic interpolation of 4x4 pixels.

    Pixel y of the result stands at y' = (y + 1/2) * down / up - 1/2 of the source; at the distance
    t, the weight is Keys's cubic with a = -3/4. Pixels beyond the map are those at its edge.
    """

    source: int
    up: int
    down: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        return read[0].scaled(read[0].planes, Fraction(_positive(self.up), _positive(self.down)))

    def _length(self, read: Sequence[int]) -> int:
        return _divided(read[0], self.down, self.up)


def cubic_taps(up: int, down: int) -> NDArray[np.float64]:
    """Returns (up, 4): the weights of an Interpolate for results y = 0 to up - 1, which repeat.

    They belong to the source's pixels floor((y + 1/2) * down / up - 1/2) - 1 and the next three.
    """
    place = (np.arange(up) + 0.5) * down / up - 0.5
    t = (place - np.floor(place))[:, np.newaxis] + np.array([1, 0, -1, -2])
    t, a = abs(t), -0.75
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    taps: NDArray[np.float64] = np.where(t <= 1, near, np.where(t < 2, far, 0))
    return taps


@dataclass(frozen=True)
class InterpolateTo(Node):
    """The map enlarged to the size of another one, by bilinear interpolation of 2x2 pixels.

    Pixel y of H of the result stands at (y + 1/2) * h / H - 1/2 of the source's h, and at 0 where
    that is below 0; in the last half pixel, the last one is repeated.
    """

    source: int
    like: int
    """The map whose size it gets; nothing else is read of it."""

    _read_by = ("source", "like")

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        source, like = read
        assert source.resolution is not None
        if like.resolution is None or like.resolution < source.resolution:
            raise ModelError("its result is smaller than what it reads")
        return replace(like, planes=source.planes)

    def _length(self, read: Sequence[int]) -> int:
        return read[1]


@dataclass(frozen=True)
class MaxPool(Node):
    """The maximum of each plane over kernel x kernel pixels, at every `stride` pixels.

    Pixels that do not fill a kernel at the right and below are left out. A map that is smaller than
    the kernel makes one pixel, from all of the map.
    """

    source: int
    kernel: int
    stride: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        if not (1 <= self.kernel <= MOST_KERNEL and 1 <= self.stride <= MOST_KERNEL):
            raise ModelError(f"kernel {self.kernel}, stride {self.stride}; at most {MOST_KERNEL}")
        inset = Fraction(self.kernel - self.stride, 2)
        return read[0].scaled(read[0].planes, Fraction(1, self.stride), inset)

    def _length(self, read: Sequence[int]) -> int:
        return max((read[0] - self.kernel) // self.stride + 1, 1)


@dataclass(frozen=True)
class Interleave(Node):
    """The map cut into `parts` x `parts` rectangles of one size, and their pixels interleaved:

    out[y * parts + i][x * parts + j] = in[i * (rows // parts) + y][j * (columns // parts) + x].
    """

    source: int
    parts: int
    inverse: bool = False
    """The way back: `out` is the source."""

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        if self.parts < 1:
            raise ModelError(f"interleaves {self.parts} parts")
        return read[0]

    def _length(self, read: Sequence[int]) -> int:
        return _divided(read[0], self.parts) * self.parts


@dataclass(frozen=True)
class GridSample(Node):
    """Samples of a map at computed places, by bilinear interpolation of 2x2 pixels: `scale` x
    `scale` for each pixel, moved by offsets.

    Each of `groups` of neighbouring planes has offsets of its own, in pixels of the map. Sample
    (dy, dx) of pixel (y, x) and group g, k = dy * scale + dx, lies at the row y - 1/2 + (dy + 1/2)
    / scale + offsets[y][x][(k * groups + g) * 2 + 1], and at such a column by the offset before
    that one; beyond the map it is that of the nearest place at its edges. Plane c of sample k is
    plane k * planes + c of the result.
    """

    source: int
    offsets: int
    scale: int
    groups: int

    _read_by = ("source", "offsets")

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        source, offsets = read
        source.check_alike(offsets)
        area = _positive(self.scale) ** 2
        if self.groups < 1 or source.planes % self.groups:
            raise ModelError(f"{self.groups} groups of {source.planes} planes")
        if offsets.planes != 2 * self.groups * area:
            raise ModelError(
                f"it reads {2 * self.groups * area} offsets, but {makers[1]} makes {offsets.planes}"
            )
        return replace(source, planes=source.planes * area)


@dataclass(frozen=True)
class Concatenate(Node):
    """Planes of several maps of one size, one after the other."""

    values: tuple[int, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        return self.values

    def renumbered(self, places: Sequence[int]) -> Self:
        return replace(self, values=tuple(places[value] for value in self.values))

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        for other in read[1:]:
            read[0].check_alike(other)
        return replace(read[0], planes=sum(each.planes for each in read))


@dataclass(frozen=True)
class Slice(Node):
    """Some neighbouring planes of a map: `planes` of them, from plane `first` on."""

    source: int
    first: int
    planes: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        last, planes = self.first + self.planes - 1, read[0].planes
        if self.first < 0 or self.planes < 1 or last >= planes:
            raise ModelError(
                f"it takes planes {self.first} to {last} of the {planes} of {makers[0]}"
            )
        return replace(read[0], planes=self.planes)


@dataclass(frozen=True)
class Mean(Node):
    """The mean of each plane over the network's whole map, its padding included: a vector."""

    source: int

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        return ValueShape(read[0].planes, None, Fraction(0))

    def _length(self, read: Sequence[int]) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class Dense(Weighted):
    """weight @ vector + bias, then an activation. The weight is (out_planes, in_planes)."""

    _axes = 2
    _reads_vector = True

    @property
    def multiply_adds(self) -> int | Fraction:
        return 0

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        return ValueShape(self._made(read[0], makers[0]), None, read[0].origin)


@dataclass(frozen=True)
class Multiply(Node):
    """Each plane of a map times its element of a vector."""

    source: int
    factors: int

    _read_by = ("source", "factors")

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        source, factors = read
        if factors.resolution is not None:
            raise ModelError("it multiplies a map by a map, but expected a vector")
        if factors.planes != source.planes:
            raise ModelError(
                f"it multiplies the {source.planes} planes of {makers[0]}"
                f" by the {factors.planes} factors of {makers[1]}"
            )
        return source

    def _length(self, read: Sequence[int]) -> int:
        return read[0]


@dataclass(frozen=True)
class MultiplyMaps(_Pair):
    """Each value of a map times that of another map of the same size: of its own plane, or of the
    only one."""

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        source, other = read
        source.check_alike(other)
        if other.planes not in (1, source.planes):
            raise ModelError(
                f"it multiplies the {source.planes} planes of {makers[0]}"
                f" by the {other.planes} of {makers[1]}"
            )
        return source


@dataclass(frozen=True, eq=False)
class _Norm(Node):
    source: int
    weight: NDArray[np.float32]
    """(planes,)."""
    bias: NDArray[np.float32]
    """(planes,)."""

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        return self.weight, self.bias

    def _checked(self, read: ValueShape, maker: str, eps: float, groups: int = 1) -> ValueShape:
        planes = read.planes
        for name, array in (("weight", self.weight), ("bias", self.bias)):
            if array.shape != (planes,):
                raise ModelError(
                    f"{name} has {array.size} values, but {maker} makes {planes} planes"
                )
        if not 0 < eps < 1:
            raise ModelError(f"eps is {eps}, but expected a small number above 0")
        if groups < 1 or planes % groups:
            raise ModelError(f"{groups} groups of {planes} planes")
        return read


@dataclass(frozen=True, eq=False)
class LayerNorm(_Norm):
    """(x - mean) / sqrt(variance + eps) * weight + bias, of all planes of one pixel.

    The variance is the mean of (x - mean) ** 2.
    """

    eps: float = 1e-5

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        return self._checked(read[0], makers[0], self.eps)


@dataclass(frozen=True, eq=False)
class GroupNorm(_Norm):
    """The same, of all values of a group of neighbouring planes over the network's whole map."""

    groups: int
    eps: float = 1e-5

    def _shape(self, read: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
        return self._checked(read[0], makers[0], self.eps, self.groups)


def _positive(factor: int) -> int:
    if factor < 1:
        raise ModelError(f"factor {factor}")
    return factor


def _divided(length: int, by: int, times: int = 1) -> int:
    if length * times % by:
        raise ModelError(f"{length} pixels do not divide by {by}")
    return length * times // by
