"""Layers with weights, batch norms, and means."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from waifu2x.networks.activations import leaky
from waifu2x.networks.nodes import MaxPool
from waifu2x.networks.readers.onnx.call import Floats, NodeCall
from waifu2x.networks.readers.onnx.folding import axes_of
from waifu2x.networks.readers.onnx.norms import mean_of_planes
from waifu2x.networks.readers.onnx.values import MapValue, Value


def convolution(call: NodeCall) -> Value:
    """Adds Conv, of any groups, with equal padding on each side."""
    found, node, graph = call.map(), call.node, call.graph
    weight, stride, padding = _kernel(call)
    groups = node.get("group", 1)
    if not 1 <= groups <= len(weight):
        raise node.refused(f"damaged: {groups} groups of {len(weight)} planes")
    # Groups of few planes become one weight of all planes.
    graph.budget.take_bytes(4 * weight.size * (groups - 1))
    bias = _bias(call, len(weight))
    if graph.is_vector(found.value):
        if weight.shape[2:] != (1, 1) or stride != 1 or padding or groups != 1:
            raise node.refused("a convolution of a vector: not supported")
        made = graph.dense(graph.plain(found), weight[:, :, 0, 0], bias)
        return MapValue(made, ((1, 1, 1), (1, 1, 1)))
    padding += found.pad
    if padding:
        call.up_to_its_edges(found)
    source = graph.plain(replace(found, pad=0))
    made = graph.convolution(source, weight, bias, stride=stride, padding=padding, groups=groups)
    size = weight.shape[-1] - 2 * (padding - found.pad)
    return found.made(made, lambda length: (length - size) // stride + 1)


def transposed_convolution(call: NodeCall) -> Value:
    """Adds ConvTranspose, of one group."""
    found, node = call.map(), call.node
    weight, stride, crop = _kernel(call)
    if node.get("group", 1) != 1:
        raise node.refused(f"{node.get('group', 1)} groups: not supported")
    if any(node.get("output_padding", ())) or node.get("output_shape", ()):
        raise node.refused("output_padding: not supported")
    weight = np.ascontiguousarray(weight.swapaxes(0, 1))
    bias, taps = _bias(call, len(weight)), weight.shape[-1]
    if taps > stride:
        call.up_to_its_edges(found)
    source = call.graph.plain(found)
    made = call.graph.transposed(source, weight, bias, stride=stride, crop=crop)
    return found.made(made, lambda length: (length - 1) * stride + taps - 2 * crop)


def _bias(call: NodeCall, planes: int) -> Floats:
    bias = call.array(2)
    return np.zeros(planes, np.float32) if bias is None else bias.reshape(-1)


def _kernel(call: NodeCall) -> tuple[Floats, int, int]:
    """Returns weights, stride and padding of a convolution that is the same in both directions."""
    node, weight = call.node, call.array(1)
    if weight is None or weight.ndim != 4:
        raise node.refused("not a convolution of pictures")
    if set(node.get("dilations", (1,))) != {1}:
        raise node.refused("dilations: not supported")
    strides = set(node.get("strides", (1,)))
    pads = set(node.get("pads", (0,)))
    taps = weight.shape[-1]
    match node.get("auto_pad", "NOTSET"):
        case "VALID":
            pads = {0}
        case "SAME_UPPER" | "SAME_LOWER" if strides == {1} and taps % 2:
            pads = {taps // 2}
        case "NOTSET":
            pass
        case other:
            raise node.refused(f"auto_pad {other[:20]!r}: not supported")
    if len(strides) != 1 or len(pads) != 1 or min(*strides, *pads) < 0:
        raise node.refused("different strides, or different pads, by direction: not supported")
    return weight, strides.pop(), pads.pop()


def max_pool(call: NodeCall) -> Value:
    """Adds MaxPool, the same in both directions, without pads."""
    found, node, graph = call.map(), call.node, call.graph
    kernels, strides = set(node.get("kernel_shape", ())), set(node.get("strides", (1,)))
    plain = (
        node.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and not any(node.get("pads", ()))
        and not node.get("ceil_mode", 0)
        and set(node.get("dilations", (1,))) == {1}
    )
    if not plain or len(kernels) != 1 or len(strides) != 1:
        raise node.refused("other than whole kernels of one side, without pads: not supported")
    kernel, stride = kernels.pop(), strides.pop()
    made = graph.append(MaxPool(call.graph.plain(call.up_to_its_edges(found)), kernel, stride))
    return found.made(made, lambda length: max((length - kernel) // stride + 1, 1))


def mean(call: NodeCall) -> Value:
    """Adds GlobalAveragePool, and ReduceMean over rows and columns or, in a norm, planes."""
    node, graph = call.node, call.graph
    if node.op == "ReduceMean":
        axes = axes_of(node, call.whole(1)[0]) or ()
        if len(axes) == 1 and node.get("keepdims", 1):
            return mean_of_planes(call, axes[0])
        if sorted(axis % 4 for axis in axes) != [2, 3] or not node.get("keepdims", 1):
            raise node.refused(f"a mean over the axes {tuple(axes)[:4]}: not supported")
    found = call.up_to_its_edges(call.map())
    return MapValue(graph.mean(graph.plain(found)), ((1, 1, 1), (1, 1, 1)))


def batch_normalization(call: NodeCall) -> Value:
    """Adds BatchNormalization as it is after training: factors and shifts."""
    found = call.map()
    planes = call.graph.planes(found.value)
    arrays = [call.array(place) for place in range(1, 5)]
    if any(each is None or each.shape != (planes,) for each in arrays):
        raise call.node.refused(f"damaged: expected four numbers for each of {planes} planes")
    scale, shift, middle, variance = (cast(Floats, each).astype(np.float64) for each in arrays)
    spread = variance + call.node.get("epsilon", 1e-5)
    if (spread <= 0).any():
        raise call.node.refused("damaged: a variance below 0")
    factors = scale / np.sqrt(spread)
    shifts = shift - middle * factors
    value = call.graph.scaled(
        call.graph.plain(found),
        *(factors.astype(np.float32), shifts.astype(np.float32)),
        leaky(1.0, planes),
    )
    return call.graph.like(found, value)
