"""The definition of networks, written once more: whole pictures, float64, node by node, nothing
clever."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.helpers.obvious_attention import attention_in_windows, attention_of_planes
from waifu2x.networks import nodes as graph
from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.attention import ChannelAttention, WindowAttention
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import ACTIVATIONS
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import GroupNorm, InterpolateTo, LayerNorm, MaxPool

_PAD_MODES = {"replicate": "edge", "reflect": "reflect", "zero": "constant"}


def random_model(planes: Sequence[int], seed: int, scale: int = 1) -> Model:
    """A stack of convolutions with random weights whose results stay about as large as inputs."""
    rng = np.random.default_rng(seed)
    margin = len(planes) - 1
    padding = math.ceil(margin / scale)
    builder = GraphBuilder("random", planes[0])
    value = builder.enlarge(0, scale) if scale > 1 else 0
    if padding * scale > margin:
        value = builder.crop(value, padding * scale - margin)
    for number, (inputs, outputs) in enumerate(pairwise(planes), 1):
        weight = rng.normal(size=(outputs, inputs, 3, 3)) * np.sqrt(1.5 / (9 * inputs))
        bias = rng.normal(size=outputs) * 0.1
        activation = leaky(0.1 if number < margin else 1.0, outputs)
        arrays = weight.astype(np.float32), bias.astype(np.float32)
        value = builder.convolution(value, *arrays, activation)
    return builder.model()


def run(models: Sequence[Model], pixels: NDArray[Any]) -> NDArray[np.float64]:
    """(H, W, planes) pixels of any dtype through models, values clipped to [0, 1] after each."""
    peak = 1.0 if pixels.dtype.kind == "f" else float(np.iinfo(pixels.dtype).max)
    planes = pixels.astype(np.float64) / peak
    for model in models:
        height, width = planes.shape[:2]
        result = values(model, planes)[-1]
        planes = result[: height * model.scale, : width * model.scale].clip(0.0, 1.0)
    return planes


def run_turned(models: Sequence[Model], pixels: NDArray[Any], tta: int) -> NDArray[np.float64]:
    """`run`, where each model's result is the mean over the picture turned in `tta` ways."""
    ways: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
    for mirror in (lambda a: a, np.fliplr):
        for quarters in range(4):
            forth = partial(lambda a, m, q: np.rot90(m(a), q), m=mirror, q=quarters)
            back = partial(lambda a, m, q: m(np.rot90(a, -q)), m=mirror, q=quarters)
            ways.append((forth, back))
    if tta == 2:
        ways = [ways[0], (lambda a: a.transpose(1, 0, 2),) * 2]
    planes = run([], pixels)
    for model in models:
        made = [back(run([model], forth(planes))) for forth, back in ways[:tta]]
        planes = np.mean(made, axis=0)
    return planes


