"""The content of an ONNX file: nodes, weights, inputs and outputs."""

from __future__ import annotations

import math
import struct
from typing import overload

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import ModelBudget, shown
from waifu2x.networks.readers.onnx.tensors import StoredTensor, stored_tensor
from waifu2x.networks.readers.onnx.wire import LENGTH, VARINT, Message, signed
from waifu2x.system.lazy_dataclass import dataclass

MOST_NODES = 20_000
MOST_TENSORS = 10_000
MOST_STEPS = 1_000_000
"""Fields of all messages, and numbers that are not raw."""
_MOST_NAMES = 64
"""The most names that a node may read, or make."""
_MOST_FLOATS = 1 << 16
"""Bytes of a list of numbers that is no tensor."""
_DOMAINS = ("", "ai.onnx")

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | StoredTensor


@dataclass(frozen=True)
class OnnxNode:
    """An operator with its inputs and outputs."""

    file: str
    op: str
    name: str
    inputs: tuple[str, ...]
    """Names of values; empty for those that are left out."""
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]

    @property
    def where(self) -> str:
        """Returns the beginning of messages."""
        return f"{self.file}: {self.label}"

    @property
    def label(self) -> str:
        """Returns the node as messages call it."""
        return f"{shown(self.name)} ({shown(self.op)})" if self.name else shown(self.op)

    def refused(self, why: str) -> ModelError:
        """Returns the error for what a Model cannot express."""
        return ModelError(f"{self.where}: {why}")

    @overload
    def get(self, name: str, default: int) -> int: ...
    @overload
    def get(self, name: str, default: float) -> float: ...
    @overload
    def get(self, name: str, default: str) -> str: ...
    @overload
    def get(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]: ...

    def get(self, name: str, default: Attribute) -> Attribute:
        """Returns an attribute of the default's kind; lists are of whole numbers.

        Raises ModelError for another kind.
        """
        found = self.attributes.get(name, default)
        if type(found) is not type(default) or (
            isinstance(found, tuple) and any(isinstance(each, float) for each in found)
        ):
            raise self.refused(f"damaged: its attribute {name} is of another kind")
        if isinstance(found, float) and not (math.isfinite(found) or found == default):
            raise self.refused(f"damaged: its attribute {name} is {found}")
        return found

    def fractions(self, name: str) -> tuple[float, ...]:
        """Returns an attribute that is a list of numbers; empty if it is left out.

        Raises ModelError for another kind.
        """
        found = self.attributes.get(name, ())
        if not isinstance(found, tuple):
            raise self.refused(f"damaged: its attribute {name} is of another kind")
        return found


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of a graph."""

    name: str
    kind: int
    """The kind of its numbers; 0 if the file does not say."""
    dims: tuple[int | None, ...]
    """Its shape; None where that is free."""


@dataclass(frozen=True)
class OnnxFile:
    """The graph of a file."""

    nodes: list[OnnxNode]
    weights: dict[str, StoredTensor]
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    opset: int


def parse_file(content: bytes, name: str) -> OnnxFile:
    """Reads a ModelProto; `name` stands for the file in messages. Raises ModelError."""
    budget = ModelBudget(name, steps=MOST_STEPS)
    message = Message(memoryview(content), budget)
    graphs: list[Message] = []
    opset = 0
    for number, _, field in message.fields():
        match number:
            case 7:
                graphs.append(message.inner(field))
            case 8:
                opset = max(opset, _opset(message.inner(field)))
            case 25:
                raise ModelError(f"{name}: functions of its own are not supported")
    if len(graphs) != 1:
        raise ModelError(f"{name}: not an ONNX file: {len(graphs)} graphs in it")
    nodes: list[OnnxNode] = []
    weights: dict[str, StoredTensor] = {}
    inputs: list[ValueInfo] = []
    outputs: list[ValueInfo] = []
    graph = graphs[0]
    for number, _, field in graph.fields():
        match number:
            case 1:
                if len(nodes) == MOST_NODES:
                    raise ModelError(f"{name}: it has more than {MOST_NODES} nodes")
                nodes.append(_node(graph.inner(field), name))
            case 5:
                if len(weights) == MOST_TENSORS:
                    raise ModelError(f"{name}: it has more than {MOST_TENSORS} tensors")
                tensor = stored_tensor(graph.inner(field))
                if not tensor.name or tensor.name in weights:
                    raise graph.damaged("tensors without names of their own")
                weights[tensor.name] = tensor
            case 11 | 12:
                (inputs if number == 11 else outputs).append(_value_info(graph.inner(field)))
            case 15:
                raise ModelError(f"{name}: sparse tensors are not supported")
    inputs = [each for each in inputs if each.name not in weights]
    return OnnxFile(nodes, weights, inputs, outputs, opset)


def _opset(message: Message) -> int:
    """Returns the version of ONNX's own operators; 0 for others, which may be named unused."""
    domain, version = "", 0
    for number, _, field in message.fields():
        if number == 1:
            domain = message.text(field)
        elif number == 2:
            version = message.number(field)
    return version if domain in _DOMAINS else 0


