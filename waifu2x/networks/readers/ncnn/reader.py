"""Reads ncnn's networks: a .param file, the graph as text, and the .bin file of its weights.

Text and weights must agree before anything is allocated. Layers that a Model cannot express are
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.expressions import LEAKY, SIGMOID, SILU
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Add, Convolution, Gate, Interpolate, Weighted
from waifu2x.networks.readers.limits import read_file, shown
from waifu2x.networks.readers.ncnn.files import BinFile, Line, Number, parse_lines
from waifu2x.networks.readers.ncnn.graph import Blob, BlobGraph, GateFactor


def read_model(path: Path) -> Model:
    """Returns the network in a .param file and the .bin file beside it.

    Raises ModelError, which names file, line and key, if one cannot be read, they do not fit
    together, or a layer is of a kind that a Model cannot express.
    """
    text = read_file(path)
    return parse(text, read_file(weights_path(path)), str(path))


def weights_path(path: Path) -> Path:
    """Returns the .bin file that belongs to a .param file."""
    return path.with_suffix(".bin")


def parse(text: bytes, weights: bytes, name: str) -> Model:
    """Returns the network in the contents of both files; `name` names the .param file in
    messages."""
    lines = parse_lines(text, name)
    graph = BlobGraph(name, lines, BinFile(weights))
    # The graph refuses numbers that become infinite: no warning need say so before.
    with np.errstate(over="ignore", invalid="ignore"):
        for line in lines:
            add_layer(graph, line)
    return graph.finish()


_ANY = -233
"""In sizes: unchanged. In Scale: the factors are a blob."""


def add_layer(graph: BlobGraph, line: Line) -> None:
    """Adds a line's layer. Raises ModelError for what a Model cannot express."""
    make = _KINDS.get(line.kind)
    if make is None:
        raise ModelError(f"{line.where}: layers of kind {shown(line.kind)} are not supported")
    graph.begin(line)
    graph.end(make(graph, line))


# Each takes the keys of its line, and returns the blob that it makes.


def _input(graph: BlobGraph, line: Line) -> int:
    graph.expect(0)
    line.values.pop(0, None)  # the size that the network was converted with
    line.values.pop(1, None)
    planes = line.whole(2, "planes", 0)
    if planes:
        graph.begin_picture(planes)
    return 0


def _split(graph: BlobGraph, line: Line) -> int:
    if len(line.inputs) != 1 or not line.outputs:
        raise ModelError(f"{line.where}: expected 1 blob in and some out")
    source = graph.value(line.inputs[0])
    if len(line.outputs) > 1:
        graph.shared.add(source)
    return source


def _constant(graph: BlobGraph, line: Line) -> NDArray[np.float32]:
    graph.expect(0)
    for key, word in ((0, "width"), (1, "height")):
        line.expect(key, word, 1)
    line.expect(21, "precision", 1, default=1)
    return graph.weights.plain(line.whole(2, "planes", least=1), line.where)


