"""Which function adds each operator of ONNX to the graph."""

from __future__ import annotations

from collections.abc import Callable

from waifu2x.networks.readers.onnx.arithmetic import activation, arithmetic, prelu
from waifu2x.networks.readers.onnx.call import NodeCall
from waifu2x.networks.readers.onnx.layers import (
    batch_normalization,
    convolution,
    max_pool,
    mean,
    transposed_convolution,
)
from waifu2x.networks.readers.onnx.norms import (
    group_normalization,
    instance_normalization,
    layer_normalization,
    power,
    root,
)
from waifu2x.networks.readers.onnx.places import concatenate, cut, pad, scatter, split
from waifu2x.networks.readers.onnx.resizing import (
    depth_to_space,
    expand,
    reshape,
    resize,
    space_to_depth,
    squeeze,
    tile,
    transpose,
)
from waifu2x.networks.readers.onnx.tensors import FLOATS
from waifu2x.networks.readers.onnx.values import Value


def identity(call: NodeCall) -> Value:
    """What changes nothing: Identity, Dropout, Cast to another kind of fractions."""
    if call.node.op == "Cast" and call.node.get("to", 1) not in FLOATS:
        raise call.node.refused("makes whole numbers of a map: not supported")
    found = call.optional(0)
    if found is None:
        raise call.node.refused("damaged: reads nothing")
    return found


KINDS: dict[str, Callable[[NodeCall], Value | list[Value]]] = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    **dict.fromkeys(
        (
            *("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Exp", "Erf", "Neg"),
            *("Mish", "Gelu", "Clip", "HardSigmoid", "HardSwish"),
        ),
        activation,
    ),
    "PRelu": prelu,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), arithmetic),
    "Concat": concatenate,
    "Split": split,
    "Slice": cut,
    "Pad": pad,
    "ScatterND": scatter,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Resize": resize,
    "Upsample": resize,
    "MaxPool": max_pool,
    "GlobalAveragePool": mean,
    "ReduceMean": mean,
    "BatchNormalization": batch_normalization,
    "LayerNormalization": layer_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    **dict.fromkeys(("Sqrt", "Reciprocal"), root),
    "Pow": power,
    "Reshape": reshape,
    "Expand": expand,
    "Tile": tile,
    "Transpose": transpose,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), squeeze),
    **dict.fromkeys(("Identity", "Dropout", "Cast"), identity),
}
"""The function of each operator that reads a map."""
