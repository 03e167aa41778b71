"""ncnn's networks: a .param file, which is the graph as text, and the .bin file of its weights.

Text and weights are held against each other, and nothing is allocated before that. What a Model
cannot express is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.builder import fit_padding
from waifu2x.networks.expressions import LEAKY, SIGMOID, SILU
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Gate,
    Mean,
    Multiply,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    Resize,
    TransposedConvolution,
    Weighted,
    affine,
    sources,
)
from waifu2x.networks.readers.limits import read_file
from waifu2x.networks.readers.ncnn_files import MAX_LAYERS, Line, Number, Weights, parse_lines

_REST = -233
"""In sizes: whatever there is. In Scale: the factors are a blob."""


def read_model(path: Path) -> Model:
    """The network in a .param file and the .bin file beside it.

    Raises ModelError, which names file, line and key, if one cannot be read, they do not fit
    together, or a layer is of a kind that a Model cannot express.
    """
    text = read_file(path)
    return parse(text, read_file(weights_path(path)), str(path))


def weights_path(path: Path) -> Path:
    """The .bin file that belongs to a .param file."""
    return path.with_suffix(".bin")


def parse(text: bytes, weights: bytes, name: str) -> Model:
    """The network in the contents of both files; `name` stands for the .param file in messages."""
    lines = parse_lines(text, name)
    graph = _Graph(lines, Weights(weights))
    for line in lines:
        graph.add(line)
    return graph.finish(name)


@dataclass(frozen=True)
class _Value:
    """What the graph knows of a value while it grows."""

    planes: int | None
    """None: the picture's, before a convolution says."""
    is_vector: bool
    where: str
    """The line that made it."""


@dataclass(frozen=True)
class _Curve:
    """sigmoid(value) + shift, on its way to become the factor of a gate."""

    value: int
    shift: float


_Blob = int | _Curve | NDArray[np.float32]
"""A value of the graph, or what becomes part of a node: a constant of each plane is an array."""


