"""The waifu2x JSON format: one object per layer with weights, in the order in which they run.

Reads what the original waifu2x, its converters and its older relatives write, plain or gzipped, and
writes the newer form. Everything that is read is checked, and every complaint names file, layer
and field. Parsed weights are kept in the cache: a model is megabytes of text.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x import cache
from waifu2x.errors import ModelError
from waifu2x.files import reason
from waifu2x.model import Convolution, Model

SUFFIXES = (".json", ".json.gz")
SLOPE = 0.1
"""Of the leaky ReLU behind every layer but the last."""

_CONVOLUTIONS = (
    "nn.SpatialConvolutionMM",
    "nn.SpatialConvolution",
    "cudnn.SpatialConvolution",
    "nn.SpatialDilatedConvolution",
    "cudnn.SpatialDilatedConvolution",
)
_STACK = re.compile(r"vgg_\d+")
"""Architectures that are nothing but 3x3 convolutions one after the other."""
_CACHE_KIND = "weights"
_CACHE_FORMAT = "1"

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weights (out_planes, in_planes, kH, kW) and biases (out_planes,)."""


def read_model(path: Path) -> Model:
    """The network in a .json or .json.gz file.

    Raises ModelError if the file cannot be read, is damaged, or holds something other than a stack
    of 3x3 convolutions whose planes chain.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot read the model: {reason(error)}") from error
    key = cache.digest(_CACHE_FORMAT, raw)
    layers = _from_cache(key)
    if layers is None:
        layers = parse_layers(raw, str(path))
        cache.store(_CACHE_KIND, key, _to_binary(layers))
    return stack(str(path), layers)


def stack(name: str, layers: Sequence[Layer]) -> Model:
    """Layers one after the other, leaky ReLU behind each but the last."""
    last = len(layers) - 1
    return Model(
        name,
        tuple(
            Convolution(weight, bias, SLOPE if index < last else 1.0)
            for index, (weight, bias) in enumerate(layers)
        ),
    )


def parse_layers(raw: bytes, name: str) -> list[Layer]:
    """The layers of a model file's content; `name` stands for the file in messages.

    Raises ModelError.
    """
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise ModelError(f"{name}: damaged gzip data: {error}") from error
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
        weight, bias = _layer(entry, where)
        if layers and weight.shape[1] != layers[-1][0].shape[0]:
            raise ModelError(
                f"{where}: weight reads {weight.shape[1]} planes,"
                f" but layer {number - 1} makes {layers[-1][0].shape[0]}"
            )
        layers.append((weight, bias))
    if layers[0][0].shape[1] != layers[-1][0].shape[0]:
        raise ModelError(
            f"{name}: layer {len(layers)}: weight makes {layers[-1][0].shape[0]} planes,"
            f" but layer 1 reads {layers[0][0].shape[1]}: a picture must stay a picture"
        )
    _check_config(document[0].get("model_config"), layers, f"{name}: layer 1")
    return layers


def dump_layers(layers: Sequence[Layer]) -> bytes:
    """The JSON of a vgg_7-like stack, every number the shortest decimal of its float32."""
    objects = []
    for index, (weight, bias) in enumerate(layers):
        out_planes, in_planes, height, width = weight.shape
        entry: dict[str, Any] = {
            "class_name": _CONVOLUTIONS[0],
            "kW": width,
            "kH": height,
            "dW": 1,
            "dH": 1,
            "padW": 0,
            "padH": 0,
            "nInputPlane": in_planes,
            "nOutputPlane": out_planes,
            "bias": _shortest(bias),
            "weight": _shortest(weight),
        }
        if index == 0:
            entry["model_config"] = {
                "arch_name": f"vgg_{len(layers)}",
                "channels": in_planes,
                "offset": len(layers),
                "scale_factor": 1,
            }
        objects.append(json.dumps(entry, separators=(",", ":")))
    return ("[" + ",\n".join(objects) + "]\n").encode()


def _layer(entry: dict[str, Any], where: str) -> Layer:
    class_name = entry.get("class_name", _CONVOLUTIONS[0])
    if class_name not in _CONVOLUTIONS:
        raise ModelError(
            f"{where}: class_name {class_name!r} is not supported: only 3x3 convolutions"
        )
    weight = _numbers(entry, "weight", 4, where)
    bias = _numbers(entry, "bias", 1, where)
    out_planes, in_planes, height, width = weight.shape
    if (height, width) != (3, 3):
        raise ModelError(f"{where}: weight has {width}x{height} taps, but only 3x3 is supported")
    if bias.shape != (out_planes,):
        raise ModelError(f"{where}: bias has {bias.size} values for {out_planes} planes")
    expected = {
        "nInputPlane": in_planes,
        "nOutputPlane": out_planes,
        "kW": 3,
        "kH": 3,
        "dW": 1,
        "dH": 1,
        "padW": 0,
        "padH": 0,
        "dilationW": 1,
        "dilationH": 1,
    }
    for field, value in expected.items():
        if entry.get(field, value) != value:
            raise ModelError(f"{where}: {field} is {entry[field]!r}, but expected {value}")
    return weight, bias


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


def _check_config(config: Any, layers: Sequence[Layer], where: str) -> None:
    if config is None:
        return
    if not isinstance(config, dict):
        raise ModelError(f"{where}: model_config: expected an object, but got {_kind(config)}")
    name = config.get("arch_name", f"vgg_{len(layers)}")
    if not _STACK.fullmatch(str(name)):
        raise ModelError(
            f"{where}: model_config: architecture {name!r} is not supported: only vgg_7"
        )
    expected = {"channels": layers[0][0].shape[1], "offset": len(layers), "scale_factor": 1}
    for field, value in expected.items():
        if config.get(field, value) != value:
            raise ModelError(
                f"{where}: model_config: {field} is {config[field]!r}, but expected {value}"
            )


def _shortest(values: NDArray[np.float32]) -> Any:
    """Nested lists of floats that print as the shortest decimals of the float32 values."""
    flat = [float(str(value)) for value in values.ravel()]
    return np.array(flat).reshape(values.shape).tolist()


def _kind(value: Any) -> str:
    if isinstance(value, dict | list | str):
        return {dict: "an object", list: "a list", str: "a string"}[type(value)]
    return repr(value)


def _to_binary(layers: Sequence[Layer]) -> bytes:
    stream = io.BytesIO()
    arrays: dict[str, Any] = {}
    for index, (weight, bias) in enumerate(layers):
        arrays |= {f"weight{index}": weight, f"bias{index}": bias}
    np.savez(stream, **arrays)
    return stream.getvalue()


def _from_cache(key: str) -> list[Layer] | None:
    stored = cache.load(_CACHE_KIND, key)
    if stored is None:
        return None
    with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
        return [
            (arrays[f"weight{index}"], arrays[f"bias{index}"])
            for index in range(len(arrays.files) // 2)
        ]
