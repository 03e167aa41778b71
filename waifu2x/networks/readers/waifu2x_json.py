"""The waifu2x JSON format: one object per layer with weights, in the order in which they run.

Reads what the original waifu2x, its converters and its older relatives write, plain or gzipped, and
writes the newer form. Everything that is read is checked, and every complaint names file, layer
and field. Parsed weights are kept in the cache: a model is megabytes of text.
"""

from __future__ import annotations

import json
import math
import reprlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.digests import file_states, known_content, note_content
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution, TransposedConvolution
from waifu2x.networks.readers.architectures import Kind, Layer, build
from waifu2x.networks.readers.limits import ModelBudget, gunzip, read_file
from waifu2x.system import cache

_CONVOLUTION = "nn.SpatialConvolutionMM"
_TRANSPOSED = "nn.SpatialFullConvolution"
_LINEAR = "nn.Linear"
_CLASSES: dict[str, Kind] = {
    _CONVOLUTION: "convolution",
    "nn.SpatialConvolution": "convolution",
    "cudnn.SpatialConvolution": "convolution",
    "nn.SpatialDilatedConvolution": "convolution",
    "cudnn.SpatialDilatedConvolution": "convolution",
    _TRANSPOSED: "transposed",
    "cudnn.SpatialFullConvolution": "transposed",
    _LINEAR: "convolution",
}
_CACHE_KIND = "weights"
_CACHE_FORMAT = "3"
_ALIGNMENT = 8
_MAX_LISTS = 2_000_000
_MAX_NUMBERS = 8_000_000
"""Lists and numbers of one file: those of 64 MiB, at the length of networks' numbers."""


class NetworkWeights(NamedTuple):
    """The layers with weights of a file, and the name of its architecture."""

    architecture: str
    layers: list[Layer]


def read_model(path: Path) -> Model:
    """Returns the network in a .json or .json.gz file.

    Raises ModelError if the file cannot be read, is damaged, or holds other layers than its
    architecture has.
    """
    states, known = file_states([path]), known_content(path)
    kept = _from_cache(known) if known else None
    if kept is not None:
        return build(str(path), *kept)
    raw = read_file(path)
    content = note_content(states, raw)
    kept = _from_cache(content)
    if kept is not None:
        return build(str(path), *kept)
    weights, model = parse(raw, str(path))
    cache.store(_CACHE_KIND, _cache_key(content), _to_binary(weights))
    return model


def parse(raw: bytes, name: str) -> tuple[NetworkWeights, Model]:
    """Returns the checked content of a model file, and its network.

    `name` stands for the file in messages. Raises ModelError.
    """
    if raw[:2] == b"\x1f\x8b":
        raw = gunzip(raw, name)
    # Each list and each number takes up to a hundred bytes, however few it is written in.
    ModelBudget(name, entries=_MAX_LISTS).take_entries(raw.count(b"[") + raw.count(b"{"))
    ModelBudget(name, entries=_MAX_NUMBERS).take_entries(raw.count(b","))
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name}: not valid JSON, or cut off: {error}") from error
    if not isinstance(document, list) or not document:
        raise ModelError(f"{name}: expected a list of layers, as waifu2x writes it")
    layers: list[Layer] = []
    for number, entry in enumerate(document, 1):
        where = f"{name}: layer {number}"
        if not isinstance(entry, dict):
            raise ModelError(f"{where}: expected an object, but got {_kind(entry)}")
        layers.append(_layer(entry, where))
    config = document[0].get("model_config")
    where = f"{name}: layer 1: model_config"
    if not isinstance(config, dict | None):
        raise ModelError(f"{where}: expected an object, but got {_kind(config)}")
    # Files older than model_config hold stacks of convolutions.
    architecture = (config or {}).get("arch_name", f"vgg_{len(layers)}")
    model = build(name, str(architecture), layers)
    _check_config(config or {}, model, where)
    return NetworkWeights(str(architecture), layers), model


def dump(weights: NetworkWeights) -> bytes:
    """Returns the JSON of a network, every number the shortest decimal of its float32."""
    model = build("the network", *weights)
    objects = []
    for index, layer in enumerate(weights.layers):
        out_planes, in_planes, height, width = layer.weight.shape
        transposed = layer.kind == "transposed"
        node = model.weighted[index][1]
        stride = node.stride if isinstance(node, Convolution | TransposedConvolution) else 1
        padding = node.crop if isinstance(node, TransposedConvolution) else 0
        entry: dict[str, Any] = {
            "class_name": _TRANSPOSED if transposed else _CONVOLUTION,
            "kW": width,
            "kH": height,
            "dW": stride,
            "dH": stride,
            "padW": padding,
            "padH": padding,
            "nInputPlane": in_planes,
            "nOutputPlane": out_planes,
            "bias": _shortest(layer.bias),
            "weight": _shortest(layer.weight.swapaxes(0, 1) if transposed else layer.weight),
        }
        if index == 0:
            entry["model_config"] = {"arch_name": weights.architecture, **_config(model)}
        objects.append(json.dumps(entry, separators=(",", ":")))
    return ("[" + ",\n".join(objects) + "]\n").encode()


