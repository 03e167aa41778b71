"""Networks that make the middle one of several frames: TSPAN, TSPANv2 and TSCUNet.

A picture of theirs has the planes of all frames, the earliest first.
"""

from __future__ import annotations

import numpy as np

from waifu2x.errors import ModelError
from waifu2x.networks.attention import PlanesFrom, WindowAttention
from waifu2x.networks.model import Model, Surround
from waifu2x.networks.nodes import GroupNorm
from waifu2x.networks.readers.families.esrgan import dense_block
from waifu2x.networks.readers.families.span import COPIES, MEAN, blocks, convolution, folded
from waifu2x.networks.readers.families.swin import linear, mixed, normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights
from waifu2x.networks.windows import Windows

_GROUPS = 8
"""Groups of planes of TSPAN's norms. Not stored."""
_RANGE = 255.0
_UNIT = 64
"""TSPANv2 and TSCUNet mirror a picture around, to a multiple of it."""
_HEAD = 32
"""Planes of a head of TSCUNet's attention."""
_SLOPE = 0.2


def tspan(weights: NamedWeights) -> Model:
    """Builds a layer of each frame, joined, and a SPAN of their fusion with norms."""
    frames = 1 + weights.count("history_convs.{}.sk")
    middle = frames // 2
    keys = [f"history_convs.{n - (n > middle)}" for n in range(frames)]
    keys[middle] = "center_conv"
    parts = [folded(weights, key) for key in keys]
    planes = parts[0][0].shape[1]
    made = [len(bias) for _, bias in parts]
    weights.budget.take_bytes(4 * 9 * sum(made) * planes * frames)
    joined = np.zeros((sum(made), planes * frames, 3, 3), np.float32)
    for number, (weight, _) in enumerate(parts):
        if weight.shape[1] != planes:
            raise ModelError(f"{weights.name}: {keys[number]} reads {weight.shape[1]} planes")
        rows = slice(sum(made[:number]), sum(made[: number + 1]))
        joined[rows, number * planes : (number + 1) * planes] = weight
    net = NamedGraph(weights, planes * frames)
    net.layer = "center_conv"
    bias = np.concatenate([bias for _, bias in parts])
    value = net.convolution(0, joined, bias, padding=1)
    for key in ("fusion_conv.0", "fusion_conv.1"):
        value = convolution(net, value, key)
    keys = [f"block_{block}" for block in range(1, 7)]
    value = blocks(net, value, keys, "conv_2", "conv_cat", norm=_group_norm)
    net.last_convolution(value, "upsampler.0")
    weights.ignore(COPIES)
    return net.model("zero", frames=frames)


