"""Which network weights by name are of, and that network.

The names of layers tell the architecture, and the shapes of weights all its sizes; what belongs to
no layer is refused. Compact (SRVGGNetCompact), SPAN, Real-CUGAN and waifu2x's U-nets, vgg_7 and
upconv_7, ESRGAN in its three ways to name things (RRDBNet of BasicSR, the older one of BSRGAN, and
the first).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.builder import fit_padding
from waifu2x.networks.expressions import LEAKY, SILU, Expression
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Enlarge,
    Gate,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    affine,
    moved,
)
from waifu2x.networks.readers import architectures
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.tensors import Contents, floats

_MEAN = (0.4488, 0.4371, 0.4040)
"""Of the colours that SPAN was trained on."""


def build(contents: Contents, name: str) -> Model:
    """The network; `name` stands for its file in messages.

    Raises ModelError for networks that are not known, by their name where they are, and for weights
    that are not those of their network.
    """
    for is_one, make in _KNOWN:
        if is_one(contents):
            weights = _Weights(contents, name)
            model = make(weights)
            weights.finish()
            if model.in_planes != model.out_planes:
                raise ModelError(
                    f"{name}: makes {model.out_planes} planes of {model.in_planes}:"
                    " a picture must stay one"
                )
            return model
    for word, pattern in _UNSUPPORTED.items():
        if any(re.search(pattern, key) for key in contents.tensors):
            raise ModelError(f"{name}: {word}: not supported yet")
    some = ", ".join(sorted(contents.tensors)[:2])
    raise ModelError(f"{name}: weights of no network that is known ({some[:80]} ...)")


class _Weights:
    """The tensors, taken one after the other."""

    def __init__(self, contents: Contents, name: str) -> None:
        self.name = name
        self.marks, self.maker = contents.marks, contents.maker
        self._tensors = contents.tensors
        self._left = set(contents.tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def shape(self, key: str) -> tuple[int, ...]:
        """Of a tensor. Raises ModelError if it is missing."""
        if key not in self._tensors:
            raise ModelError(f"{self.name}: {key} is missing")
        return self._tensors[key].shape

    def take(self, key: str, *shape: int | None) -> NDArray[np.float32]:
        """A tensor, of so many dimensions, and where a length is given, of that. Raises
        ModelError."""
        found = self.shape(key)
        if (
            len(found) != len(shape)
            or any(
                have != want for have, want in zip(found, shape, strict=True) if want is not None
            )
            or 0 in found
        ):
            wanted = " x ".join("any" if each is None else str(each) for each in shape)
            raise ModelError(
                f"{self.name}: {key[:80]} has the shape {found}, but expected {wanted}"
            )
        self._left.discard(key)
        return floats(self._tensors[key].read(), f"{self.name}: {key[:80]}")

    def planes(self, key: str) -> int:
        """What a convolution makes."""
        return (*self.shape(f"{key}.weight"), 0)[0]

    def convolution(
        self,
        source: int,
        key: str,
        slopes: float | NDArray[np.float32] = 1.0,
        *,
        taps: int = 3,
        has_bias: bool = True,
        function: Expression = LEAKY,
    ) -> Convolution:
        """A layer that leaves the size as it is."""
        weight = self.take(f"{key}.weight", None, None, taps, taps)
        planes = len(weight)
        bias = self.take(f"{key}.bias", planes) if has_bias else np.zeros(planes, np.float32)
        if isinstance(slopes, float):
            slopes = leaky(slopes, planes).slopes
        return Convolution(source, weight, bias, Activation(function, slopes), padding=taps // 2)

    def ignore(self, pattern: str) -> None:
        """Leaves out tensors whose names match."""
        self._left = {key for key in self._left if not re.fullmatch(pattern, key)}

    def finish(self) -> None:
        """Raises ModelError if a tensor is left."""
        if self._left:
            key = min(self._left)
            raise ModelError(f"{self.name}: {key[:80]} belongs to no layer of this network")


class _Nodes:
    """Nodes so far."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> int:
        """The value that it makes."""
        self.nodes.append(node)
        return len(self.nodes)

    def model(self, name: str, planes: int, border: Border = "zero") -> Model:
        """The network, whose pictures have so many planes."""
        return fit_padding(name, planes, tuple(self.nodes), border)


