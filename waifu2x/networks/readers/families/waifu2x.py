"""Real-CUGAN and waifu2x's own networks, where their weights stand under names."""

from __future__ import annotations

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.model import Model
from waifu2x.networks.readers import architectures
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.named_graph import NamedWeights

_U_NETS = (
    *("unet1.conv1.conv.0", "unet1.conv1.conv.2", "unet1.conv1_down"),
    *("unet1.conv2.conv.0", "unet1.conv2.conv.2"),
    *("unet1.conv2.seblock.conv1", "unet1.conv2.seblock.conv2"),
    *("unet1.conv2_up", "unet1.conv3", "unet1.conv_bottom"),
    *("unet2.conv1.conv.0", "unet2.conv1.conv.2", "unet2.conv1_down"),
    *("unet2.conv2.conv.0", "unet2.conv2.conv.2"),
    *("unet2.conv2.seblock.conv1", "unet2.conv2.seblock.conv2", "unet2.conv2_down"),
    *("unet2.conv3.conv.0", "unet2.conv3.conv.2"),
    *("unet2.conv3.seblock.conv1", "unet2.conv3.seblock.conv2", "unet2.conv3_up"),
    *("unet2.conv4.conv.0", "unet2.conv4.conv.2"),
    *("unet2.conv4.seblock.conv1", "unet2.conv4.seblock.conv2", "unet2.conv4_up"),
    *("unet2.conv5", "unet2.conv_bottom"),
)
_TRANSPOSED = ("unet1.conv2_up", "unet2.conv3_up", "unet2.conv4_up")


def u_net(weights: NamedWeights) -> Model:
    """Builds the two U-nets of waifu2x and of Real-CUGAN, told apart by their last taps."""
    bottom = weights.length("unet1.conv_bottom.weight", 2)
    has_last = "conv_final.weight" in weights
    if has_last and weights.length("unet1.conv1.conv.0.weight", 1) == weights.planes("conv_final"):
        raise ModelError(f"{weights.name}: the fast form of Real-CUGAN: not supported yet")
    architecture = {3: "cunet", 4: "upcunet4x" if has_last else "upcunet", 5: "upcunet3x"}.get(
        bottom
    )
    if architecture is None:
        raise ModelError(f"{weights.name}: unet1.conv_bottom.weight has {bottom} taps")
    keys = (*_U_NETS, "conv_final") if architecture == "upcunet4x" else _U_NETS
    transposed = _TRANSPOSED if bottom == 3 else (*_TRANSPOSED, "unet1.conv_bottom")
    layers = [_layer(weights, key, key in transposed) for key in keys]
    # Both have these layers under these names: waifu2x's files name their maker.
    own = bottom == 3 or weights.maker.startswith("waifu2x.")
    model = architectures.build(
        weights.name, architecture, layers, "replicate" if own else "reflect"
    )
    return _between(model, 0.7, 0.15) if "pro" in weights.marks else model


def _layer(weights: NamedWeights, key: str, transposed: bool) -> Layer:
    weight = weights.take(f"{key}.weight", None, None, None, None)
    bias = np.zeros(weight.shape[1 if transposed else 0], np.float32)
    if f"{key}.bias" in weights:
        bias = weights.take(f"{key}.bias", None)
    if transposed:
        return Layer("transposed", np.ascontiguousarray(weight.transpose(1, 0, 2, 3)), bias)
    return Layer("convolution", weight, bias)


def _between(model: Model, factor: float, shift: float) -> Model:
    """Returns the network of values x * factor + shift, its results mapped back."""
    net = GraphBuilder(model.name, model.in_planes)

    def mapped(source: int, factor: float, shift: float) -> int:
        factors, shifts = (np.full(model.in_planes, value, np.float32) for value in (factor, shift))
        return net.affine(source, factors, shifts)

    value = net.extend(model.nodes, mapped(0, factor, shift))
    mapped(value, 1 / factor, -shift / factor)
    return net.model(model.border)


def stack(weights: NamedWeights) -> Model:
    """Builds vgg_7 or upconv_7, whose layers are numbered in the order in which they run."""
    count = 0
    while f"net.{2 * count}.weight" in weights:
        count += 1
    last = f"net.{2 * count - 2}"
    enlarges = weights.length(f"{last}.weight", 2) == 4
    layers = [_layer(weights, f"net.{2 * n}", False) for n in range(count - 1)]
    layers.append(_layer(weights, last, enlarges))
    return architectures.build(weights.name, "upconv_7" if enlarges else f"vgg_{count}", layers)
