"""Shape inference: what is known of a value before there is a picture, and its size with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from waifu2x.errors import ModelError
from waifu2x.networks.attention import ChannelAttention, WindowAttention
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
    sources,
)
from waifu2x.networks.norms import GroupNorm, LayerNorm
from waifu2x.networks.pooling import MOST_KERNEL, InterpolateTo, MaxPool
from waifu2x.system.lazy_dataclass import dataclass

MOST_PLANES = 1 << 16
"""Planes of one value; the widest networks of the field have some hundreds."""
MOST_SCALE = 64
"""By how much any value may enlarge, or reduce, the picture in each direction."""
MOST_MARGIN = 1024
"""Pixels of the picture that a network may lose on each side."""


@dataclass(frozen=True)
class ValueShape:
    """What is known of a value without a picture."""

    planes: int
    resolution: Fraction | None
    """Its pixels for each pixel of the picture, in each direction; None for a vector."""
    origin: Fraction
    """Where the upper edge of its row 0 lies, in rows of the padded picture."""


def picture_shape(planes: int) -> ValueShape:
    """The shape of value 0, the picture. Raises ModelError, without a name, for too many planes."""
    return _bounded(ValueShape(planes, Fraction(1), Fraction(0)))


def infer_shapes(name: str, in_planes: int, nodes: Sequence[Node]) -> list[ValueShape]:
    """The shapes of all values. Raises ModelError, which begins with `name` and names the node."""
    shapes = [picture_shape(in_planes)]
    makers = ["the picture"]
    for node in nodes:
        makers.append(node_label(len(shapes), node))
        try:
            shapes.append(infer_shape(node, shapes, makers))
        except ModelError as error:
            raise ModelError(f"{name}: {makers[-1]}: {error}") from None
    return shapes


def node_label(value: int, node: Node) -> str:
    """What messages call the node that makes a value, where its file has no name for it."""
    return f"node {value} ({type(node).__name__})"


def infer_shape(node: Node, shapes: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
    """The shape of what a node makes, from the shapes of all values before it.

    `makers` are what messages call the nodes that made those. Raises ModelError, whose message has
    neither file nor node, if the node does not fit.
    """
    read = sources(node)
    if not read:
        raise ModelError("reads no value")
    for source in read:
        if not 0 <= source < len(shapes):
            raise ModelError(f"reads value {source}, which is not made before it")
    return _bounded(_shape(node, shapes, makers))


def infer_lengths(name: str, nodes: Sequence[Node], padded: int) -> list[int]:
    """Rows, or columns, of every value for a padded picture with so many; 1 for vectors.

    Raises ModelError, which begins with `name`, if nothing is left or sizes do not match.
    """
    lengths = [padded]
    for value, node in enumerate(nodes, 1):
        try:
            lengths.append(_length(node, lengths))
        except ModelError as error:
            raise ModelError(f"{name}: {node_label(value, node)}: {error}") from None
    return lengths


def _bounded(shape: ValueShape) -> ValueShape:
    if not 1 <= shape.planes <= MOST_PLANES:
        raise ModelError(f"makes {shape.planes} planes, but expected 1 to {MOST_PLANES}")
    resolution = shape.resolution
    if resolution is not None and not Fraction(1, MOST_SCALE) <= resolution <= MOST_SCALE:
        raise ModelError(
            f"its map is {resolution} times the picture, but at most {MOST_SCALE} is supported"
        )
    if abs(shape.origin) > MOST_MARGIN:
        raise ModelError(f"its map begins more than {MOST_MARGIN} pixels inside the picture")
    return shape


def _shape(node: Node, shapes: Sequence[ValueShape], makers: Sequence[str]) -> ValueShape:
    first = sources(node)[0]
    source, maker = shapes[first], makers[first]
    planes, resolution, origin = source.planes, source.resolution, source.origin
    if isinstance(node, Dense):
        if resolution is not None:
            raise ModelError("reads a map, but expected a vector")
        return ValueShape(_weighted(node, planes, maker), None, origin)
    if resolution is None:
        raise ModelError("reads a vector, but expected a map")
    pixel = 1 / resolution
    match node:
        case Convolution():
            if node.stride < 1 or node.padding < 0:
                raise ModelError(f"stride {node.stride}, padding {node.padding}")
            made = _weighted(node, planes, maker)
            shift = pixel * (Fraction(node.weight.shape[-1] - node.stride, 2) - node.padding)
            return ValueShape(made, resolution / node.stride, origin + shift)
        case TransposedConvolution():
            if node.stride < 1 or node.crop < 0:
                raise ModelError(f"stride {node.stride}, crop {node.crop}")
            made = _weighted(node, planes, maker)
            taps = node.weight.shape[-1]
            shift = pixel / node.stride * (Fraction(taps - node.stride, 2) - node.crop)
            return ValueShape(made, resolution * node.stride, origin - shift)
        case DepthwiseConvolution():
            if node.padding < 0:
                raise ModelError(f"padding {node.padding}")
            made = _weighted(node, planes, maker)
            shift = pixel * (Fraction(node.weight.shape[-1] - 1, 2) - node.padding)
            return ValueShape(made, resolution, origin + shift)
        case Enlarge():
            return ValueShape(planes, resolution * _positive(node.factor), origin)
        case PixelShuffle():
            area = _positive(node.factor) ** 2
            if planes % area:
                raise ModelError(f"{planes} planes are not a multiple of {area}")
            return ValueShape(planes // area, resolution * node.factor, origin)
        case PixelUnshuffle():
            area = _positive(node.factor) ** 2
            return ValueShape(planes * area, resolution / node.factor, origin)
        case Crop():
            if node.pixels < 0:
                raise ModelError(f"crops {node.pixels} pixels")
            return ValueShape(planes, resolution, origin + node.pixels * pixel)
        case Interpolate():
            scale = Fraction(_positive(node.up), _positive(node.down))
            return ValueShape(planes, resolution * scale, origin)
        case MaxPool():
            if not (1 <= node.kernel <= MOST_KERNEL and 1 <= node.stride <= MOST_KERNEL):
                raise ModelError(
                    f"kernel {node.kernel}, stride {node.stride}; at most {MOST_KERNEL}"
                )
            shift = pixel * Fraction(node.kernel - node.stride, 2)
            return ValueShape(planes, resolution / node.stride, origin + shift)
        case InterpolateTo():
            like = shapes[node.like]
            if like.resolution is None or like.resolution < resolution:
                raise ModelError("its result is smaller than what it reads")
            return replace(like, planes=planes)
        case Interleave():
            if node.parts < 1:
                raise ModelError(f"interleaves {node.parts} parts")
            return source
        case Add() | Gate():
            other = shapes[node.other]
            _alike(source, other)
            if other.planes != planes:
                raise ModelError(
                    f"adds the {other.planes} planes of {makers[node.other]}"
                    f" to the {planes} of {maker}"
                )
            return source
        case MultiplyMaps():
            other = shapes[node.other]
            _alike(source, other)
            if other.planes not in (1, planes):
                raise ModelError(
                    f"multiplies the {planes} planes of {maker}"
                    f" by the {other.planes} of {makers[node.other]}"
                )
            return source
        case Concatenate():
            for value in node.sources[1:]:
                _alike(source, shapes[value])
            return replace(source, planes=sum(shapes[value].planes for value in node.sources))
        case Slice():
            if node.first < 0 or node.planes < 1 or node.first + node.planes > planes:
                last = node.first + node.planes - 1
                raise ModelError(f"takes planes {node.first} to {last} of the {planes} of {maker}")
            return replace(source, planes=node.planes)
        case LayerNorm() | GroupNorm():
            _normed(node, planes, maker)
            return source
        case Mean():
            return ValueShape(planes, None, Fraction(0))
        case WindowAttention() | ChannelAttention():
            return _attended(node, shapes)
        case Multiply():
            factors = shapes[node.factors]
            if factors.resolution is not None:
                raise ModelError("multiplies a map by a map, but expected a vector")
            if factors.planes != planes:
                raise ModelError(
                    f"multiplies the {planes} planes of {maker}"
                    f" by the {factors.planes} factors of {makers[node.factors]}"
                )
            return source


def _attended(node: WindowAttention | ChannelAttention, shapes: Sequence[ValueShape]) -> ValueShape:
    """The shape of what attention makes."""
    if isinstance(node, WindowAttention):
        cell = node.windows.cell
        node.windows.check(node.heads, node.bias.shape, node.planes)
    else:
        cell = 1
        node.check()
        if node.keys.source != node.queries.source:
            raise ModelError("its queries and keys are of different maps")
    queries, keys, values = (shapes[source] for source in node.sources)
    for read in (node.queries, node.keys, node.values):
        planes = shapes[read.source].planes
        if not 0 <= read.first <= planes - node.planes:
            raise ModelError(
                f"reads planes {read.first} to {read.first + node.planes} of a map of {planes}"
            )
    cells = keys.resolution and keys.resolution * cell
    if (queries.resolution, queries.origin) != (cells, keys.origin):
        raise ModelError("its queries and keys lie at different places of the picture")
    _alike(keys, values)
    return replace(queries, planes=node.planes)


def _weighted(node: Weighted, planes: int, maker: str) -> int:
    """Planes that a node with weights makes."""
    flat = isinstance(node, Dense)
    weight = node.weight
    if weight.ndim != (2 if flat else 4) or not weight.size:
        raise ModelError(f"weight has the shape {weight.shape}")
    if weight.shape[2:3] != weight.shape[3:]:
        rows, columns = weight.shape[2:]
        raise ModelError(f"kernels of {rows}x{columns} taps, but expected square ones")
    made, read = weight.shape[:2]
    if isinstance(node, DepthwiseConvolution):
        if (made, read) != (planes, 1):
            raise ModelError(
                f"weight has {made} kernels of {read} planes, but {maker} makes {planes} planes"
            )
    elif read != planes:
        raise ModelError(f"weight reads {read} planes, but {maker} makes {planes}")
    if node.bias.shape != (made,):
        raise ModelError(f"bias has {node.bias.size} values for {made} planes")
    if node.activation.slopes.shape != (made,):
        raise ModelError(f"activation has {node.activation.slopes.size} slopes for {made} planes")
    return int(made)


def _normed(node: LayerNorm | GroupNorm, planes: int, maker: str) -> None:
    for name, array in (("weight", node.weight), ("bias", node.bias)):
        if array.shape != (planes,):
            raise ModelError(f"{name} has {array.size} values, but {maker} makes {planes} planes")
    if not 0 < node.eps < 1:
        raise ModelError(f"eps is {node.eps}, but expected a small number above 0")
    groups = node.groups if isinstance(node, GroupNorm) else 1
    if groups < 1 or planes % groups:
        raise ModelError(f"{groups} groups of {planes} planes")


def _alike(first: ValueShape, second: ValueShape) -> None:
    if second.resolution is None:
        raise ModelError("reads a vector, but expected maps")
    if (first.resolution, first.origin) != (second.resolution, second.origin):
        raise ModelError("its sources lie at different places of the picture")


def _positive(factor: int) -> int:
    if factor < 1:
        raise ModelError(f"factor {factor}")
    return factor


def _length(node: Node, lengths: Sequence[int]) -> int:
    """Rows, or columns, of the value that a node makes."""
    length = lengths[sources(node)[0]]
    made: int
    match node:
        case Convolution():
            made = (length + 2 * node.padding - node.weight.shape[-1]) // node.stride + 1
        case DepthwiseConvolution():
            made = length + 2 * node.padding - node.weight.shape[-1] + 1
        case TransposedConvolution():
            made = (length - 1) * node.stride + node.weight.shape[-1] - 2 * node.crop
        case Enlarge() | PixelShuffle():
            made = length * node.factor
        case PixelUnshuffle():
            made = length // node.factor
            if length % node.factor:
                raise ModelError(f"{length} pixels do not divide by {node.factor}")
        case Interpolate():
            made = length * node.up // node.down
            if length * node.up % node.down:
                raise ModelError(f"{length} pixels do not divide by {node.down}")
        case MaxPool():
            made = node.length(length)
        case InterpolateTo():
            made = lengths[node.like]
        case Interleave():
            made = length
            if length % node.parts:
                raise ModelError(f"{length} pixels do not divide by {node.parts}")
        case Crop():
            made = length - 2 * node.pixels
        case Mean() | Dense():
            made = 1
        case Add() | Gate() | MultiplyMaps() | Concatenate():
            made = length
            if any(lengths[source] != length for source in sources(node)):
                raise ModelError("its sources differ in size")
        case Multiply() | Slice() | LayerNorm() | GroupNorm():
            made = length
        case ChannelAttention():
            made = length
        case WindowAttention():
            made = length
            if any(lengths[one] * node.windows.cell != length for one in node.sources[1:]):
                raise ModelError("its queries and keys differ in size")
    if made < 1:
        raise ModelError("nothing is left of the picture")
    return made