def _convolution(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    made, side = line.whole(0, "planes", least=1), _side(line)
    stride, padding = _pair(line, 3, 13, "stride", 1, least=1), _padding(line)
    line.expect(18, "value of the padding", 0)
    line.expect(8, "int8", 0)
    line.expect(19, "dynamic weights", 0)
    weight, bias, activation = _weighted(graph, line, source, made, side, 6)
    if not graph.is_vector(source):
        return graph.net.convolution(
            source, weight, bias, activation, stride=stride, padding=padding
        )
    if (side, stride, padding) != (1, 1, 0):
        raise ModelError(f"{line.where}: it reads a vector, which takes 1x1 taps")
    return graph.net.dense(source, weight.reshape(made, -1), bias, activation)


def _deconvolution(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    made, side = line.whole(0, "planes", least=1), _side(line)
    stride, crop = _pair(line, 3, 13, "stride", 1, least=1), _padding(line)
    for key in (18, 19):
        line.expect(key, "additional rows or columns", 0)
    for key in (20, 21):
        line.expect(key, "size of the result", 0)
    line.expect(28, "dynamic weights", 0)
    # Not flipped: tap k of row y lands on row y * stride + k.
    weight, bias, activation = _weighted(graph, line, source, made, side, 6)
    return graph.net.transposed(source, weight, bias, activation, stride=stride, crop=crop)


def _inner_product(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    if not graph.is_vector(source):
        raise ModelError(f"{line.where}: it reads a map: only behind a global mean is supported")
    made = line.whole(0, "planes", least=1)
    line.expect(8, "int8", 0)
    weight, bias, activation = _weighted(graph, line, source, made, 1, 2)
    return graph.net.dense(source, weight.reshape(made, -1), bias, activation)


def _weighted(
    graph: BlobGraph, line: Line, source: int, made: int, side: int, count_key: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], Activation]:
    """Returns weights (out_planes, in_planes, kH, kW), biases and activation of a layer."""
    bias_key = 1 if line.kind == "InnerProduct" else 5
    has_bias = line.whole(bias_key, "bias", 0)
    if has_bias > 1:
        raise ModelError(f"{line.where}: key {bias_key} (bias) is {has_bias}: not 0 or 1")
    count = line.whole(count_key, "number of weights", least=1)
    # If its line does not say it, the weights tell the picture's planes.
    planes = graph.planes(source, needed=max(count // (made * side * side), 1))
    if count != made * planes * side * side:
        raise ModelError(
            f"{line.where}: key {count_key} (number of weights) is {count}, but expected"
            f" {made * planes * side * side} for {planes} planes in, {made} out"
            f" and {side}x{side} taps"
        )
    weight = graph.weights.tagged(count, line.where).reshape(made, planes, side, side)
    bias = graph.weights.plain(made, line.where) if has_bias else np.zeros(made, np.float32)
    # Only now: the weights confirm the number of planes.
    return weight, bias, _activation(line, made)


def _pooling(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    line.expect(0, "kind of pooling", 1)
    line.expect(4, "global", 1)
    for key in (1, 2, 11, 12, 3, 13, 14, 15):
        line.values.pop(key, None)  # of no meaning to a global mean
    return graph.net.mean(source)


def _scale(graph: BlobGraph, line: Line) -> int:
    first, second = graph.read(2)
    line.expect(0, "number of factors", _ANY)
    line.expect(1, "bias", 0)
    return graph.net.multiply(first, second)


def _binary_operation(graph: BlobGraph, line: Line) -> int | GateFactor:
    operation = line.whole(0, "operation", 0)
    if line.whole(1, "with a number", 0):
        number = float(line.number(2, "number", 0))
        graph.expect(1)
        source = graph.blob(line.inputs[0])
        if isinstance(source, GateFactor):
            if operation > 1:
                raise ModelError(f"{line.where}: key 0 (operation) is {operation}")
            return replace(source, shift=source.shift + (number, -number)[operation])
        return _affine(graph, line, operation, np.array([number], np.float32))
    graph.expect(2)
    first, second = (graph.blob(blob) for blob in line.inputs)
    if isinstance(second, np.ndarray):
        return _affine(graph, line, operation, second)
    for factor, other in ((first, second), (second, first)):
        if operation == 2 and isinstance(factor, GateFactor) and isinstance(other, int):
            return _gate(graph, line, factor, other)
    one, two = graph.read(2)
    if operation == 2:
        one, two = (two, one) if graph.is_vector(one) else (one, two)
        return graph.net.multiply(one, two)
    if operation:
        raise ModelError(f"{line.where}: key 0 (operation) is {operation}: not supported")
    return graph.net.add(one, two)


def _affine(graph: BlobGraph, line: Line, operation: int, numbers: NDArray[np.float32]) -> int:
    """Adds, subtracts, multiplies or divides by numbers by plane: a convolution of one tap."""
    source = graph.value(line.inputs[0])
    if graph.is_vector(source) or operation > 3:
        raise ModelError(f"{line.where}: key 0 (operation) is {operation}: not supported")
    planes = graph.planes(source, needed=len(numbers))
    if len(numbers) not in (1, planes):
        raise ModelError(f"{line.where}: {len(numbers)} numbers for {planes} planes")
    if operation == 3 and not numbers.all():
        raise ModelError(f"{line.where}: it divides by zero")
    factor, shift = np.ones(planes, np.float32), np.zeros(planes, np.float32)
    if operation < 2:
        shift[:] = numbers if operation == 0 else -numbers
    else:
        factor[:] = numbers if operation == 2 else 1 / numbers
    node = graph.net.node(source)
    if isinstance(node, Convolution) and node.activation.is_linear and source not in graph.shared:
        graph.budget.take_bytes(node.weight.nbytes)
        weight = node.weight * factor[:, np.newaxis, np.newaxis, np.newaxis]
        bias = node.bias * factor + shift
        graph.net.exchange(source, replace(node, weight=weight, bias=bias))
        return source
    return graph.net.affine(source, factor, shift)


def _gate(graph: BlobGraph, line: Line, factor: GateFactor, added: int) -> int:
    """Turns the addition just made into (source + other) times the gate's factor of source."""
    node = graph.net.node(added)
    if (
        not isinstance(node, Add)
        or added != graph.net.last
        or added in graph.shared
        or (factor.shift, node.factor) != (-0.5, 1)
        or factor.value not in (node.source, node.other)
    ):
        raise ModelError(f"{line.where}: it multiplies other maps than those of a gate")
    other = node.other if factor.value == node.source else node.source
    graph.net.exchange(added, Gate(factor.value, other))
    return added


def _elementwise(graph: BlobGraph, line: Line) -> int:
    line.expect(0, "operation", 1)
    factors = line.array(1, "coefficients")
    values = graph.read(max(len(line.inputs), 2))
    if not factors:
        first = values[0]
        for second in values[1:]:
            first = graph.net.add(first, second)
        return first
    if len(factors) != len(values) or len(values) != 2 or 1 not in factors:
        raise ModelError(
            f"{line.where}: key 1 (coefficients): expected two, one of them 1, but got {factors}"
        )
    if factors[1] != 1:
        values, factors = values[::-1], factors[::-1]
    return graph.net.add(values[0], values[1], float(factors[0]))


def _concatenate(graph: BlobGraph, line: Line) -> int:
    line.expect(0, "axis", 0)
    return graph.net.concatenate(*graph.read(max(len(line.inputs), 1)))


def _crop(graph: BlobGraph, line: Line) -> int:
    """Crops to the size of a second blob, by offsets on each side, or from a start to an end."""
    if len(line.inputs) == 2:
        source, reference = graph.read(2)
        pixels = _equal(line, line.number(0, "left", 0), line.number(1, "top", 0))
        line.expect(2, "first plane", 0)
        value = graph.net.crop(source, pixels)
        graph.crop_to(value, reference)
        return value
    (source,) = graph.read(1)
    starts, ends = line.array(9, "starts"), line.array(10, "ends")
    if not starts and not ends:
        for key, word in ((3, "width"), (4, "height"), (5, "planes")):
            line.expect(key, word, _ANY)
        line.expect(2, "first plane", 0)
        line.expect(8, "last plane", 0)
        sides = ((0, "left"), (1, "top"), (6, "right"), (7, "bottom"))
        return graph.net.crop(source, _equal(line, *(line.number(*side, 0) for side in sides)))
    axes = line.array(11, "axes")
    if axes not in ([1, 2], [-2, -1]):
        raise ModelError(f"{line.where}: key 11 (axes) is {axes}: not supported")
    if len(starts) != 2 or len(ends) != 2:
        raise ModelError(f"{line.where}: expected 2 starts and 2 ends")
    return graph.net.crop(source, _equal(line, *starts, *(-end for end in ends)))


def _equal(line: Line, *pixels: Number) -> int:
    if not isinstance(pixels[0], int) or pixels[0] < 0 or len(set(pixels)) > 1:
        raise ModelError(f"{line.where}: only as many pixels on each side can be cropped")
    return pixels[0]


def _shuffle(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    factor = line.whole(0, "factor", 1, least=1)
    line.expect(1, "order of planes", 0)
    return graph.net.pixel_shuffle(source, factor)


def _unshuffle(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    factor = line.whole(0, "factor", 1, least=1)
    line.expect(1, "order of planes", 0)
    return graph.net.pixel_unshuffle(source, factor)


def _interpolate(graph: BlobGraph, line: Line) -> int:
    (source,) = graph.read(1)
    kind = line.whole(0, "kind of interpolation", 0)
    if kind not in (1, 3):
        raise ModelError(f"{line.where}: key 0 (kind of interpolation) is {kind}: not supported")
    high, wide = line.number(1, "factor", 1), line.number(2, "factor", 1)
    factor = Fraction(high).limit_denominator(64)
    if high != wide or factor != Fraction(high) or not 0 < factor <= 64:
        raise ModelError(f"{line.where}: keys 1 and 2 (factors) are {high} and {wide}")
    for key in (3, 4):
        line.expect(key, "size of the result", 0)
    line.expect(5, "size of another blob", 0)
    line.expect(6, "aligned corners", 0)
    if kind == 3:
        return graph.net.append(Interpolate(source, *factor.as_integer_ratio()))
    if factor.denominator != 1:
        raise ModelError(f"{line.where}: keys 1 and 2 (factors) are {high} and {wide}")
    return graph.net.enlarge(source, int(factor))


# Activations of their own line are folded into the layer before.


def _rectify(graph: BlobGraph, line: Line) -> int:
    value, planes = _before(graph, line)
    slope = float(line.number(0, "slope", 0))
    return graph.net.activate(value, leaky(slope, planes))


def _rectify_planes(graph: BlobGraph, line: Line) -> int:
    value, planes = _before(graph, line)
    count = line.whole(0, "number of slopes", least=1)
    if count not in (1, planes):
        raise ModelError(
            f"{line.where}: key 0 (number of slopes) is {count}, but expected {planes}"
        )
    slopes = np.broadcast_to(graph.weights.plain(count, line.where), (planes,)).copy()
    return graph.net.activate(value, Activation(LEAKY, slopes))


def _sigmoid(graph: BlobGraph, line: Line) -> int | GateFactor:
    (source,) = graph.read(1)
    if source in graph.shared:
        return GateFactor(source, 0.0)
    value, planes = _before(graph, line)
    return graph.net.activate(value, elementwise(SIGMOID, planes))


def _swish(graph: BlobGraph, line: Line) -> int:
    value, planes = _before(graph, line)
    return graph.net.activate(value, elementwise(SILU, planes))


def _before(graph: BlobGraph, line: Line) -> tuple[int, int]:
    """Returns value and planes of the layer that an activation belongs to."""
    (source,) = graph.read(1)
    node = graph.net.node(source) if source else None
    if not isinstance(node, Weighted) or not node.activation.is_linear:
        raise ModelError(f"{line.where}: only behind a layer with weights is it supported")
    if source in graph.shared:
        raise ModelError(f"{line.where}: another layer reads the same blob before it")
    return source, len(node.bias)


def _side(line: Line) -> int:
    side = _pair(line, 1, 11, "taps", None, least=1)
    if _pair(line, 2, 12, "dilation", 1) != 1:
        raise ModelError(f"{line.where}: key 2 (dilation): only 1 is supported")
    return side


def _pair(
    line: Line, first: int, second: int, word: str, default: int | None, least: int = 0
) -> int:
    """Takes a number for columns, which rows must share."""
    value = line.whole(first, word, default, least)
    line.expect(second, f"{word} of rows", value, default=value)
    return value


def _padding(line: Line) -> int:
    value = line.whole(4, "padding", 0)
    for key in (14, 15, 16):
        line.expect(key, "padding of another side", value, default=value)
    return value


def _activation(line: Line, planes: int) -> Activation:
    kind, parameters = line.whole(9, "activation", 0), line.array(10, "activation")
    if kind == 0:
        return leaky(1.0, planes)
    if kind == 1:
        return leaky(0.0, planes)
    if kind == 2 and len(parameters) == 1:
        return leaky(float(parameters[0]), planes)
    if kind == 4:
        return elementwise(SIGMOID, planes)
    raise ModelError(f"{line.where}: key 9 (activation) is {kind}: not supported")


_KINDS: dict[str, Callable[[BlobGraph, Line], Blob]] = {
    "Input": _input,
    "MemoryData": _constant,
    "Split": _split,
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "InnerProduct": _inner_product,
    "Pooling": _pooling,
    "Scale": _scale,
    "BinaryOp": _binary_operation,
    "Eltwise": _elementwise,
    "Concat": _concatenate,
    "Crop": _crop,
    "PixelShuffle": _shuffle,
    "Reorg": _unshuffle,
    "Interp": _interpolate,
    "ReLU": _rectify,
    "PReLU": _rectify_planes,
    "Sigmoid": _sigmoid,
    "Swish": _swish,
}