def values(model: Model, picture: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """All values of a network for a picture (H, W, planes) in [0, 1]: maps and vectors."""
    more = [-size % model.multiple for size in picture.shape[:2]]
    pads = [(model.padding, model.padding + extra) for extra in more]
    mode: Any = _PAD_MODES[model.border]
    return values_of(model.nodes, np.pad(picture, [*pads, (0, 0)], mode=mode))


def values_of(
    nodes: Sequence[graph.Node], picture: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """All values of a graph for a picture that has what is beyond its edges."""
    found = [picture]
    for node in nodes:
        found.append(_made(node, found))
    return found


def _made(node: graph.Node, found: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    match node:
        case graph.Convolution():
            pad = (node.padding, node.padding)
            side = node.weight.shape[-1]
            source = np.pad(found[node.source], [pad, pad, (0, 0)])
            rows, columns = ((size - side) // node.stride + 1 for size in source.shape[:2])
            sums = np.zeros((rows, columns, node.weight.shape[0])) + node.bias.astype(np.float64)
            for y in range(side):
                for x in range(side):
                    taken = source[y :: node.stride, x :: node.stride][:rows, :columns]
                    flat = taken.reshape(rows * columns, -1)
                    tap = node.weight[:, :, y, x].astype(np.float64)
                    sums += (flat @ tap.T).reshape(rows, columns, -1)
            return activate(sums, node.activation)
        case graph.TransposedConvolution():
            source, side, stride = found[node.source], node.weight.shape[-1], node.stride
            rows, columns = ((size - 1) * stride + side for size in source.shape[:2])
            sums = np.zeros((rows, columns, node.weight.shape[0])) + node.bias.astype(np.float64)
            for y in range(side):
                for x in range(side):
                    tap = source @ node.weight[:, :, y, x].astype(np.float64).T
                    bottom, right = y + source.shape[0] * stride, x + source.shape[1] * stride
                    sums[y:bottom:stride, x:right:stride] += tap
            inner = slice(node.crop, -node.crop or None)
            return activate(sums[inner, inner], node.activation)
        case graph.DepthwiseConvolution():
            pad = (node.padding, node.padding)
            side = node.weight.shape[-1]
            source = np.pad(found[node.source], [pad, pad, (0, 0)])
            rows, columns = (size - side + 1 for size in source.shape[:2])
            sums = np.zeros((rows, columns, len(node.bias))) + node.bias.astype(np.float64)
            for y in range(side):
                for x in range(side):
                    sums += source[y : y + rows, x : x + columns] * node.weight[:, 0, y, x]
            return activate(sums, node.activation)
        case graph.Enlarge():
            return found[node.source].repeat(node.factor, 0).repeat(node.factor, 1)
        case graph.PixelShuffle():
            rows, columns, planes = found[node.source].shape
            r = node.factor
            cells = found[node.source].reshape(rows, columns, planes // r**2, r, r)
            return cells.transpose(0, 3, 1, 4, 2).reshape(rows * r, columns * r, planes // r**2)
        case graph.PixelUnshuffle():
            rows, columns, planes = found[node.source].shape
            r = node.factor
            cells = found[node.source].reshape(rows // r, r, columns // r, r, planes)
            return cells.transpose(0, 2, 4, 1, 3).reshape(rows // r, columns // r, planes * r**2)
        case graph.Crop():
            inner = slice(node.pixels, -node.pixels or None)
            return found[node.source][inner, inner]
        case graph.Add():
            return found[node.source] * node.factor + found[node.other]
        case graph.Gate():
            source = found[node.source]
            return np.asarray((source + found[node.other]) * (_sigmoid(source) - 0.5))
        case graph.Interpolate():
            rows = _resized(found[node.source], node.up, node.down)
            return _resized(rows.transpose(1, 0, 2), node.up, node.down).transpose(1, 0, 2)
        case InterpolateTo():
            rows, columns = found[node.like].shape[:2]
            made = _enlarged(found[node.source], rows)
            return _enlarged(made.transpose(1, 0, 2), columns).transpose(1, 0, 2)
        case MaxPool():
            source, k, s = found[node.source], node.kernel, node.stride
            rows, columns = (max((size - k) // s + 1, 1) for size in source.shape[:2])
            made = np.empty((rows, columns, source.shape[2]))
            for y, x in np.ndindex(rows, columns):
                made[y, x] = source[y * s : y * s + k, x * s : x * s + k].max(axis=(0, 1))
            return made
        case graph.Interleave():
            own, n = found[node.source], node.parts
            rows, columns, planes = own.shape
            apart = (n, rows // n, n, columns // n)
            if node.inverse:
                apart = (apart[1], n, apart[3], n)
            return own.reshape(*apart, planes).transpose(1, 0, 3, 2, 4).reshape(own.shape)
        case graph.GridSample():
            return _sampled(node, found[node.source], found[node.offsets])
        case graph.Concatenate():
            return np.concatenate([found[source] for source in node.sources], axis=-1)
        case graph.Slice():
            return found[node.source][..., node.first : node.first + node.planes]
        case LayerNorm():
            own = found[node.source]
            centred = own - own.mean(axis=2, keepdims=True)
            deviation = np.sqrt(np.mean(centred**2, axis=2, keepdims=True) + node.eps)
            return np.asarray(centred / deviation * node.weight + node.bias)
        case GroupNorm():
            own = found[node.source].reshape(*found[node.source].shape[:2], node.groups, -1)
            centred = own - own.mean(axis=(0, 1, 3), keepdims=True)
            deviation = np.sqrt(np.mean(centred**2, axis=(0, 1, 3), keepdims=True) + node.eps)
            normed = (centred / deviation).reshape(found[node.source].shape)
            return np.asarray(normed * node.weight + node.bias)
        case graph.Mean():
            return np.asarray(found[node.source].mean(axis=(0, 1)))
        case graph.Dense():
            return activate(
                node.weight.astype(np.float64) @ found[node.source] + node.bias, node.activation
            )
        case graph.Multiply():
            return found[node.source] * found[node.factors]
        case graph.MultiplyMaps():
            return found[node.source] * found[node.other]
        case ChannelAttention():
            return attention_of_planes(node, *(found[source] for source in node.sources))
        case WindowAttention():
            return attention_in_windows(node, *(found[source] for source in node.sources))
    raise AssertionError(node)


def _sampled(
    node: graph.GridSample, source: NDArray[np.float64], offsets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Each sample is all pixels of the source, weighed by their distance along both axes."""
    rows, columns, planes = source.shape
    each = planes // node.groups
    made = np.empty((rows, columns, node.scale**2 * planes))
    moves = offsets.reshape(rows, columns, node.scale, node.scale, node.groups, 2)
    for y, x, dy, dx, group in np.ndindex(moves.shape[:-1]):
        across, down = moves[y, x, dy, dx, group]
        # In pixels, from the middles of the first row and column.
        row = min(max(y + (dy + 0.5) / node.scale - 0.5 + down, 0), rows - 1)
        column = min(max(x + (dx + 0.5) / node.scale - 0.5 + across, 0), columns - 1)
        by_row = np.maximum(1 - abs(np.arange(rows) - row), 0)
        by_column = np.maximum(1 - abs(np.arange(columns) - column), 0)
        own = slice(group * each, (group + 1) * each)
        first = (dy * node.scale + dx) * planes + group * each
        made[y, x, first : first + each] = np.einsum(
            "y,x,yxc->c", by_row, by_column, source[:, :, own]
        )
    return made


def _resized(source: NDArray[np.float64], up: int, down: int) -> NDArray[np.float64]:
    """Rows by bicubic interpolation: every pixel of the source, weighed by its distance."""
    count = len(source)
    made = np.zeros((count * up // down, *source.shape[1:]))
    for y, row in enumerate(made):
        place = (y + 0.5) * down / up - 0.5
        for near in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            t = abs(place - near)
            if t <= 1:
                weight = 1.25 * t**3 - 2.25 * t**2 + 1
            else:
                weight = -0.75 * t**3 + 3.75 * t**2 - 6 * t + 3
            row += weight * source[min(max(near, 0), count - 1)]
    return made


def _enlarged(source: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """`source` in `rows` rows by bilinear interpolation: between the middles of the source's rows,
    and at its edges the first one and the last."""
    middles = np.arange(len(source)) + 0.5
    places = (np.arange(rows) + 0.5) * len(source) / rows
    flat = source.reshape(len(source), -1)
    columns = [np.interp(places, middles, column) for column in flat.T]
    return np.stack(columns, axis=1).reshape(rows, *source.shape[1:])


def activate(values: NDArray[np.float64], activation: Activation) -> NDArray[np.float64]:
    """An activation over the last axis."""
    (name,) = (name for name, one in ACTIVATIONS.items() if one == activation.function)
    match name:
        case "leaky":
            return np.where(values > 0, values, values * activation.slopes)
        case "sigmoid":
            return _sigmoid(values)
        case "silu":
            return np.asarray(values * _sigmoid(values))
        case "mish":
            return np.asarray(values * np.tanh(np.logaddexp(0, values)))
        case "tanh":
            return 2 * _sigmoid(2 * values) - 1
        case "gelu":
            normal = NormalDist().cdf
            return np.asarray(values * np.vectorize(normal, otypes=[np.float64])(values))
    raise AssertionError(name)


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # of large negative values: the result is 0
        return 1 / (1 + np.exp(-values))


def to_levels(values: NDArray[np.float64], dtype: type) -> NDArray[Any]:
    """Values in [0, 1] as integers of a dtype, rounded half to even."""
    return np.round(values * np.iinfo(dtype).max).astype(dtype)


def psnr(values: NDArray[Any], reference: NDArray[np.float64]) -> float:
    """Peak signal to noise ratio in dB, for values in [0, 1]."""
    error = np.mean((values.astype(np.float64) - reference) ** 2)
    return float("inf") if error == 0 else float(-10 * np.log10(error))