def tspan_v2(weights: NamedWeights) -> Model:
    """Builds SPANs of three neighbouring results in turn, until one is left."""
    net, frames, heads = _frames(weights, normalises=True)
    values = heads
    for layer in range((frames - 1) // 2):
        values = [
            _span_of_three(net, values[at : at + 3], f"m_layers.{layer}")
            for at in range(len(values) - 2)
        ]
    value = _with_middle(net, values[0], heads, "m_res")
    value = net.same_size(value, "m_upsample.0")
    scale = net.planes(value) // net.planes(heads[0])
    value = net.pixel_shuffle(value, round(scale**0.5)) if scale > 1 else value
    value = net.same_size(value, "m_tail", has_bias=False)
    factors = np.full(net.planes(value), 1 / _RANGE, np.float32)
    net.affine(value, factors, np.array(MEAN, np.float32))
    weights.ignore(COPIES)
    return net.model("zero", multiple=_UNIT, frames=frames, surround=Surround(_UNIT))


def tscunet(weights: NamedWeights) -> Model:
    """Builds U-nets of attention and convolutions, of three neighbouring results in turn."""
    net, frames, heads = _frames(weights, normalises=False)
    ups = weights.count("m_upsample.0.up.{}.rdb1.conv1")
    first = ups + 1  # a layer without weights stands before it where the picture grows
    grows = 0
    while f"m_upsample.0.up.{first + 3 * grows}.weight" in weights:
        grows += 1
    values = heads
    for layer in range((frames - 1) // 2):
        values = [
            _u_net_of_three(net, values[at : at + 3], f"m_layers.{layer}", shifts_body=not grows)
            for at in range(len(values) - 2)
        ]
    value = _with_middle(net, values[0], heads, "m_res.0")
    for block in range(ups):
        value = _residual_block(net, value, f"m_upsample.0.up.{block}")
    for step in range(grows):
        value = net.same_size(net.enlarge(value, 2), f"m_upsample.0.up.{first + 3 * step}", _SLOPE)
    value = net.same_size(value, f"m_upsample.0.up.{ups + 3 * grows}", _SLOPE)
    net.same_size(value, "m_tail.0", has_bias=False)
    weights.ignore(r"m_sigma(_tail)?\..*")  # read in training alone
    return net.model("zero", multiple=_UNIT, frames=frames, surround=Surround(_UNIT, _UNIT))


def _group_norm(net: NamedGraph, source: int, key: str) -> int:
    planes = net.planes(source)
    weight, bias = (net.weights.take(f"{key}.{part}", planes) for part in ("weight", "bias"))
    return net.append(GroupNorm(source, weight, bias, _GROUPS))


def _frames(weights: NamedWeights, *, normalises: bool) -> tuple[NamedGraph, int, list[int]]:
    """Begins a network of as many frames as it has layers for; returns the maps of all."""
    key = "m_head" if "m_head.weight" in weights else "m_head.0"
    planes = weights.length(f"{key}.weight", 1)
    frames = 2 * weights.count("m_layers.{}.m_tail.0") + 1
    net = NamedGraph(weights, planes * frames)
    source = 0
    if normalises:
        if planes != 3:
            raise ModelError(f"{weights.name}: a TSPANv2 of {planes} planes: only of 3 is known")
        shifts = np.tile(np.array(MEAN, np.float32) * np.float32(-_RANGE), frames)
        source = net.affine(0, np.full(planes * frames, _RANGE, np.float32), shifts)
    weight, bias = weights.convolution(key, has_bias=False)
    maps = []
    for number in range(frames):
        net.layer = key
        part = net.slice(source, number * planes, planes)
        maps.append(net.convolution(part, weight, bias, padding=1))
    return net, frames, maps


def _with_middle(net: NamedGraph, value: int, heads: list[int], key: str) -> int:
    """Adds a convolution of the middle frame's map, where there is one."""
    if f"{key}.weight" not in net.weights:
        return value
    return net.add(net.same_size(heads[len(heads) // 2], key, has_bias=False), value)


def _span_of_three(net: NamedGraph, sources: list[int], key: str) -> int:
    start = convolution(net, net.concatenate(*sources), f"{key}.m_head")
    keys = [f"{key}.blocks.{block}" for block in range(6)]
    value = blocks(net, start, keys, f"{key}.conv_post", f"{key}.conv_cat")
    return net.same_size(value, f"{key}.m_tail.0", _SLOPE, has_bias=False)


def _u_net_of_three(net: NamedGraph, sources: list[int], key: str, *, shifts_body: bool) -> int:
    joined = net.concatenate(*sources)
    start = value = net.same_size(joined, f"{key}.m_head.0", has_bias=False)
    down = list[int]()
    for level in (1, 2, 3):
        value, blocks = _mixed_blocks(net, value, f"{key}.m_down{level}")
        net.layer = f"{key}.m_down{level}.{blocks}"
        weight, bias = net.weights.convolution(net.layer, 2, has_bias=False)
        value = net.convolution(value, weight, bias, stride=2)
        down.append(value)
    value, _ = _mixed_blocks(net, value, f"{key}.m_body", shifts=shifts_body)
    for level in (3, 2, 1):
        value = net.add(value, down.pop())
        value = net.enlarge(value, 2)
        for part in (1, 3):
            value = net.same_size(value, f"{key}.m_up{level}.0.up.{part}", _SLOPE)
        value, _ = _mixed_blocks(net, value, f"{key}.m_up{level}", first=1)
    value = net.add(value, net.same_size(start, f"{key}.m_res.0", has_bias=False))
    return net.same_size(value, f"{key}.m_tail.0", _SLOPE, has_bias=False)


def _mixed_blocks(
    net: NamedGraph, value: int, key: str, *, first: int = 0, shifts: bool = True
) -> tuple[int, int]:
    """Adds the blocks of a level; returns the result and their number."""
    count = net.weights.count(f"{key}.{{}}.conv1_1", first)
    for block in range(count):
        is_shifted = shifts and block % 2 == 1
        value = _mixed_block(net, value, f"{key}.{first + block}", is_shifted=is_shifted)
    return value, count


def _mixed_block(net: NamedGraph, source: int, key: str, *, is_shifted: bool) -> int:
    """Adds convolutions of a half of the planes and attention of the other half."""
    value = net.same_size(source, f"{key}.conv1_1", taps=1)
    half = net.planes(value) // 2
    near, far = net.split(value, half, net.planes(value) - half)
    inner = net.same_size(near, f"{key}.conv_block.0", 0.0, has_bias=False)
    near = net.add(net.same_size(inner, f"{key}.conv_block.2", has_bias=False), near)
    block = f"{key}.trans_block"
    normal = normalised(net, far, f"{block}.ln1")
    far = net.add(_attention(net, normal, f"{block}.msa", is_shifted=is_shifted), far)
    normal = normalised(net, far, f"{block}.ln2")
    far = net.add(mixed(net, normal, f"{block}.mlp.0", f"{block}.mlp.2"), far)
    made = net.same_size(net.concatenate(near, far), f"{key}.conv1_2", taps=1)
    return net.add(made, source)


def _attention(net: NamedGraph, source: int, key: str, *, is_shifted: bool) -> int:
    planes, weights = net.planes(source), net.weights
    table = f"{key}.relative_position_params"
    side = weights.length(table, 1)
    if planes % _HEAD or side % 2 == 0:
        raise ModelError(f"{net.name}: {key[:80]}: attention of {planes} planes, {side} places")
    # Its places are a query's less a key's; the node's are the opposite.
    bias = np.ascontiguousarray(weights.take(table, planes // _HEAD, side, side)[:, ::-1, ::-1])
    window = (side + 1) // 2
    shift = window // 2 if is_shifted else 0
    joined = linear(net, source, f"{key}.embedding_layer")
    parts = [PlanesFrom(joined, first * planes) for first in range(3)]
    net.layer = key[:80]
    windows = Windows(window, window, shift, shift)
    scale = _HEAD**-0.5
    made = net.append(WindowAttention(parts[0], parts[1], parts[2], planes, windows, scale, bias))
    return linear(net, made, f"{key}.linear")


def _residual_block(net: NamedGraph, source: int, key: str) -> int:
    """Adds ESRGAN's residual block of three dense blocks."""
    value = source
    for part in (1, 2, 3):
        value = dense_block(net, value, f"{key}.rdb{part}.conv{{}}")
    return net.add(value, source, 0.2)