def _scale_and_planes(made: int, read: int, where: str) -> tuple[int, int]:
    """By how much a last layer enlarges, and the planes of the picture that it makes."""
    for planes in (read, 3, 4, 1):
        scale = math.isqrt(made // planes)
        if made == planes * scale**2:
            return scale, planes
    raise ModelError(f"{where}: {made} planes are no picture's")


# Compact.


def _is_compact(contents: Contents) -> bool:
    return {"body.0.weight", "body.1.weight"} <= contents.tensors.keys()


def _compact(weights: _Weights) -> Model:
    last = 0
    while f"body.{last + 2}.weight" in weights:
        last += 2
    net = _Nodes()
    planes = (*weights.shape("body.0.weight"), 0, 0)[1]
    value = 0
    for index in range(0, last, 2):
        made = weights.planes(f"body.{index}")
        slopes = weights.take(f"body.{index + 1}.weight", None)
        if len(slopes) not in (1, made):
            raise ModelError(
                f"{weights.name}: body.{index + 1}.weight: {len(slopes)} slopes for {made} planes"
            )
        slopes = np.broadcast_to(slopes, (made,)).copy()
        value = net.add(weights.convolution(value, f"body.{index}", slopes))
    made = weights.planes(f"body.{last}")
    scale, _ = _scale_and_planes(made, planes, f"{weights.name}: body.{last}.weight")
    value = net.add(weights.convolution(value, f"body.{last}"))
    if scale == 1:
        net.add(Add(value, 0))
    else:
        value = net.add(PixelShuffle(value, scale))
        net.add(Add(value, net.add(Enlarge(0, scale))))
    return net.model(weights.name, planes)


# SPAN.


def _is_span(contents: Contents) -> bool:
    keys = contents.tensors.keys()
    return {"conv_cat.weight", "upsampler.0.weight"} <= keys and any(
        key.startswith("block_1.c1_r.") for key in keys
    )


def _span(weights: _Weights) -> Model:
    net = _Nodes()
    source = 0
    first, first_bias = _folded(weights, "conv_1")
    planes = first.shape[1]
    if "no_norm" not in weights.marks:
        if planes != 3:
            raise ModelError(f"{weights.name}: a SPAN of {planes} planes: only of 3 is known")
        shifts = np.array([-255 * mean for mean in _MEAN], np.float32)
        source = net.add(affine(source, np.full(3, 255, np.float32), shifts))

    def same(value: int, key: str, function: Expression = LEAKY) -> int:
        weight, bias = (first, first_bias) if key == "conv_1" else _folded(weights, key)
        activation = elementwise(function, len(bias))
        return net.add(Convolution(value, weight, bias, activation, padding=1))

    value = start = same(source, "conv_1")
    after_first = tap = 0
    for block in range(1, 7):
        tap = same(value, f"block_{block}.c1_r", SILU)
        inner = same(tap, f"block_{block}.c2_r", SILU)
        value = net.add(Gate(same(inner, f"block_{block}.c3_r"), value))
        after_first = after_first or value
    joined = net.add(Concatenate((start, same(value, "conv_2"), after_first, tap)))
    joined = net.add(weights.convolution(joined, "conv_cat", taps=1))
    made = weights.planes("upsampler.0")
    scale, _ = _scale_and_planes(made, planes, f"{weights.name}: upsampler.0.weight")
    value = net.add(weights.convolution(joined, "upsampler.0"))
    if scale > 1:
        net.add(PixelShuffle(value, scale))
    # What the training kept beside what it trained.
    weights.ignore(r".*\.eval_conv\.(weight|bias)")
    return net.model(weights.name, planes)


def _folded(weights: _Weights, key: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Three convolutions, of 1, 3 and 1 taps, and one beside them, as one.

    What is stored as `eval_conv` may be older than these.
    """
    if f"{key}.conv.0.weight" not in weights:
        folded = weights.convolution(0, f"{key}.eval_conv")
        return folded.weight, folded.bias

    def pair(part: str, taps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        weight = weights.take(f"{key}.{part}.weight", None, None, taps, taps)
        bias = np.zeros(len(weight), np.float32)
        if f"{key}.{part}.bias" in weights:
            bias = weights.take(f"{key}.{part}.bias", len(weight))
        return weight.astype(np.float64), bias.astype(np.float64)

    (w1, b1), (w2, b2), (w3, b3) = pair("conv.0", 1), pair("conv.1", 3), pair("conv.2", 1)
    beside, beside_bias = pair("sk", 1)
    shapes = (w1.shape[0], w2.shape[0], w3.shape[0], w1.shape[1])
    if (w2.shape[1], w3.shape[1], beside.shape[0], beside.shape[1]) != shapes:
        raise ModelError(f"{weights.name}: the parts of {key} do not fit together")
    weight = np.einsum("po,omyx,mi->piyx", w3[:, :, 0, 0], w2, w1[:, :, 0, 0], optimize=True)
    weight[:, :, 1, 1] += beside[:, :, 0, 0]
    bias = w3[:, :, 0, 0] @ (w2.sum(axis=(2, 3)) @ b1 + b2) + b3 + beside_bias
    return weight.astype(np.float32), bias.astype(np.float32)


# ESRGAN.


def _is_esrgan(contents: Contents) -> bool:
    keys = contents.tensors.keys()
    return any(
        {first, last} <= keys
        for first, last in (
            ("conv_first.weight", "body.0.rdb1.conv1.weight"),
            ("conv_first.weight", "RRDB_trunk.0.RDB1.conv1.weight"),
            ("model.0.weight", "model.1.sub.0.RDB1.conv1.0.weight"),
        )
    )


def _esrgan(weights: _Weights) -> Model:
    ways = _names_of_esrgan(weights)
    net = _Nodes()
    read = (*weights.shape(f"{ways['first']}.weight"), 0, 0)[1]
    made = weights.planes(ways["last"])
    unshuffle = next((by for by in (1, 2, 4) if read == made * by**2), None)
    if unshuffle is None:
        raise ModelError(f"{weights.name}: an ESRGAN that reads {read} planes and makes {made}")
    value = net.add(PixelUnshuffle(0, unshuffle)) if unshuffle > 1 else 0
    first = value = net.add(weights.convolution(value, ways["first"]))
    for block in range(int(ways["blocks"])):
        outer = value
        for part in (1, 2, 3):
            value = _dense_block(net, weights, value, ways["block"].format(block, part))
        value = net.add(Add(value, outer, 0.2))
    value = net.add(Add(net.add(weights.convolution(value, ways["trunk"])), first))
    for key in ways["ups"].split():
        value = net.add(Enlarge(value, 2))
        value = net.add(weights.convolution(value, key, 0.2))
    value = net.add(weights.convolution(value, ways["hr"], 0.2))
    net.add(weights.convolution(value, ways["last"]))
    return net.model(weights.name, made, "reflect")


def _dense_block(net: _Nodes, weights: _Weights, source: int, key: str) -> int:
    """Five convolutions, each of all that is before it, and a fifth of the result added."""
    plus = key.format("1x1").removesuffix(".0")
    has_more = f"{plus}.weight" in weights
    parts = [source]
    for number in range(1, 6):
        read = parts[0] if number == 1 else net.add(Concatenate(tuple(parts)))
        slope = 0.2 if number < 5 else 1.0
        value = net.add(weights.convolution(read, key.format(number), slope))
        if has_more and number == 2:  # as ESRGAN+ has it
            more = weights.convolution(source, plus, taps=1, has_bias=False)
            value = net.add(Add(value, net.add(more)))
        elif has_more and number == 4:
            value = net.add(Add(value, parts[2]))
        parts.append(value)
    return net.add(Add(parts[-1], source, 0.2))


def _names_of_esrgan(weights: _Weights) -> dict[str, str]:
    """The names of its layers; those of a block with the number of a layer left open."""
    if "model.0.weight" in weights:
        blocks = 0
        while f"model.1.sub.{blocks}.RDB1.conv1.0.weight" in weights:
            blocks += 1
        ups = 0
        while f"model.{3 * ups + 3}.weight" in weights:
            ups += 1
        return {
            "first": "model.0",
            "blocks": str(blocks),
            "block": "model.1.sub.{}.RDB{}.conv{{}}.0",
            "trunk": f"model.1.sub.{blocks}",
            "ups": " ".join(f"model.{3 * up + 3}" for up in range(ups)),
            "hr": f"model.{3 * ups + 2}",
            "last": f"model.{3 * ups + 4}",
        }
    older = "RRDB_trunk.0.RDB1.conv1.weight" in weights
    body, rdb = ("RRDB_trunk", "RDB") if older else ("body", "rdb")
    up = "upconv" if older else "conv_up"
    blocks, ups = 0, 0
    while f"{body}.{blocks}.{rdb}1.conv1.weight" in weights:
        blocks += 1
    while f"{up}{ups + 1}.weight" in weights:
        ups += 1
    return {
        "first": "conv_first",
        "blocks": str(blocks),
        "block": body + ".{}." + rdb + "{}.conv{{}}",
        "trunk": "trunk_conv" if older else "conv_body",
        "ups": " ".join(f"{up}{number}" for number in range(1, ups + 1)),
        "hr": "HRconv" if older else "conv_hr",
        "last": "conv_last",
    }


# Real-CUGAN, and waifu2x's own networks.

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


def _is_u_net(contents: Contents) -> bool:
    return "unet1.conv1.conv.0.weight" in contents.tensors and (
        "unet2.conv2.seblock.conv1.weight" in contents.tensors
    )


def _u_net(weights: _Weights) -> Model:
    bottom = (*weights.shape("unet1.conv_bottom.weight"), 0, 0, 0)[2]
    has_last = "conv_final.weight" in weights
    if has_last and weights.shape("unet1.conv1.conv.0.weight")[1:2] == (
        weights.planes("conv_final"),
    ):
        raise ModelError(f"{weights.name}: the fast form of Real-CUGAN: not supported yet")
    architecture = {3: "cunet", 4: "upcunet4x" if has_last else "upcunet", 5: "upcunet3x"}.get(
        bottom
    )
    if architecture is None:
        raise ModelError(f"{weights.name}: unet1.conv_bottom.weight has {bottom} taps")
    keys = (*_U_NETS, "conv_final") if architecture == "upcunet4x" else _U_NETS
    transposed = _TRANSPOSED if bottom == 3 else (*_TRANSPOSED, "unet1.conv_bottom")
    layers = [_layer(weights, key, key in transposed) for key in keys]
    # The same layers under the same names: waifu2x's files say whose they are.
    own = bottom == 3 or weights.maker.startswith("waifu2x.")
    model = architectures.build(
        weights.name, architecture, layers, "replicate" if own else "reflect"
    )
    return _between(model, 0.7, 0.15) if "pro" in weights.marks else model


def _layer(weights: _Weights, key: str, transposed: bool) -> Layer:
    weight = weights.take(f"{key}.weight", None, None, None, None)
    bias = np.zeros(weight.shape[1 if transposed else 0], np.float32)
    if f"{key}.bias" in weights:
        bias = weights.take(f"{key}.bias", None)
    if transposed:
        return Layer("transposed", np.ascontiguousarray(weight.transpose(1, 0, 2, 3)), bias)
    return Layer("convolution", weight, bias)


def _between(model: Model, factor: float, shift: float) -> Model:
    """The network of values x * factor + shift, its results mapped back."""
    planes = model.in_planes

    def mapped(source: int, factor: float, shift: float) -> Convolution:
        factors, shifts = (np.full(planes, value, np.float32) for value in (factor, shift))
        return affine(source, factors, shifts)

    places = range(1, len(model.nodes) + 2)
    nodes = [mapped(0, factor, shift), *(moved(node, places) for node in model.nodes)]
    nodes.append(mapped(len(nodes), 1 / factor, -shift / factor))
    return fit_padding(model.name, planes, tuple(nodes), model.border)


def _is_stack(contents: Contents) -> bool:
    return {"net.0.weight", "net.2.weight"} <= contents.tensors.keys()


def _stack(weights: _Weights) -> Model:
    count = 0
    while f"net.{2 * count}.weight" in weights:
        count += 1
    last = f"net.{2 * count - 2}"
    enlarges = (*weights.shape(f"{last}.weight"), 0, 0, 0)[2] == 4
    layers = [_layer(weights, f"net.{2 * n}", False) for n in range(count - 1)]
    layers.append(_layer(weights, last, enlarges))
    return architectures.build(weights.name, "upconv_7" if enlarges else f"vgg_{count}", layers)


_KNOWN: tuple[tuple[Callable[[Contents], bool], Callable[[_Weights], Model]], ...] = (
    (_is_compact, _compact),
    (_is_span, _span),
    (_is_u_net, _u_net),
    (_is_esrgan, _esrgan),
    (_is_stack, _stack),
)
_UNSUPPORTED = {
    "a HAT": r"overlap_attn",
    "a SwinIR": r"layers\.\d+\.residual_group\.blocks\.\d+\.attn\.(qkv|relative)",
    "a DAT": r"layers\.\d+\.blocks\.\d+\.(attn\.attns|ffn\.sg)",
    "a SCUNet": r"m_head\.0\.weight|m_body\.\d+\.trans_block",
    "a RealPLKSR": r"feats\.\d+\.(lk|channe_mixer|channel_mixer)",
    "an OmniSR": r"residual_layer\.\d+\.residual_layer",
    "a SwinUNet of waifu2x": r"unet\.(patch|swin)",
    "an RCAN": r"body\.\d+\.body\.\d+\.body\.3\.conv_du",
    "an EDSR": r"head\.0\.weight",
}
"""Architectures of the field by a name of a weight that no other has."""
