"""ncnn's networks: a .param file, which is the graph as text, and the .bin file of its weights.

One line of text is one layer: kind, name, numbers of blobs in and out, their names, and key=value
pairs whose meaning depends on the kind. The weights follow one another in the order of the lines.
Text and weights are held against each other, and nothing is allocated before that. What a Model
cannot express is refused by name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.model import (
    Activation,
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    Enlarge,
    Mean,
    Model,
    Multiply,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
    Weighted,
    fit_padding,
    leaky,
    sources,
)
from waifu2x.readers.limits import read_file

_MAGIC = "7767517"
_MAX_LAYERS = 10_000
_MAX_WORD = 256
_MAX_TEXT = 4 << 20
_FLOAT32 = 0
_FLOAT16 = 0x01306B47
_OTHER_TAGS = {0x000D4B38: "int8", 0x0002C056: "scaled float32"}
_NUMBER = re.compile(r"[+-]?(\d+|(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?)", re.ASCII)
_ARRAY = -23300
"""Key k of an array is written as -23300 - k."""
_REST = -233
"""In sizes: whatever there is. In Scale: the factors are a blob."""

_Number = int | float


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
    lines = _parse_lines(text, name)
    graph = _Graph(lines, _Weights(weights))
    for line in lines:
        graph.add(line)
    return graph.finish(name)


@dataclass
class _Line:
    """One layer, as text."""

    where: str
    """For messages: file, line, kind and name."""
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[int, _Number | list[_Number]]
    """By key; what a reader asks for is taken out, and what is left at the end is refused."""

    def number(self, key: int, word: str, default: _Number | None = None) -> _Number:
        """A value that must be there, or has a default."""
        value = self.values.pop(key, default)
        if value is None:
            raise ModelError(f"{self.where}: key {key} ({word}) is missing")
        if isinstance(value, list):
            raise ModelError(f"{self.where}: key {key} ({word}) is a list, but expected a number")
        return value

    def whole(self, key: int, word: str, default: int | None = None, least: int = 0) -> int:
        """A whole number of at least `least`."""
        value = self.number(key, word, default)
        if not isinstance(value, int) or value < least:
            raise ModelError(
                f"{self.where}: key {key} ({word}) is {value}, but expected at least {least}"
            )
        return value

    def array(self, key: int, word: str) -> list[_Number]:
        """A list, empty if it is absent."""
        value = self.values.pop(key, [])
        if not isinstance(value, list):
            raise ModelError(f"{self.where}: key {key} ({word}) is a number, but expected a list")
        return value

    def expect(self, key: int, word: str, *allowed: _Number, default: _Number = 0) -> None:
        """Refuses whatever else a key says."""
        value = self.values.pop(key, default)
        if value not in allowed:
            raise ModelError(f"{self.where}: key {key} ({word}) is {value}: not supported")

    def finish(self) -> None:
        """Refuses the keys that no one asked for: they may change the result."""
        for key, value in self.values.items():
            raise ModelError(f"{self.where}: key {key} is {value}: not supported")


def _parse_lines(text: bytes, name: str) -> list[_Line]:
    if len(text) > _MAX_TEXT:
        raise ModelError(f"{name}: larger than the {_MAX_TEXT >> 20} MiB that a .param may take")
    try:
        rows = text.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise ModelError(f"{name}: not a .param file of ncnn in text form") from error
    if rows[0].strip() != _MAGIC:
        raise ModelError(f"{name}: line 1: expected {_MAGIC}, as .param files of ncnn begin")
    counts = rows[1].split() if len(rows) > 1 else []
    if len(counts) != 2 or not all(re.fullmatch(r"\d{1,9}", each, re.ASCII) for each in counts):
        raise ModelError(f"{name}: line 2: expected the numbers of layers and of blobs")
    layers, blobs = map(int, counts)
    if not 1 <= layers <= _MAX_LAYERS:
        raise ModelError(f"{name}: line 2: {layers} layers, but expected 1 to {_MAX_LAYERS}")
    lines = [
        _parse_line(row.split(), f"{name}: line {number}")
        for number, row in enumerate(rows[2:], 3)
        if row.strip()
    ]
    if len(lines) != layers:
        raise ModelError(f"{name}: line 2: says {layers} layers, but {len(lines)} follow")
    made = [blob for line in lines for blob in line.outputs]
    if len(made) != blobs:
        raise ModelError(f"{name}: line 2: says {blobs} blobs, but the layers make {len(made)}")
    return lines


def _parse_line(words: list[str], where: str) -> _Line:
    if max(map(len, words)) > _MAX_WORD:
        raise ModelError(f"{where}: a name or number of more than {_MAX_WORD} characters")
    if len(words) < 4 or not all(re.fullmatch(r"\d{1,4}", each, re.ASCII) for each in words[2:4]):
        raise ModelError(f"{where}: expected kind, name and the numbers of blobs in and out")
    where = f"{where} ({words[0]} {words[1]})"
    inputs, outputs = map(int, words[2:4])
    names = words[4 : 4 + inputs + outputs]
    if len(names) < inputs + outputs or any("=" in blob for blob in names):
        raise ModelError(f"{where}: expected the names of {inputs + outputs} blobs")
    values: dict[int, _Number | list[_Number]] = {}
    for pair in words[4 + inputs + outputs :]:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"-?\d{1,5}", key, re.ASCII):
            raise ModelError(f"{where}: {pair!r} is not a key=value pair")
        number = int(key)
        parsed: _Number | list[_Number]
        if number <= _ARRAY:
            number, parsed = _ARRAY - number, _parse_list(value, f"{where}: key {number}")
        else:
            parsed = _parse_number(value, f"{where}: key {number}")
        if number in values:
            raise ModelError(f"{where}: key {number} appears twice")
        values[number] = parsed
    return _Line(where, words[0], tuple(names[:inputs]), tuple(names[inputs:]), values)


def _parse_list(text: str, where: str) -> list[_Number]:
    count, *rest = text.split(",")
    if count != str(len(rest)):
        raise ModelError(f"{where} says {count} numbers, but {len(rest)} follow")
    return [_parse_number(each, where) for each in rest]


def _parse_number(text: str, where: str) -> _Number:
    if len(text) > 30 or not _NUMBER.fullmatch(text):
        raise ModelError(f"{where} is {text[:30]!r}, but expected a number")
    value = float(text)
    if not math.isfinite(value):
        raise ModelError(f"{where} is {text}, which is not finite")
    return int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else value


class _Weights:
    """The .bin file, read from its beginning to its end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._position = 0

    @property
    def left(self) -> int:
        """Bytes that nobody read."""
        return len(self._raw) - self._position

    def tagged(self, count: int, where: str) -> NDArray[np.float32]:
        """Weights, in the precision that the number before them says."""
        tag = int(self._take(1, "<u4", where)[0])
        if tag == _FLOAT16:
            weights = self._take(count, "<f2", where)
            self._take(-count % 2, "<f2", where)
        elif tag == _FLOAT32:
            weights = self._take(count, "<f4", where)
        else:
            word = _OTHER_TAGS.get(tag, f"tag {tag:#010x}")
            raise ModelError(
                f"{where}: its weights in the .bin file are {word}: only fp32 and fp16 can be read"
            )
        return _finite(weights, where)

    def plain(self, count: int, where: str) -> NDArray[np.float32]:
        """Biases or slopes."""
        return _finite(self._take(count, "<f4", where), where)

    def _take(self, count: int, dtype: str, where: str) -> NDArray[np.generic]:
        size = count * np.dtype(dtype).itemsize
        if size > self.left:
            raise ModelError(
                f"{where}: needs {size} bytes of the .bin file, but {self.left} are left in it"
            )
        values = np.frombuffer(self._raw, dtype, count, self._position)
        self._position += size
        return values