def _node(message: Message, file: str) -> OnnxNode:
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: list[Message] = []
    op = name = domain = ""
    for number, _, field in message.fields():
        match number:
            case 1:
                inputs.append(message.text(field))
            case 2:
                outputs.append(message.text(field))
            case 3:
                name = message.text(field)
            case 4:
                op = message.text(field)
            case 5:
                attributes.append(message.inner(field))
            case 7:
                domain = message.text(field)
    node = OnnxNode(file, op, name, tuple(inputs), tuple(outputs), {})
    if domain not in _DOMAINS:
        raise node.refused(f"operators of {shown(domain)} are not supported")
    if max(len(inputs), len(outputs), len(attributes)) > _MOST_NAMES:
        raise node.refused("damaged: too many inputs, outputs or attributes")
    for each in attributes:
        key, value = _attribute(each, node)
        node.attributes[key] = value
    return node


def _attribute(message: Message, node: OnnxNode) -> tuple[str, Attribute]:
    key, kind = "", 0
    ints: list[int] = []
    floats: list[float] = []
    found: dict[int, Attribute] = {}
    for number, wire, field in message.fields():
        match number:
            case 1:
                key = message.text(field)
            case 2:
                found[1] = _float(message, field)
            case 3:
                found[2] = message.number(field)
            case 4:
                found[3] = message.text(field)
            case 5:
                found[4] = stored_tensor(message.inner(field))
            case 7:
                inner = message.inner(field).data
                if len(inner) % 4 or len(inner) > _MOST_FLOATS:
                    raise message.damaged("numbers that are cut off, or too many")
                floats += struct.unpack(f"<{len(inner) // 4}f", inner)
            case 8:
                if wire == VARINT:
                    ints.append(message.number(field))
                else:
                    ints += map(signed, message.inner(field).varints())
            case 20:
                kind = message.number(field)
            case 6 | 10 | 11 | 21 | 22 | 23:
                what = f"its attribute {shown(key)}" if key else "an attribute"
                raise node.refused(f"{what} is a graph or the like: not supported")
    found |= {6: tuple(floats), 7: tuple(ints)}
    if kind == 0:  # files older than that field
        kind = next((each for each, value in found.items() if value != ()), 7)
    if kind == 8:  # strings: of no operator that is known
        return key, ""
    if kind not in found:
        raise message.damaged(f"an attribute of kind {kind}")
    return key, found[kind]


def _float(message: Message, field: int | memoryview) -> float:
    inner = message.inner(field).data
    if len(inner) != 4:
        raise message.damaged("a number that is cut off")
    (value,) = struct.unpack("<f", inner)
    return float(value)


def _value_info(message: Message) -> ValueInfo:
    """Reads a ValueInfoProto: TypeProto, its tensor, that one's shape, and each dimension."""
    name, kind = "", 0
    dims: list[int | None] = []
    for number, _, field in message.fields():
        if number == 1:
            name = message.text(field)
        elif number == 2:
            tensor = _only(message.inner(field), 1)
            if tensor is None:
                raise ModelError(f"{message.budget.name}: {shown(name)} is no tensor")
            for part, _, content in tensor.fields():
                if part == 1:
                    kind = tensor.number(content)
                elif part == 2:
                    dims = [_dimension(each) for each in _all(tensor.inner(content), 1)]
    return ValueInfo(name, kind, tuple(dims))


def _dimension(message: Message) -> int | None:
    value = None
    for number, wire, field in message.fields():
        if number == 1 and wire == VARINT:
            value = message.number(field)
    return value if value is not None and value > 0 else None


def _only(message: Message, wanted: int) -> Message | None:
    return next(iter(_all(message, wanted)), None)


def _all(message: Message, wanted: int) -> list[Message]:
    return [
        message.inner(field)
        for number, wire, field in message.fields()
        if number == wanted and wire == LENGTH
    ]
