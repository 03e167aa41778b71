"""ONNX files: a graph of operators, each read into the nodes that compute the same.

What depends on the picture's size alone is computed for three sizes: what changes at the odd one is
a padding to a multiple, and all else must grow with the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.demand import MOST_FRAMES
from waifu2x.networks.expressions import Arithmetic, Input, Number
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import InterpolateTo
from waifu2x.networks.readers.limits import MAX_TENSOR_BYTES, ModelBudget, shown
from waifu2x.networks.readers.onnx import arithmetic, layers, norms, places, resizing, views
from waifu2x.networks.readers.onnx.call import NodeCall
from waifu2x.networks.readers.onnx.folding import folded
from waifu2x.networks.readers.onnx.graph import OnnxGraph
from waifu2x.networks.readers.onnx.messages import OnnxFile, OnnxNode, ValueInfo, parse_file
from waifu2x.networks.readers.onnx.tensors import FLOATS
from waifu2x.networks.readers.onnx.values import (
    EVEN_PICTURES,
    NOTHING,
    PICTURES,
    Constant,
    DividedMap,
    MapValue,
    Sizes,
    Value,
    map_size,
)


def _identity(call: NodeCall) -> Value:
    """Passes a map on: Identity, Dropout, Cast to another kind of fractions."""
    if call.node.op == "Cast" and call.node.get("to", 1) not in FLOATS:
        raise call.node.refused("it makes whole numbers of a map: not supported")
    found = call.optional(0)
    if found is None:
        raise call.node.refused("damaged: it reads nothing")
    return found


_KINDS: dict[str, Callable[[NodeCall], Value | list[Value]]] = {
    "Conv": layers.convolution,
    "ConvTranspose": layers.transposed_convolution,
    **dict.fromkeys(
        (
            *("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Exp", "Erf", "Neg"),
            *("Mish", "Gelu", "Clip", "HardSigmoid", "HardSwish"),
        ),
        arithmetic.activation,
    ),
    "PRelu": arithmetic.prelu,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), arithmetic.arithmetic),
    "Concat": places.concatenate,
    "Split": places.split,
    "Slice": places.cut,
    "Pad": places.pad,
    "ScatterND": places.scatter,
    "DepthToSpace": resizing.depth_to_space,
    "SpaceToDepth": resizing.space_to_depth,
    "Resize": resizing.resize,
    "Upsample": resizing.resize,
    "MaxPool": layers.max_pool,
    "GlobalAveragePool": layers.mean,
    "ReduceMean": layers.mean,
    "BatchNormalization": layers.batch_normalization,
    "LayerNormalization": norms.layer_normalization,
    "GroupNormalization": norms.group_normalization,
    "InstanceNormalization": norms.instance_normalization,
    **dict.fromkeys(("Sqrt", "Reciprocal"), norms.root),
    "Pow": norms.power,
    "Reshape": resizing.reshape,
    "Expand": resizing.expand,
    "Tile": resizing.tile,
    "Transpose": resizing.transpose,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), resizing.squeeze),
    **dict.fromkeys(("Identity", "Dropout", "Cast"), _identity),
}
"""The function of each operator that reads a map."""
_OF_FRAMES = range(9, 3 * MOST_FRAMES + 1, 6)
"""Planes of three, five and more frames of a film, the earliest first."""
_LEAST_MADE = 64 << 20
"""Bytes of arrays that any file may ask for."""


def parse(content: bytes, name: str) -> Model:
    """Returns the network in the bytes of an ONNX file; `name` stands for it in messages.

    Raises ModelError, which names operator and node, for what a Model cannot express.
    """
    file = parse_file(content, name)
    # For what is made of the file's arrays, and for layers that share them.
    most = min(MAX_TENSOR_BYTES // 2, _LEAST_MADE + 4 * len(content))
    walk = _Walk(file, ModelBudget(name, size=most), PICTURES)
    try:
        return walk.model()
    except ModelError as error:
        if walk.makes_up:  # the error of other sizes would hide this one
            raise
        again = _Walk(file, ModelBudget(name, size=most), EVEN_PICTURES)
        try:
            return again.model()
        except ModelError as other:
            # The error of the walk that came further.
            raise (other if again.nodes_read > walk.nodes_read else error) from None


class _Walk:
    """One walk over the nodes of a file."""

    def __init__(
        self, file: OnnxFile, budget: ModelBudget, pictures: Sequence[tuple[int, int]]
    ) -> None:
        self._file, self._name = file, budget.name
        name = budget.name
        if len(file.inputs) != 1 or len(file.outputs) != 1:
            count = f"{len(file.inputs)} inputs and {len(file.outputs)} outputs"
            raise ModelError(f"{name}: {count}, but expected a picture and its result")
        (entry,) = file.inputs
        planes, is_last = self._planes(entry)
        self.nodes_read = 0
        self._budget = budget
        self._graph = graph = OnnxGraph(name, planes, pictures, budget)
        picture = MapValue(0, graph.size)
        self._values: dict[str, Value] = {entry.name: picture}
        if is_last:
            view = views.view_of(graph, picture)
            self._values[entry.name] = views.transposed(view, (0, 2, 3, 1)) or picture

    @property
    def makes_up(self) -> bool:
        """Returns whether the file itself makes pictures up to a multiple, as far as it was
        read."""
        return self._graph.edge is not None and self._graph.edge.multiple > 1

    def _planes(self, entry: ValueInfo) -> tuple[int, bool]:
        """Returns the planes of the picture, and whether they are its last axis."""
        if entry.kind and entry.kind not in FLOATS:
            raise ModelError(f"{self._name}: it takes whole numbers: not supported")
        if len(entry.dims) != 4 or entry.dims[0] not in (None, 1):
            raise ModelError(f"{self._name}: it takes something other than one picture")
        for axis in (1, 3):
            planes = entry.dims[axis]
            if planes in (1, 3):
                return planes, axis == 3
        planes = entry.dims[1]  # the last may as well be columns
        if planes is not None and planes in _OF_FRAMES:
            return planes, False
        raise ModelError(
            f"{self._name}: it takes a picture of {entry.dims[1] or 'any number of'} planes"
        )

    def model(self) -> Model:
        needed = self._needed()
        for node in self._file.nodes:
            if any(each in needed for each in node.outputs if each):
                self._add(node)
                self.nodes_read += 1
        found = self._values.get(self._file.outputs[0].name)
        if isinstance(found, DividedMap):
            found = self._result_of_view(found)
        if not isinstance(found, MapValue):
            raise ModelError(f"{self._name}: its result is no picture")
        return self._finished(found)

    def _needed(self) -> set[str]:
        needed = {self._file.outputs[0].name}
        for node in reversed(self._file.nodes):
            if not needed.isdisjoint(each for each in node.outputs if each):
                needed.update(each for each in node.inputs if each)
        return needed

    def _add(self, node: OnnxNode) -> None:
        self._graph.begin(node)
        inputs = [self._value(each, node) for each in node.inputs]
        if node.op == "Shape":
            made: list[Value] = [self._shape(node, inputs)]
        elif all(each is None or isinstance(each, Constant | Sizes) for each in inputs):
            made = self._folded(node, inputs)
        elif node.op in _KINDS:
            found = _KINDS[node.op](NodeCall(self._graph, node, inputs))
            made = found if isinstance(found, list) else [found]
        else:
            raise node.refused("not supported")
        for name, value in zip(node.outputs, made, strict=False):
            if name in self._values or name in self._file.weights:
                raise node.refused(f"damaged: it makes {shown(name)} once more")
            self._values[name] = value
            if isinstance(value, MapValue):
                self._graph.note(value)

    def _value(self, name: str, node: OnnxNode) -> Value | None:
        if not name:
            return None
        if name not in self._values:
            if name not in self._file.weights:
                raise node.refused(
                    f"damaged: it reads {shown(name)}, which no node before it makes"
                )
            self._values[name] = Constant(self._file.weights[name].read())
        return self._values[name]

    def _shape(self, node: OnnxNode, inputs: Sequence[Value | None]) -> Value:
        found = inputs[0] if inputs else None
        if isinstance(found, Constant):
            return Constant(np.array(found.array.shape, np.int64))
        if isinstance(found, MapValue):
            planes = self._graph.planes(found.value)
            sizes = zip(*found.shown, strict=True)
            shapes: list[tuple[int, ...]] = [(1, planes, *size) for size in sizes]
        elif isinstance(found, DividedMap):
            shapes = [found.shape(picture) for picture in range(3)]
        else:
            raise node.refused("the shape of a shape: not supported")
        begin, end = node.get("start", 0), node.get("end", 1 << 31)
        return _sizes([np.array(shape[begin:end], np.int64) for shape in shapes], node)

    def _folded(self, node: OnnxNode, inputs: Sequence[Value | None]) -> list[Value]:
        def computed(picture: int) -> list[NDArray[Any]]:
            arrays = [
                each.of(picture) if isinstance(each, Constant | Sizes) else None for each in inputs
            ]
            return folded(node, arrays, self._budget)

        if not any(isinstance(each, Sizes) for each in inputs):
            return [Constant(each) for each in computed(0)]
        by_picture = map(computed, range(3))
        return [_sizes(list(each), node) for each in zip(*by_picture, strict=True)]

    def _result_of_view(self, view: DividedMap) -> MapValue | None:
        """Returns the result of a view, whose last axis may be the planes."""
        turned = views.transposed(view, (0, 3, 1, 2)) if len(view.dims) == 4 else None
        for each in (view, turned):
            found = each and views.map_of(self._graph, each)
            if found:
                return found
        return None

    def _finished(self, found: MapValue) -> Model:
        graph, name = self._graph, self._name
        found = graph.on_the_padded(_without_clip(found))
        scale = found.shown[0][0] // graph.size[0][0]
        if found.shown != map_size([scale * n for n in each] for each in graph.size):
            raise ModelError(f"{name}: its result's size does not follow from the picture's")
        result = graph.plain(replace(found, is_trimmed=False))
        net = graph.tidied(result)
        edge = graph.edge
        planes = graph.planes(0)
        frames = planes // 3 if planes in _OF_FRAMES else 1
        border: Border = edge.border if edge else "reflect"
        model = net.model(border, same_planes=frames == 1, frames=frames)
        if edge is None:
            stretches = any(isinstance(node, InterpolateTo) for node in model.nodes)
            if stretches and model.multiple > 1:  # padding would change all of the result
                raise ModelError(
                    f"{name}: it enlarges a reduced map that small pictures have nothing left for:"
                    " not supported"
                )
            return model
        # A file may take pictures of some multiple alone, and pad them by no more than a margin.
        multiple = edge.multiple if edge.multiple > 1 else model.multiple
        if model.padding != edge.margin or multiple % model.multiple:
            raise ModelError(f"{name}: it pads the picture by other than what it loses")
        return Model(
            *(name, planes, model.nodes, model.padding, edge.border, multiple), frames=frames
        )


def _sizes(arrays: Sequence[NDArray[Any]], node: OnnxNode) -> Value:
    """Returns numbers for each of the three pictures, or a constant if they are equal."""
    first, second, third = arrays
    if not first.shape == second.shape == third.shape:
        raise node.refused("numbers whose count depends on the picture's size: not supported")
    if all(np.array_equal(first, each) for each in arrays):
        return Constant(first)
    return Sizes((first, second, third))


def _without_clip(found: MapValue) -> MapValue:
    """Returns a result without bounds of 0 and 1, which all results have."""
    function = found.pending.function
    while isinstance(function, Arithmetic):
        bound = {"min": 1.0, "max": 0.0}.get(function.operator)
        if bound is None or function.right != Number(bound):
            break
        function = function.left
    if function is found.pending.function:
        return found
    pending = NOTHING if function == Input() else replace(found.pending, function=function)
    return replace(found, pending=pending)