def _finite(values: NDArray[np.generic], where: str) -> NDArray[np.float32]:
    numbers = values.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise ModelError(f"{where}: its weights in the .bin file hold a value that is not finite")
    return numbers


@dataclass(frozen=True)
class _Value:
    """What the graph knows of a value while it grows."""

    planes: int | None
    """None: the picture's, before a convolution says."""
    is_vector: bool
    where: str
    """The line that made it."""


class _Graph:
    """The nodes so far."""

    def __init__(self, lines: list[_Line], weights: _Weights) -> None:
        self._weights = weights
        self._nodes: list[Node] = []
        self._values: list[_Value] = []
        self._blobs: dict[str, int] = {}
        self._uses = Counter(blob for line in lines for blob in line.inputs)
        self._shared: set[int] = set()
        """Values that more than one layer reads: no activation can be folded into those."""
        self._crops: list[tuple[int, int, str]] = []
        """Values cropped, values whose size they are cropped to, and lines."""

    def add(self, line: _Line) -> None:
        """One layer more."""
        handle = _KINDS.get(line.kind)
        if handle is None:
            raise ModelError(f"{line.where}: layers of kind {line.kind} are not supported")
        if (not self._values) != (line.kind == "Input"):
            raise ModelError(f"{line.where}: expected one Input, and that first")
        for blob in line.inputs:
            if blob not in self._blobs:
                raise ModelError(f"{line.where}: reads blob {blob}, which no line before makes")
            if self._uses[blob] > 1:
                self._shared.add(self._blobs[blob])
        value = handle(self, line)
        line.finish()
        for blob in line.outputs:
            if blob in self._blobs:
                raise ModelError(f"{line.where}: blob {blob} is made twice")
            self._blobs[blob] = value

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
        model = fit_padding(name, planes, tuple(self._nodes))
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

    def _append(
        self, node: Node, planes: int | None, line: _Line, *, is_vector: bool = False
    ) -> int:
        if len(self._nodes) == _MAX_LAYERS:
            raise ModelError(f"{line.where}: more than {_MAX_LAYERS} nodes")
        self._nodes.append(node)
        self._values.append(_Value(planes, is_vector, line.where))
        return len(self._nodes)

    def _read(self, line: _Line, count: int) -> tuple[int, ...]:
        """The values that a layer of one result reads."""
        if len(line.inputs) != count or len(line.outputs) != 1:
            raise ModelError(
                f"{line.where}: {len(line.inputs)} blobs in and {len(line.outputs)} out,"
                f" but expected {count} and 1"
            )
        return tuple(self._blobs[blob] for blob in line.inputs)

    def _map(self, line: _Line) -> int:
        """The one map that a layer reads."""
        (source,) = self._read(line, 1)
        if self._values[source].is_vector:
            raise ModelError(f"{line.where}: reads a vector, but expected a map")
        return source

    def _planes(self, source: int, line: _Line) -> int:
        planes = self._values[source].planes
        if planes is None:
            raise ModelError(f"{line.where}: the Input does not say its planes: key 2 is missing")
        return planes

    # Each kind of layer: takes its keys, and gives the value that it makes.

    def input(self, line: _Line) -> int:
        if line.inputs or len(line.outputs) != 1:
            raise ModelError(f"{line.where}: expected no blob in and 1 out")
        line.values.pop(0, None)  # the size that the network was converted with
        line.values.pop(1, None)
        planes = line.whole(2, "planes", 0)
        self._values.append(_Value(planes or None, False, line.where))
        return 0

    def split(self, line: _Line) -> int:
        if len(line.inputs) != 1 or not line.outputs:
            raise ModelError(f"{line.where}: expected 1 blob in and some out")
        source = self._blobs[line.inputs[0]]
        if len(line.outputs) > 1:
            self._shared.add(source)
        return source

    def convolution(self, line: _Line) -> int:
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

    def deconvolution(self, line: _Line) -> int:
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

    def inner_product(self, line: _Line) -> int:
        (source,) = self._read(line, 1)
        if not self._values[source].is_vector:
            raise ModelError(f"{line.where}: reads a map: only behind a global mean is supported")
        made = line.whole(0, "planes", least=1)
        line.expect(8, "int8", 0)
        weight, bias, activation = self._weighted(line, source, made, 1, 2)
        node = Dense(source, weight.reshape(made, -1), bias, activation)
        return self._append(node, made, line, is_vector=True)

    def _weighted(
        self, line: _Line, source: int, made: int, side: int, count_key: int
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

    def pooling(self, line: _Line) -> int:
        source = self._map(line)
        line.expect(0, "kind of pooling", 1)
        line.expect(4, "global", 1)
        for key in (1, 2, 11, 12, 3, 13, 14, 15):
            line.values.pop(key, None)  # of no meaning to a global mean
        return self._append(Mean(source), self._planes(source, line), line, is_vector=True)

    def scale(self, line: _Line) -> int:
        first, second = self._read(line, 2)
        line.expect(0, "number of factors", _REST)
        line.expect(1, "bias", 0)
        return self._multiply(first, second, line)

    def _multiply(self, source: int, factors: int, line: _Line) -> int:
        if self._values[source].is_vector or not self._values[factors].is_vector:
            raise ModelError(f"{line.where}: multiplies other than a map by a vector")
        if self._planes(source, line) != self._planes(factors, line):
            raise ModelError(
                f"{line.where}: multiplies {self._values[source].planes} planes"
                f" by {self._values[factors].planes} factors"
            )
        return self._append(Multiply(source, factors), self._values[source].planes, line)

    def binary_operation(self, line: _Line) -> int:
        operation = line.whole(0, "operation", 0)
        line.expect(1, "with a number", 0)
        first, second = self._read(line, 2)
        if operation == 2:
            if self._values[first].is_vector:
                first, second = second, first
            return self._multiply(first, second, line)
        if operation:
            raise ModelError(f"{line.where}: key 0 (operation) is {operation}: not supported")
        return self._add(first, second, 1.0, line)

    def elementwise(self, line: _Line) -> int:
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

    def _add(self, first: int, second: int, factor: float, line: _Line) -> int:
        self._alike([first, second], line)
        node = Add(first, second, factor)
        return self._append(node, self._values[first].planes, line)

    def _alike(self, values: list[int], line: _Line) -> None:
        if any(self._values[value].is_vector for value in values):
            raise ModelError(f"{line.where}: reads a vector, but expected maps")
        planes = [self._planes(value, line) for value in values]
        if line.kind != "Concat" and len(set(planes)) > 1:
            raise ModelError(f"{line.where}: its blobs have {planes[0]} and {planes[1]} planes")

    def concatenate(self, line: _Line) -> int:
        line.expect(0, "axis", 0)
        values = self._read(line, max(len(line.inputs), 1))
        self._alike(list(values), line)
        planes = sum(self._planes(value, line) for value in values)
        return self._append(Concatenate(values), planes, line)

    def crop(self, line: _Line) -> int:
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

    def _equal(self, line: _Line, *pixels: _Number) -> int:
        if not isinstance(pixels[0], int) or pixels[0] < 0 or len(set(pixels)) > 1:
            raise ModelError(f"{line.where}: only as many pixels on each side can be cropped")
        return pixels[0]

    def shuffle(self, line: _Line) -> int:
        source = self._map(line)
        factor = line.whole(0, "factor", 1, least=1)
        line.expect(1, "order of planes", 0)
        planes = self._planes(source, line)
        if planes % factor**2:
            raise ModelError(f"{line.where}: {planes} planes are not a multiple of {factor**2}")
        return self._append(PixelShuffle(source, factor), planes // factor**2, line)

    def unshuffle(self, line: _Line) -> int:
        source = self._map(line)
        factor = line.whole(0, "factor", 1, least=1)
        line.expect(1, "order of planes", 0)
        planes = self._planes(source, line) * factor**2
        return self._append(PixelUnshuffle(source, factor), planes, line)

    def interpolate(self, line: _Line) -> int:
        source = self._map(line)
        line.expect(0, "kind of interpolation", 1)
        high, wide = line.number(1, "factor", 1), line.number(2, "factor", 1)
        if high != wide or high != int(high) or not 1 <= high <= 64:
            raise ModelError(f"{line.where}: keys 1 and 2 (factors) are {high} and {wide}")
        for key in (3, 4):
            line.expect(key, "size of the result", 0)
        line.expect(5, "size of another blob", 0)
        line.expect(6, "aligned corners", 0)
        return self._append(Enlarge(source, int(high)), self._values[source].planes, line)

    # Activations of their own line are folded into the layer before.

    def rectify(self, line: _Line) -> int:
        value, node = self._before(line)
        slope = float(line.number(0, "slope", 0))
        return self._fold(value, node, leaky(slope, len(node.bias)))

    def rectify_planes(self, line: _Line) -> int:
        value, node = self._before(line)
        count = line.whole(0, "number of slopes", least=1)
        if count not in (1, len(node.bias)):
            raise ModelError(
                f"{line.where}: key 0 (number of slopes) is {count}, but expected {len(node.bias)}"
            )
        slopes = np.broadcast_to(self._weights.plain(count, line.where), (len(node.bias),)).copy()
        return self._fold(value, node, Activation("leaky", slopes))

    def sigmoid(self, line: _Line) -> int:
        value, node = self._before(line)
        return self._fold(value, node, replace(leaky(1.0, len(node.bias)), kind="sigmoid"))

    def _before(self, line: _Line) -> tuple[int, Weighted]:
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


def _side(line: _Line) -> int:
    """Taps in each direction."""
    side = _pair(line, 1, 11, "taps", None, least=1)
    if _pair(line, 2, 12, "dilation", 1) != 1:
        raise ModelError(f"{line.where}: key 2 (dilation): only 1 is supported")
    return side


def _pair(
    line: _Line, first: int, second: int, word: str, default: int | None, least: int = 0
) -> int:
    """A number for columns, which serves for rows too unless those have their own."""
    value = line.whole(first, word, default, least)
    line.expect(second, f"{word} of rows", value, default=value)
    return value


def _padding(line: _Line) -> int:
    value = line.whole(4, "padding", 0)
    for key in (14, 15, 16):
        line.expect(key, "padding of another side", value, default=value)
    return value


def _activation(line: _Line, planes: int) -> Activation:
    kind, parameters = line.whole(9, "activation", 0), line.array(10, "activation")
    if kind == 0:
        return leaky(1.0, planes)
    if kind == 1:
        return leaky(0.0, planes)
    if kind == 2 and len(parameters) == 1:
        return leaky(float(parameters[0]), planes)
    if kind == 4:
        return replace(leaky(1.0, planes), kind="sigmoid")
    raise ModelError(f"{line.where}: key 9 (activation) is {kind}: not supported")


_KINDS: dict[str, Callable[[_Graph, _Line], int]] = {
    "Input": _Graph.input,
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
}
