"""waifu2x's swin_unet: a U-net whose layers are attention in windows, without norms."""

from __future__ import annotations

from waifu2x.errors import ModelError
from waifu2x.networks.activations import leaky
from waifu2x.networks.model import Model
from waifu2x.networks.readers.families.swin import attention, linear, mixed
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights, scale_of

_SLOPE = 0.1
_CROPPED = 6
"""Pixels cropped on each side behind the first convolutions."""
_MULTIPLE = 24
"""Windows are of six pixels, and the map is halved twice."""


def swin_unet(weights: NamedWeights) -> Model:
    """Builds two convolutions, then blocks of attention at three sizes, larger ones added."""
    name = weights.name
    if any(f"unet.{part}.weight" in weights for part in ("norm", "swin1.norm")) or (
        "unet.swin1.block.0.norm1.weight" in weights
    ):
        raise ModelError(f"{name}: a SwinUNet with norms: not supported yet")
    if "pre_antialias" in weights.marks:
        raise ModelError(f"{name}: a SwinUNet of a picture made smooth before: not supported")
    net = NamedGraph(weights, weights.length("unet.patch.0.weight", 1))
    value = 0
    for layer in ("unet.patch.0", "unet.patch.2"):
        net.layer = layer
        weight, bias = weights.convolution(layer)
        value = net.activate(net.convolution(value, weight, bias), leaky(_SLOPE, len(bias)))
    wide = _blocks(net, net.crop(value, _CROPPED), "unet.swin1")
    half = _blocks(net, _reduced(net, wide, "unet.down1"), "unet.swin2")
    value = _blocks(net, _reduced(net, half, "unet.down2"), "unet.swin3")
    value = net.add(_enlarged(net, value, "unet.up2"), half)
    value = _blocks(net, value, "unet.swin4")
    if "unet.proj2.weight" in weights:
        wide = linear(net, wide, "unet.proj2")
    value = net.add(_enlarged(net, value, "unet.up1"), wide)
    value = _blocks(net, value, "unet.swin5")
    made = weights.planes("unet.to_image.proj")
    scale = scale_of(made, net.planes(0), f"{name}: unet.to_image.proj.weight")
    value = linear(net, value, "unet.to_image.proj")
    if scale > 1:
        net.pixel_shuffle(value, scale)
    weights.ignore(r".*\.relative_position_index")
    return net.model("replicate", same_planes=True, multiple=_MULTIPLE)


def _blocks(net: NamedGraph, value: int, key: str) -> int:
    for block in range(net.weights.count(f"{key}.block.{{}}.attn.qkv")):
        inner = f"{key}.block.{block}"
        made = attention(
            net, value, f"{inner}.attn", is_shifted=block % 2 == 1, shifts_single=False
        )
        value = net.add(made, value)
        value = net.add(mixed(net, value, f"{inner}.mlp.0", f"{inner}.mlp.3"), value)
    return value


def _reduced(net: NamedGraph, value: int, key: str) -> int:
    """Halves the map's size by a convolution of 2x2 taps."""
    net.layer = key
    weight, bias = net.weights.convolution(f"{key}.conv", 2)
    return net.convolution(value, weight, bias, stride=2)


def _enlarged(net: NamedGraph, value: int, key: str) -> int:
    """Doubles the map's size by a linear layer that makes four pixels of each."""
    return net.pixel_shuffle(linear(net, value, f"{key}.proj"), 2)