class _Graph:
    """The nodes so far."""

    def __init__(self, lines: list[Line], weights: Weights) -> None:
        self._weights = weights
        self._nodes: list[Node] = []
        self._values: list[_Value] = []
        self._blobs: dict[str, _Blob] = {}
        self._uses = Counter(blob for line in lines for blob in line.inputs)
        self._shared: set[int] = set()
        """Values that more than one layer reads: no activation can be folded into those."""
        self._crops: list[tuple[int, int, str]] = []
        """Values cropped, values whose size they are cropped to, and lines."""

    def add(self, line: Line) -> None:
        """One layer more."""
        handle = _KINDS.get(line.kind)
        if handle is None:
            raise ModelError(f"{line.where}: layers of kind {line.kind} are not supported")
        if (not self._values) != (line.kind == "Input"):
            raise ModelError(f"{line.where}: expected one Input, and that first")
        for blob in line.inputs:
            if blob not in self._blobs:
                raise ModelError(f"{line.where}: reads blob {blob}, which no line before makes")
            found = self._blobs[blob]
            if self._uses[blob] > 1 and isinstance(found, int):
                self._shared.add(found)
        made = handle(self, line)
        line.finish()
        for blob in line.outputs:
            if blob in self._blobs:
                raise ModelError(f"{line.where}: blob {blob} is made twice")
            self._blobs[blob] = made

    def finish(self, name: str) -> Model:
        """The Model, once all layers are there."""
        if self._weights.left:
            raise ModelError(
                f"{name}: its .bin file has {self._weights.left} bytes more than the layers take"
            )
        planes = self._values[0].planes
        if planes is None or not self._nodes:
            raise ModelError(f"{name}: no layer says how many planes the picture has")
        used = {source for node in self._nodes for source in sources(node)}
        for number, value in enumerate(self._values[:-1]):
            if number not in used:
                raise ModelError(f"{value.where}: nothing reads what it makes")
        model = self._model(name, planes)
        for length in (model.multiple, 5 * model.multiple):
            sizes = model.sizes(length, length)
            for cropped, reference, where in self._crops:
                if sizes[cropped] != sizes[reference]:
                    raise ModelError(
                        f"{where}: crops {sizes[cropped][0]} pixels to {sizes[reference][0]}:"
                        " only as much on each side is supported"
                    )
        made = model.out_planes
        if made != planes:
            raise ModelError(f"{name}: makes {made} planes of {planes}: a picture must stay one")
        return model

    def _model(self, name: str, planes: int) -> Model:
        """The nodes as they are used.

        Files do not say what a picture is padded with, nor what a program does behind its network.
        Padded ones with the names of blobs that pnnx gives are Real-CUGAN's: a reflection, and the
        picture, enlarged, is added where the last layer shuffles (its 4x networks).
        """
        nodes = tuple(self._nodes)
        model = fit_padding(name, planes, nodes)
        if not model.padding or not {"in0", "out0"} <= self._blobs.keys():
            return model
        if isinstance(nodes[-1], PixelShuffle):
            by, last = model.scale, len(nodes)
            more = (Enlarge(0, by), Crop(last + 1, by * model.padding), Add(last, last + 2))
            nodes += more
        return fit_padding(name, planes, nodes, "reflect")

    def _append(
        self, node: Node, planes: int | None, line: Line, *, is_vector: bool = False
    ) -> int:
        if len(self._nodes) == MAX_LAYERS:
            raise ModelError(f"{line.where}: more than {MAX_LAYERS} nodes")
        self._nodes.append(node)
        self._values.append(_Value(planes, is_vector, line.where))
        return len(self._nodes)

    def _read(self, line: Line, count: int) -> tuple[int, ...]:
        """The values that a layer of one result reads."""
        if len(line.inputs) != count or len(line.outputs) != 1:
            raise ModelError(
                f"{line.where}: {len(line.inputs)} blobs in and {len(line.outputs)} out,"
                f" but expected {count} and 1"
            )
        return tuple(self._value(blob, line) for blob in line.inputs)

    def _value(self, blob: str, line: Line) -> int:
        found = self._blobs[blob]
        if not isinstance(found, int):
            raise ModelError(f"{line.where}: reads blob {blob} otherwise than a gate would")
        return found

    def _map(self, line: Line) -> int:
        """The one map that a layer reads."""
        (source,) = self._read(line, 1)
        if self._values[source].is_vector:
            raise ModelError(f"{line.where}: reads a vector, but expected a map")
        return source

    def _planes(self, source: int, line: Line) -> int:
        planes = self._values[source].planes
        if planes is None:
            raise ModelError(f"{line.where}: the Input does not say its planes: key 2 is missing")
        return planes

    # Each kind of layer: takes its keys, and gives the value that it makes.

    def input(self, line: Line) -> int:
        if line.inputs or len(line.outputs) != 1:
            raise ModelError(f"{line.where}: expected no blob in and 1 out")
        line.values.pop(0, None)  # the size that the network was converted with
        line.values.pop(1, None)
        planes = line.whole(2, "planes", 0)
        self._values.append(_Value(planes or None, False, line.where))
        return 0

    def split(self, line: Line) -> int:
        if len(line.inputs) != 1 or not line.outputs:
            raise ModelError(f"{line.where}: expected 1 blob in and some out")
        source = self._value(line.inputs[0], line)
        if len(line.outputs) > 1:
            self._shared.add(source)
        return source

    def constant(self, line: Line) -> NDArray[np.float32]:
        if line.inputs or len(line.outputs) != 1:
            raise ModelError(f"{line.where}: expected no blob in and 1 out")
        for key, word in ((0, "width"), (1, "height")):
            line.expect(key, word, 1)
        line.expect(21, "precision", 1, default=1)
        return self._weights.plain(line.whole(2, "planes", least=1), line.where)

    def convolution(self, line: Line) -> int:
        (source,) = self._read(line, 1)
        made, side = line.whole(0, "planes", least=1), _side(line)
        stride, padding = _pair(line, 3, 13, "stride", 1, least=1), _padding(line)
        line.expect(18, "value of the padding", 0)
        line.expect(8, "int8", 0)
        line.expect(19, "dynamic weights", 0)
        weight, bias, activation = self._weighted(line, source, made, side, 6)
        if self._values[source].is_vector:
            if (side, stride, padding) != (1, 1, 0):
                raise ModelError(f"{line.where}: reads a vector, which takes 1x1 taps")
            dense = Dense(source, weight.reshape(made, -1), bias, activation)
            return self._append(dense, made, line, is_vector=True)
        node = Convolution(source, weight, bias, activation, stride, padding)
        return self._append(node, made, line)

    def deconvolution(self, line: Line) -> int:
        source = self._map(line)
        made, side = line.whole(0, "planes", least=1), _side(line)
        stride, crop = _pair(line, 3, 13, "stride", 1, least=1), _padding(line)
        for key in (18, 19):
            line.expect(key, "additional rows or columns", 0)
        for key in (20, 21):
            line.expect(key, "size of the result", 0)
        line.expect(28, "dynamic weights", 0)
        # Not flipped: tap k of row y lands on row y * stride + k.
        weight, bias, activation = self._weighted(line, source, made, side, 6)
        node = TransposedConvolution(source, weight, bias, activation, stride, crop)
        return self._append(node, made, line)

    def inner_product(self, line: Line) -> int:
        (source,) = self._read(line, 1)
        if not self._values[source].is_vector:
            raise ModelError(f"{line.where}: reads a map: only behind a global mean is supported")
        made = line.whole(0, "planes", least=1)
        line.expect(8, "int8", 0)
        weight, bias, activation = self._weighted(line, source, made, 1, 2)
        node = Dense(source, weight.reshape(made, -1), bias, activation)
        return self._append(node, made, line, is_vector=True)

    def _weighted(
        self, line: Line, source: int, made: int, side: int, count_key: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], Activation]:
        """Weights (out_planes, in_planes, kH, kW), biases and activation of a layer."""
        bias_key = 1 if line.kind == "InnerProduct" else 5
        has_bias = line.whole(bias_key, "bias", 0)
        if has_bias > 1:
            raise ModelError(f"{line.where}: key {bias_key} (bias) is {has_bias}: not 0 or 1")
        count = line.whole(count_key, "number of weights", least=1)
        planes = self._values[source].planes
        if planes is None:  # the picture's: as many as the weights are for
            planes = max(count // (made * side * side), 1)
            self._values[source] = replace(self._values[source], planes=planes)
        if count != made * planes * side * side:
            raise ModelError(
                f"{line.where}: key {count_key} (number of weights) is {count}, but expected"
                f" {made * planes * side * side} for {planes} planes in, {made} out"
                f" and {side}x{side} taps"
            )
        weight = self._weights.tagged(count, line.where).reshape(made, planes, side, side)
        bias = self._weights.plain(made, line.where) if has_bias else np.zeros(made, np.float32)
        # Only now, as the weights that are there say that so many planes are no invention.
        return weight, bias, _activation(line, made)

    def pooling(self, line: Line) -> int:
        source = self._map(line)
        line.expect(0, "kind of pooling", 1)
        line.expect(4, "global", 1)
        for key in (1, 2, 11, 12, 3, 13, 14, 15):
            line.values.pop(key, None)  # of no meaning to a global mean
        return self._append(Mean(source), self._planes(source, line), line, is_vector=True)

    def scale(self, line: Line) -> int:
        first, second = self._read(line, 2)
        line.expect(0, "number of factors", _REST)
        line.expect(1, "bias", 0)
        return self._multiply(first, second, line)

    def _multiply(self, source: int, factors: int, line: Line) -> int:
        if self._values[source].is_vector or not self._values[factors].is_vector:
            raise ModelError(f"{line.where}: multiplies other than a map by a vector")
        if self._planes(source, line) != self._planes(factors, line):
            raise ModelError(
                f"{line.where}: multiplies {self._values[source].planes} planes"
                f" by {self._values[factors].planes} factors"
            )
        return self._append(Multiply(source, factors), self._values[source].planes, line)

    def binary_operation(self, line: Line) -> int | _Curve:
        operation = line.whole(0, "operation", 0)
        if line.whole(1, "with a number", 0):
            number = float(line.number(2, "number", 0))
            if len(line.inputs) != 1 or len(line.outputs) != 1:
                raise ModelError(f"{line.where}: expected 1 blob in and 1 out")
            source = self._blobs[line.inputs[0]]
            if isinstance(source, _Curve):
                if operation > 1:
                    raise ModelError(f"{line.where}: key 0 (operation) is {operation}")
                return replace(source, shift=source.shift + (number, -number)[operation])
            return self._affine(operation, np.array([number], np.float32), line)
        if len(line.inputs) == 2 and isinstance(self._blobs[line.inputs[1]], np.ndarray):
            constant = self._blobs[line.inputs[1]]
            assert isinstance(constant, np.ndarray)
            return self._affine(operation, constant, line)
        curves = [isinstance(self._blobs[blob], _Curve) for blob in line.inputs]
        if operation == 2 and len(line.inputs) == 2 and any(curves):
            return self._gate(line, curves.index(True))
        first, second = self._read(line, 2)
        if operation == 2:
            if self._values[first].is_vector:
                first, second = second, first
            return self._multiply(first, second, line)
        if operation:
            raise ModelError(f"{line.where}: key 0 (operation) is {operation}: not supported")
        return self._add(first, second, 1.0, line)

    def _affine(self, operation: int, numbers: NDArray[np.float32], line: Line) -> int:
        """A map plus, less, times or by a number for each plane: a convolution of one tap."""
        source = self._value(line.inputs[0], line)
        if self._values[source].is_vector or operation > 3:
            raise ModelError(f"{line.where}: key 0 (operation) is {operation}: not supported")
        planes = self._values[source].planes
        if planes is None:  # the picture's: as many as the numbers are for
            planes = len(numbers)
            self._values[source] = replace(self._values[source], planes=planes)
        if len(numbers) not in (1, planes):
            raise ModelError(f"{line.where}: {len(numbers)} numbers for {planes} planes")
        if operation == 3 and not numbers.all():
            raise ModelError(f"{line.where}: divides by zero")
        factor, shift = np.ones(planes, np.float32), np.zeros(planes, np.float32)
        if operation < 2:
            shift[:] = numbers if operation == 0 else -numbers
        else:
            factor[:] = numbers if operation == 2 else 1 / numbers
        node = self._nodes[source - 1] if source else None
        folds = isinstance(node, Convolution) and node.activation.is_linear
        if isinstance(node, Convolution) and folds and source not in self._shared:
            weight = node.weight * factor[:, np.newaxis, np.newaxis, np.newaxis]
            folded = replace(node, weight=weight, bias=node.bias * factor + shift)
            self._nodes[source - 1] = folded
            return source
        return self._append(affine(source, factor, shift), planes, line)

    def _gate(self, line: Line, index: int) -> int:
        """(source + other) times the curve of source: the addition has just been made."""
        curve = self._blobs[line.inputs[index]]
        assert isinstance(curve, _Curve)
        added = self._value(line.inputs[1 - index], line)
        node = self._nodes[added - 1] if added else None
        if (
            not isinstance(node, Add)
            or added != len(self._nodes)
            or added in self._shared
            or (curve.shift, node.factor) != (-0.5, 1)
            or curve.value not in (node.source, node.other)
        ):
            raise ModelError(f"{line.where}: multiplies other maps than those of a gate")
        other = node.other if curve.value == node.source else node.source
        self._nodes[added - 1] = Gate(curve.value, other)
        return added

    def elementwise(self, line: Line) -> int:
        line.expect(0, "operation", 1)
        factors = line.array(1, "coefficients")
        values = self._read(line, max(len(line.inputs), 2))
        if not factors:
            first = values[0]
            for second in values[1:]:
                first = self._add(first, second, 1.0, line)
            return first
        if len(factors) != len(values) or len(values) != 2 or 1 not in factors:
            raise ModelError(
                f"{line.where}: key 1 (coefficients): expected two, one of them 1,"
                f" but got {factors}"
            )
        if factors[1] != 1:
            values, factors = values[::-1], factors[::-1]
        return self._add(values[0], values[1], float(factors[0]), line)

    def _add(self, first: int, second: int, factor: float, line: Line) -> int:
        self._alike([first, second], line)
        node = Add(first, second, factor)
        return self._append(node, self._values[first].planes, line)

    def _alike(self, values: list[int], line: Line) -> None:
        if any(self._values[value].is_vector for value in values):
            raise ModelError(f"{line.where}: reads a vector, but expected maps")
        planes = [self._planes(value, line) for value in values]
        if line.kind != "Concat" and len(set(planes)) > 1:
            raise ModelError(f"{line.where}: its blobs have {planes[0]} and {planes[1]} planes")

    def concatenate(self, line: Line) -> int:
        line.expect(0, "axis", 0)
        values = self._read(line, max(len(line.inputs), 1))
        self._alike(list(values), line)
        planes = sum(self._planes(value, line) for value in values)
        return self._append(Concatenate(values), planes, line)

    def crop(self, line: Line) -> int:
        """To the size of a second blob, by offsets on each side, or from a start to an end."""
        if len(line.inputs) == 2:
            source, reference = self._read(line, 2)
            self._alike([source, reference], line)
            pixels = self._equal(line, line.number(0, "left", 0), line.number(1, "top", 0))
            line.expect(2, "first plane", 0)
        else:
            source, reference = self._map(line), None
            starts, ends = line.array(9, "starts"), line.array(10, "ends")
            if starts or ends:
                axes = line.array(11, "axes")
                if axes not in ([1, 2], [-2, -1]):
                    raise ModelError(f"{line.where}: key 11 (axes) is {axes}: not supported")
                if len(starts) != 2 or len(ends) != 2:
                    raise ModelError(f"{line.where}: expected 2 starts and 2 ends")
                pixels = self._equal(line, *starts, *(-end for end in ends))
            else:
                for key, word in ((3, "width"), (4, "height"), (5, "planes")):
                    line.expect(key, word, _REST)
                line.expect(2, "first plane", 0)
                line.expect(8, "last plane", 0)
                pixels = self._equal(
                    line,
                    line.number(0, "left", 0),
                    line.number(1, "top", 0),
                    line.number(6, "right", 0),
                    line.number(7, "bottom", 0),
                )
        value = self._append(Crop(source, pixels), self._values[source].planes, line)
        if reference is not None:
            self._crops.append((value, reference, line.where))
        return value

    def _equal(self, line: Line, *pixels: Number) -> int:
        if not isinstance(pixels[0], int) or pixels[0] < 0 or len(set(pixels)) > 1:
            raise ModelError(f"{line.where}: only as many pixels on each side can be cropped")
        return pixels[0]

    def shuffle(self, line: Line) -> int:
        source = self._map(line)
        factor = line.whole(0, "factor", 1, least=1)
        line.expect(1, "order of planes", 0)
        planes = self._planes(source, line)
        if planes % factor**2:
            raise ModelError(f"{line.where}: {planes} planes are not a multiple of {factor**2}")
        return self._append(PixelShuffle(source, factor), planes // factor**2, line)

    def unshuffle(self, line: Line) -> int:
        source = self._map(line)
        factor = line.whole(0, "factor", 1, least=1)
        line.expect(1, "order of planes", 0)
        planes = self._planes(source, line) * factor**2
        return self._append(PixelUnshuffle(source, factor), planes, line)

    def interpolate(self, line: Line) -> int:
        source = self._map(line)
        kind = line.whole(0, "kind of interpolation", 0)
        if kind not in (1, 3):
            raise ModelError(
                f"{line.where}: key 0 (kind of interpolation) is {kind}: not supported"
            )
        high, wide = line.number(1, "factor", 1), line.number(2, "factor", 1)
        factor = Fraction(high).limit_denominator(64)
        if high != wide or factor != Fraction(high) or not 0 < factor <= 64:
            raise ModelError(f"{line.where}: keys 1 and 2 (factors) are {high} and {wide}")
        for key in (3, 4):
            line.expect(key, "size of the result", 0)
        line.expect(5, "size of another blob", 0)
        line.expect(6, "aligned corners", 0)
        planes = self._values[source].planes
        if kind == 3:
            return self._append(Resize(source, *factor.as_integer_ratio()), planes, line)
        if factor.denominator != 1:
            raise ModelError(f"{line.where}: keys 1 and 2 (factors) are {high} and {wide}")
        return self._append(Enlarge(source, int(factor)), planes, line)

    # Activations of their own line are folded into the layer before.

    def rectify(self, line: Line) -> int:
        value, node = self._before(line)
        slope = float(line.number(0, "slope", 0))
        return self._fold(value, node, leaky(slope, len(node.bias)))

    def rectify_planes(self, line: Line) -> int:
        value, node = self._before(line)
        count = line.whole(0, "number of slopes", least=1)
        if count not in (1, len(node.bias)):
            raise ModelError(
                f"{line.where}: key 0 (number of slopes) is {count}, but expected {len(node.bias)}"
            )
        slopes = np.broadcast_to(self._weights.plain(count, line.where), (len(node.bias),)).copy()
        return self._fold(value, node, Activation(LEAKY, slopes))

    def sigmoid(self, line: Line) -> int | _Curve:
        (source,) = self._read(line, 1)
        if source in self._shared:
            return _Curve(source, 0.0)
        value, node = self._before(line)
        return self._fold(value, node, elementwise(SIGMOID, len(node.bias)))

    def swish(self, line: Line) -> int:
        value, node = self._before(line)
        return self._fold(value, node, elementwise(SILU, len(node.bias)))

    def _before(self, line: Line) -> tuple[int, Weighted]:
        """The layer that an activation belongs to."""
        (source,) = self._read(line, 1)
        node = self._nodes[source - 1] if source else None
        if not isinstance(node, Weighted) or not node.activation.is_linear:
            raise ModelError(f"{line.where}: only behind a layer with weights is it supported")
        if source in self._shared:
            raise ModelError(f"{line.where}: another layer reads the same blob before it")
        return source, node

    def _fold(self, value: int, node: Weighted, activation: Activation) -> int:
        self._nodes[value - 1] = replace(node, activation=activation)
        return value


def _side(line: Line) -> int:
    """Taps in each direction."""
    side = _pair(line, 1, 11, "taps", None, least=1)
    if _pair(line, 2, 12, "dilation", 1) != 1:
        raise ModelError(f"{line.where}: key 2 (dilation): only 1 is supported")
    return side


def _pair(
    line: Line, first: int, second: int, word: str, default: int | None, least: int = 0
) -> int:
    """A number for columns, which serves for rows too unless those have their own."""
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


_KINDS: dict[str, Callable[[_Graph, Line], _Blob]] = {
    "Input": _Graph.input,
    "MemoryData": _Graph.constant,
    "Split": _Graph.split,
    "Convolution": _Graph.convolution,
    "Deconvolution": _Graph.deconvolution,
    "InnerProduct": _Graph.inner_product,
    "Pooling": _Graph.pooling,
    "Scale": _Graph.scale,
    "BinaryOp": _Graph.binary_operation,
    "Eltwise": _Graph.elementwise,
    "Concat": _Graph.concatenate,
    "Crop": _Graph.crop,
    "PixelShuffle": _Graph.shuffle,
    "Reorg": _Graph.unshuffle,
    "Interp": _Graph.interpolate,
    "ReLU": _Graph.rectify,
    "PReLU": _Graph.rectify_planes,
    "Sigmoid": _Graph.sigmoid,
    "Swish": _Graph.swish,
}