def _layer(entry: dict[str, Any], where: str) -> Layer:
    class_name = entry.get("class_name", _CONVOLUTION)
    kind = _CLASSES.get(class_name) if isinstance(class_name, str) else None
    if kind is None:
        raise ModelError(f"{where}: class_name {reprlib.repr(class_name)} is not supported")
    linear = class_name == _LINEAR
    weight = _numbers(entry, "weight", 2 if linear else 4, where)
    bias = _numbers(entry, "bias", 1, where)
    if linear:
        return Layer(kind, weight[:, :, np.newaxis, np.newaxis], bias)
    if kind == "transposed":
        weight = np.ascontiguousarray(weight.swapaxes(0, 1))
    out_planes, in_planes, height, width = weight.shape
    expected = {
        "nInputPlane": in_planes,
        "nOutputPlane": out_planes,
        "kW": width,
        "kH": height,
        "dilationW": 1,
        "dilationH": 1,
        "adjW": 0,
        "adjH": 0,
    }
    for field, value in expected.items():
        if entry.get(field, value) != value:
            raise ModelError(
                f"{where}: {field} is {reprlib.repr(entry[field])}, but expected {value}"
            )
    stride, padding = (_both(entry, field, where) for field in ("d", "pad"))
    return Layer(kind, weight, bias, stride, padding)


def _both(entry: dict[str, Any], field: str, where: str) -> int | None:
    """Returns a number of columns, which is that of rows too; None if the file does not say."""
    wide, high = f"{field}W", f"{field}H"
    value = entry.get(wide, entry.get(high))
    if value is not None and type(value) is not int:
        raise ModelError(f"{where}: {wide} is {reprlib.repr(value)}, but expected a whole number")
    if entry.get(high, value) != value:
        raise ModelError(f"{where}: {high} is {reprlib.repr(entry[high])}, but {wide} is {value}")
    return value


def _numbers(entry: dict[str, Any], field: str, dimensions: int, where: str) -> NDArray[np.float32]:
    if field not in entry:
        raise ModelError(f"{where}: {field} is missing")
    try:
        values = np.asarray(entry[field])
    except ValueError as error:
        raise ModelError(f"{where}: {field} is ragged: its lists differ in length") from error
    if values.ndim != dimensions or not values.size:
        raise ModelError(
            f"{where}: {field} should be nested {dimensions} deep, but got shape {values.shape}"
        )
    if values.dtype.kind not in "iuf":
        raise ModelError(f"{where}: {field} holds something other than numbers")
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ModelError(f"{where}: {field} holds a value that is not a finite float32")
    return narrow


def _config(model: Model) -> dict[str, int]:
    return {
        "channels": model.in_planes,
        "offset": model.offset,
        "scale_factor": model.scale,
    }


def _check_config(config: dict[str, Any], model: Model, where: str) -> None:
    for field, value in _config(model).items():
        if config.get(field, value) != value:
            raise ModelError(
                f"{where}: {field} is {reprlib.repr(config[field])}, but expected {value}"
            )
    if config.get("gcn"):
        raise ModelError(f"{where}: gcn (contrast made even before the network) is not supported")


def _shortest(values: NDArray[np.float32]) -> Any:
    """Returns nested lists of floats that print as the shortest decimals of the float32 values."""
    flat = [float(str(value)) for value in values.ravel()]
    return np.array(flat).reshape(values.shape).tolist()


def _kind(value: Any) -> str:
    if isinstance(value, dict | list | str):
        return {dict: "an object", list: "a list", str: "a string"}[type(value)]
    return reprlib.repr(value)


def _cache_key(content: bytes) -> str:
    return cache.digest(_CACHE_FORMAT, content)


def _to_binary(weights: NetworkWeights) -> bytes:
    """Returns a header in JSON, its length before it, and all numbers."""
    layers = [
        {"kind": layer.kind, "weight": layer.weight.shape, "bias": layer.bias.shape}
        for layer in weights.layers
    ]
    header = json.dumps({"architecture": weights.architecture, "layers": layers}).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    arrays = [array for layer in weights.layers for array in (layer.weight, layer.bias)]
    numbers = [np.ascontiguousarray(array, np.float32).tobytes() for array in arrays]
    return b"".join((len(header).to_bytes(_ALIGNMENT, "little"), header, *numbers))


def _from_cache(content: bytes) -> NetworkWeights | None:
    """Returns the weights in a file whose content has this digest, if they are kept."""
    stored = cache.load(_CACHE_KIND, _cache_key(content))
    if stored is None:
        return None
    size = int.from_bytes(stored[:_ALIGNMENT], "little")
    header = json.loads(stored[_ALIGNMENT : _ALIGNMENT + size])
    numbers = np.frombuffer(stored, np.float32, offset=_ALIGNMENT + size)
    layers = []
    for layer in header["layers"]:
        arrays = []
        for shape in (layer["weight"], layer["bias"]):
            count = math.prod(shape)
            arrays.append(numbers[:count].reshape(shape))
            numbers = numbers[count:]
        layers.append(Layer(layer["kind"], arrays[0], arrays[1]))
    return NetworkWeights(header["architecture"], layers)
