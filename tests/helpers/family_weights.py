"""Weights of small networks of the field, under its names, with the same numbers everywhere.

`filled` gives each tensor numbers that follow from its name alone. The results that tests compare
with were made by other implementations (spandrel on PyTorch) of networks filled in the same way.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

_WINDOW = (4, 8)
"""Rows and columns of DAT's windows, where no others are asked for."""
Shapes = dict[str, tuple[int, ...]]


def filled(
    shapes: Shapes, *, factor: float = 1.0, prefix: str = "", window: tuple[int, int] = _WINDOW
) -> dict[str, NDArray[np.float32]]:
    """Numbers for tensors of these names and shapes, about as large as trained ones.

    Weights of two and more dimensions are multiplied by `factor`; numbers follow from names without
    the prefix; `window` is of DAT.
    """
    made = {}
    for key, shape in shapes.items():
        numbers = _filled(key.removeprefix(prefix), shape, window)
        is_weight = len(shape) > 1 and key.endswith(".weight")
        made[key] = numbers * np.float32(factor) if is_weight else numbers
    return made


def _filled(key: str, shape: tuple[int, ...], window: tuple[int, int]) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "little")
    normal = np.random.default_rng(seed).standard_normal(shape)
    made: NDArray[np.float64]
    last = key.rpartition(".")[2]
    if last == "rpe_biases":
        rows, columns = window[::-1] if ".attns.1." in key else window
        places = np.meshgrid(
            np.arange(1 - rows, rows), np.arange(1 - columns, columns), indexing="ij"
        )
        made = np.stack(places, axis=-1).reshape(shape).astype(np.float64)
    elif last == "init_pos":
        scale = math.isqrt(shape[1] // (8 if shape[1] % 8 == 0 else 6))
        inner = (np.arange(scale) - (scale - 1) / 2) / scale
        both = np.stack(np.meshgrid(inner, inner, indexing="xy")).reshape(2, 1, -1)
        made = both.repeat(shape[1] // both.size, axis=1).reshape(shape)
    elif last == "running_var":
        made = 1 + 0.1 * abs(normal)
    elif last == "weight" and len(shape) == 1:
        made = 1 + 0.1 * normal
    elif len(shape) < 2:
        made = 0.1 * normal
    elif last == "weight":
        made = normal / math.sqrt(math.prod(shape[1:]))
    else:
        made = 0.5 + 0.1 * normal
    return np.asarray(made, np.float32)


class Layers:
    """Shapes in the making."""

    def __init__(self) -> None:
        self.shapes: Shapes = {}

    def conv(self, key: str, made: int, read: int, taps: int = 3, *, bias: bool = True) -> None:
        """A convolution."""
        self.shapes[f"{key}.weight"] = (made, read, taps, taps)
        if bias:
            self.shapes[f"{key}.bias"] = (made,)


def rcan(
    planes: int = 16, groups: int = 2, blocks: int = 2, squeezed: int = 4, unshuffle: int = 1
) -> Shapes:
    """RCAN, 2x; with `unshuffle` 2 its map is enlarged four times."""
    net = Layers()
    net.conv("sub_mean", 3, 3, 1)
    net.conv("add_mean", 3, 3, 1)
    net.conv("head.1" if unshuffle > 1 else "head.0", planes, 3 * unshuffle**2)
    for group in range(groups):
        for block in range(blocks):
            key = f"body.{group}.body.{block}.body"
            net.conv(f"{key}.0", planes, planes)
            net.conv(f"{key}.2", planes, planes)
            net.conv(f"{key}.3.conv_du.0", squeezed, planes, 1)
            net.conv(f"{key}.3.conv_du.2", planes, squeezed, 1)
        net.conv(f"body.{group}.body.{blocks}", planes, planes)
    net.conv(f"body.{groups}", planes, planes)
    for step in range(unshuffle):
        net.conv(f"tail.0.{2 * step}", 4 * planes, planes)
    net.conv("tail.1", 3, planes)
    return net.shapes


def edsr(planes: int = 8, blocks: int = 2) -> Shapes:
    """EDSR, 2x."""
    net = Layers()
    net.conv("sub_mean", 3, 3, 1)
    net.conv("add_mean", 3, 3, 1)
    net.conv("head.0", planes, 3)
    for block in range(blocks):
        net.conv(f"body.{block}.body.0", planes, planes)
        net.conv(f"body.{block}.body.2", planes, planes)
    net.conv(f"body.{blocks}", planes, planes)
    net.conv("tail.0.0", 4 * planes, planes)
    net.conv("tail.1", 3, planes)
    return net.shapes


def artcnn(planes: int = 16, blocks: int = 2, scale: int = 2) -> Shapes:
    """ArtCNN with residual blocks."""
    net = Layers()
    net.conv("conv0", planes, 3)
    for block in range(blocks):
        for part in ("0.0", "1.0", "2"):
            net.conv(f"res_block.{block}.conv.{part}", planes, planes)
    net.conv(f"res_block.{blocks}", planes, planes)
    net.conv("depth_to_space.upscale.0", 3 * scale**2, planes)
    return net.shapes


def _folded(net: Layers, key: str, made: int, read: int) -> None:
    """Three convolutions, one beside them, and what they were when the file was written."""
    net.conv(f"{key}.sk", made, read, 1)
    net.conv(f"{key}.conv.0", 2 * read, read, 1)
    net.conv(f"{key}.conv.1", 2 * made, 2 * read)
    net.conv(f"{key}.conv.2", made, 2 * made, 1)
    net.conv(f"{key}.eval_conv", made, read)


def _dysample(net: Layers, key: str, planes: int, scale: int, groups: int = 4) -> None:
    offsets = 2 * groups * scale**2
    net.conv(f"{key}.offset", offsets, planes, 1)
    net.conv(f"{key}.scope", offsets, planes, 1, bias=False)
    net.shapes[f"{key}.init_pos"] = (1, offsets, 1, 1)
    if scale > 1:
        net.conv(f"{key}.end_conv", 3, planes, 1)


def spanplus(
    planes: int = 16, inner: tuple[int, ...] = (2,), scale: int = 2, *, sampled: bool = False
) -> Shapes:
    """SPANPlus with `inner` blocks in each group; `sampled` ends with DySample."""
    net = Layers()
    _folded(net, "feats.0", planes, 3)
    for group, count in enumerate(inner, 1):
        blocks = ["block_1", *(f"block_n.{block}" for block in range(count)), "block_end"]
        for block in blocks:
            for part in (1, 2, 3):
                _folded(net, f"feats.{group}.{block}.c{part}_r", planes, planes)
        _folded(net, f"feats.{group}.conv_2", planes, planes)
        net.conv(f"feats.{group}.conv_cat", planes, 4 * planes, 1)
    if sampled:
        _dysample(net, "upsampler", planes, scale)
    else:
        net.conv("upsampler.0", 3 * scale**2, planes)
    return net.shapes


def spanf3(planes: int = 8, blocks: int = 3, unshuffle: int = 2) -> Shapes:
    """SPANF3 of a picture unshuffled by 2 (2x) or by 4 (1x), or as it is (4x)."""
    net = Layers()
    first = "conv_1.1" if unshuffle > 1 else "conv_1"
    _folded(net, first, planes, 3 * unshuffle**2)
    for block in range(1, blocks + 1):
        for part in (1, 2, 3):
            _folded(net, f"block_{block}.c{part}_r", planes, planes)
        net.conv(f"block_{block}.att_conv", planes, planes, 1)
    net.conv("conv_cat", planes, 4 * planes, 1)
    net.conv("to_pixel.0", 48, planes)
    return net.shapes


def _linear(net: Layers, key: str, made: int, read: int, *, bias: bool = True) -> None:
    net.shapes[f"{key}.weight"] = (made, read)
    if bias:
        net.shapes[f"{key}.bias"] = (made,)


def swin_unet(scale: int = 2, planes: int = 48) -> Shapes:
    """swin_unet with half of its planes."""
    net, wide = Layers(), planes if scale < 4 else 2 * planes

    def blocks(key: str, count: int, planes: int, heads: int) -> None:
        for block in range(count):
            inner = f"unet.{key}.block.{block}"
            net.shapes[f"{inner}.attn.relative_position_bias_table"] = (121, heads)
            _linear(net, f"{inner}.attn.qkv", 3 * planes, planes)
            _linear(net, f"{inner}.attn.proj", planes, planes)
            _linear(net, f"{inner}.mlp.0", 2 * planes, planes)
            _linear(net, f"{inner}.mlp.3", planes, 2 * planes)

    heads = planes // 16
    net.conv("unet.patch.0", planes // 2, 3)
    net.conv("unet.patch.2", planes, planes // 2)
    blocks("swin1", 2, planes, heads)
    net.conv("unet.down1.conv", 2 * planes, planes, 2)
    blocks("swin2", 2, 2 * planes, heads)
    net.conv("unet.down2.conv", 2 * planes, 2 * planes, 2)
    blocks("swin3", 6, 2 * planes, heads)
    _linear(net, "unet.up2.proj", 8 * planes, 2 * planes)
    blocks("swin4", 2, 2 * planes, heads)
    _linear(net, "unet.up1.proj", 4 * wide, 2 * planes)
    if scale == 4:
        _linear(net, "unet.proj2", wide, planes)
    blocks("swin5", 2, wide, heads)
    _linear(net, "unet.to_image.proj", 3 * scale**2, wide)
    return net.shapes


def _norm(net: Layers, key: str, planes: int) -> None:
    net.shapes[f"{key}.weight"] = (planes,)
    net.shapes[f"{key}.bias"] = (planes,)


def _swin_block(
    net: Layers, key: str, planes: int, heads: int, window: int, wide: int, *, cells: bool = False
) -> None:
    side = window // 2 if cells else window
    _norm(net, f"{key}.norm1", planes)
    net.shapes[f"{key}.attn.relative_position_bias_table"] = ((2 * side - 1) ** 2, heads)
    if cells:
        _linear(net, f"{key}.attn.q", planes, planes)
        _linear(net, f"{key}.attn.kv", planes // 2, planes)
    else:
        _linear(net, f"{key}.attn.qkv", 3 * planes, planes)
    _linear(net, f"{key}.attn.proj", planes, planes)
    _norm(net, f"{key}.norm2", planes)
    _linear(net, f"{key}.mlp.fc1", wide, planes)
    if cells:
        net.conv(f"{key}.mlp.dwconv.depthwise_conv.0", wide, 1, 5)
    _linear(net, f"{key}.mlp.fc2", planes, wide)


def _residual(net: Layers, key: str, planes: int, *, three: bool) -> None:
    if not three:
        net.conv(key, planes, planes)
        return
    net.conv(f"{key}.0", planes // 4, planes)
    net.conv(f"{key}.2", planes // 4, planes // 4, 1)
    net.conv(f"{key}.4", planes, planes // 4)


def _swin_end(net: Layers, planes: int, scale: int, head: str) -> None:
    if head == "direct":
        net.conv("upsample.0", 3 * scale**2, planes)
        return
    if head:
        net.conv("conv_before_upsample.0", 64, planes)
    if head == "shuffle":
        for step in range(1 if scale == 3 else scale.bit_length() - 1):
            net.conv(f"upsample.{2 * step}", 64 * (9 if scale == 3 else 4), 64)
    elif head == "nearest":
        for step in range(scale.bit_length() - 1):
            net.conv(f"conv_up{step + 1}", 64, 64)
        net.conv("conv_hr", 64, 64)
    net.conv("conv_last", 3, 64 if head else planes)


def swinir(
    planes: int = 12,
    heads: tuple[int, ...] = (2, 3),
    scale: int = 2,
    head: str = "direct",
    *,
    three: bool = False,
    cells: bool = False,
    blocks: int = 2,
) -> Shapes:
    """SwinIR with groups of some blocks, or with `cells` SRFormer; `head` is direct, shuffle,
    nearest, or empty for a network that does not enlarge."""
    net = Layers()
    net.conv("conv_first", planes, 3)
    _norm(net, "patch_embed.norm", planes)
    for group, count in enumerate(heads):
        for block in range(blocks):
            key = f"layers.{group}.residual_group.blocks.{block}"
            _swin_block(net, key, planes, count, 8, 2 * planes, cells=cells)
            index = "aligned_relative_position_index" if cells else "relative_position_index"
            net.shapes[f"{key}.attn.{index}"] = (64, 16 if cells else 64)
        _residual(net, f"layers.{group}.conv", planes, three=three)
    _norm(net, "norm", planes)
    _residual(net, "conv_after_body", planes, three=three)
    _swin_end(net, planes, scale, head)
    return net.shapes


def hat(planes: int = 12, groups: int = 2, heads: int = 2) -> Shapes:
    """HAT, 2x."""
    net = Layers()
    net.shapes["relative_position_index_SA"] = (64, 64)
    net.shapes["relative_position_index_OCA"] = (64, 144)
    net.conv("conv_first", planes, 3)
    _norm(net, "patch_embed.norm", planes)
    for group in range(groups):
        for block in range(2):
            key = f"layers.{group}.residual_group.blocks.{block}"
            _swin_block(net, key, planes, heads, 8, 2 * planes)
            cab = f"{key}.conv_block.cab"
            net.conv(f"{cab}.0", planes // 3, planes)
            net.conv(f"{cab}.2", planes, planes // 3)
            net.conv(f"{cab}.3.attention.1", planes // 6, planes, 1)
            net.conv(f"{cab}.3.attention.3", planes, planes // 6, 1)
        key = f"layers.{group}.residual_group.overlap_attn"
        _swin_block(net, key, planes, heads, 8, 2 * planes)
        for part in ("qkv", "proj"):
            for kind in ("weight", "bias"):
                net.shapes[f"{key}.{part}.{kind}"] = net.shapes.pop(f"{key}.attn.{part}.{kind}")
        del net.shapes[f"{key}.attn.relative_position_bias_table"]
        net.shapes[f"{key}.relative_position_bias_table"] = (19**2, heads)
        net.conv(f"layers.{group}.conv", planes, planes)
    _norm(net, "norm", planes)
    net.conv("conv_after_body", planes, planes)
    _swin_end(net, planes, 2, "shuffle")
    return net.shapes


def drct(planes: int = 16, heads: int = 4, growth: int = 8) -> Shapes:
    """DRCT with one group, 2x."""
    net = Layers()
    net.conv("conv_first", planes, 3)
    _norm(net, "patch_embed.norm", planes)
    for number in range(1, 6):
        read = planes + (number - 1) * growth
        wide = 2 * read if number < 4 else read
        _swin_block(net, f"layers.0.swin{number}", read, heads, 8, wide)
        net.conv(f"layers.0.adjust{number}", growth if number < 5 else planes, read, 1)
    _norm(net, "norm", planes)
    net.conv("conv_after_body", planes, planes)
    _swin_end(net, planes, 2, "shuffle")
    return net.shapes


def realplksr(
    planes: int = 16,
    blocks: int = 3,
    taps: int = 17,
    scale: int = 2,
    *,
    local: bool = False,
    sampled: bool = False,
) -> Shapes:
    """RealPLKSR, with norms over the picture or, if `local`, over pixels and without attention;
    `sampled` ends with DySample."""
    net = Layers()
    net.conv("feats.0", planes, 3)
    for block in range(1, blocks + 1):
        key = f"feats.{block}"
        if local:
            _norm(net, f"{key}.layer_norm", planes)
        net.conv(f"{key}.channel_mixer.0", 2 * planes, planes)
        net.conv(f"{key}.channel_mixer.2", planes, 2 * planes)
        net.conv(f"{key}.lk.conv", planes // 4, planes // 4, taps)
        if not local:
            net.conv(f"{key}.attn.f.0", planes, planes)
        net.conv(f"{key}.refine", planes, planes, 1)
        if not local:
            _norm(net, f"{key}.norm", planes)
    net.conv(f"feats.{blocks + 2}", 3 * scale**2, planes)
    if sampled:
        _dysample(net, "to_img", 3 * scale**2, scale, 3 if scale % 2 else 4)
    return net.shapes


def safmn(planes: int = 16, blocks: int = 2, scale: int = 2) -> Shapes:
    """SAFMN."""
    net = Layers()
    net.conv("to_feat", planes, 3)
    for block in range(blocks):
        key = f"feats.{block}"
        _norm(net, f"{key}.norm1", planes)
        _norm(net, f"{key}.norm2", planes)
        for part in range(4):
            net.conv(f"{key}.safm.mfr.{part}", planes // 4, 1)
        net.conv(f"{key}.safm.aggr", planes, planes, 1)
        net.conv(f"{key}.ccm.ccm.0", 2 * planes, planes)
        net.conv(f"{key}.ccm.ccm.2", planes, 2 * planes, 1)
    net.conv("to_img.0", 3 * scale**2, planes)
    return net.shapes


def omnisr(
    planes: int = 16,
    groups: int = 2,
    blocks: int = 1,
    scale: int = 2,
    side: int = 8,
    *,
    bias: bool = True,
    places: bool = True,
) -> Shapes:
    """OmniSR; without biases of some convolutions, or of the places in windows."""
    net, few = Layers(), max(planes // 4, 16)

    def each(key: str, count: int, *, bias: bool = False) -> None:
        net.conv(key, count, 1, bias=bias)

    def normed(key: str) -> str:
        _norm(net, f"{key}.norm", planes)
        return f"{key}.fn"

    net.conv("input", planes, 3, bias=bias)
    for group in range(groups):
        outer = f"residual_layer.{group}"
        for block in range(blocks):
            key = f"{outer}.residual_layer.{block}.layer"
            net.conv(f"{key}.0.fn.0", planes, planes, 1)
            each(f"{key}.0.fn.2", planes, bias=True)
            _linear(net, f"{key}.0.fn.4.gate.1", planes // 4, planes, bias=False)
            _linear(net, f"{key}.0.fn.4.gate.3", planes, planes // 4, bias=False)
            net.conv(f"{key}.0.fn.5", planes, planes, 1)
            for part in (2, 8):
                inner = normed(f"{key}.{part}")
                _linear(net, f"{inner}.to_qkv", 3 * planes, planes, bias=False)
                _linear(net, f"{inner}.to_out.0", planes, planes, bias=False)
                if places:
                    net.shapes[f"{inner}.rel_pos_bias.weight"] = ((2 * side - 1) ** 2, 4)
            for part in (4, 6, 10, 12):
                inner = normed(f"{key}.{part}")
                net.conv(f"{inner}.project_in", 2 * planes, planes, 1, bias=False)
                each(f"{inner}.dwconv", 2 * planes)
                net.conv(f"{inner}.project_out", planes, planes, 1, bias=False)
            for part in (5, 11):
                inner = normed(f"{key}.{part}")
                net.shapes[f"{inner}.temperature"] = (4, 1, 1)
                net.conv(f"{inner}.qkv", 3 * planes, planes, 1, bias=False)
                each(f"{inner}.qkv_dwconv", 3 * planes)
                net.conv(f"{inner}.project_out", planes, planes, 1, bias=False)
        net.conv(f"{outer}.residual_layer.{blocks}", planes, planes, 1, bias=bias)
        net.conv(f"{outer}.esa.conv1", few, planes, 1)
        net.conv(f"{outer}.esa.conv_f", few, few, 1)
        net.conv(f"{outer}.esa.conv2", few, few)
        net.conv(f"{outer}.esa.conv3", few, few)
        net.conv(f"{outer}.esa.conv4", planes, few, 1)
    net.conv("output", planes, planes, bias=bias)
    net.conv("up.0", 3 * scale**2, planes, bias=bias)
    return net.shapes


def mosr(planes: int = 16, blocks: int = 3, *, turned: bool = False, sampled: int = 0) -> Shapes:
    """MoSR, 2x; `turned` has the upsampler that takes a mean, or DySample's scale is `sampled`."""
    net = Layers()
    net.conv("gblocks.0", planes, 3)
    inner = 3 * planes // 2
    for block in range(1, blocks + 1):
        key = f"gblocks.{block}"
        _norm(net, f"{key}.norm", planes)
        net.conv(f"{key}.fc1", 2 * inner, planes)
        net.conv(f"{key}.conv", planes, 1, 7)
        net.conv(f"{key}.fc2", planes, inner)
    net.conv(f"gblocks.{blocks + 1}", 2 * planes, planes)
    net.conv(f"gblocks.{blocks + 3}", planes, 2 * planes)
    net.conv(f"gblocks.{blocks + 5}", planes, planes, 1)
    net.conv("shortcut.block.0", planes, 3)
    net.conv("shortcut.block.2", planes, planes)
    net.conv("shortcut.conv11", planes, 3, 1)
    if sampled:
        _dysample(net, "upsampler", planes, sampled)
    else:
        net.conv("upsampler.in_to_k" if turned else "upsampler.0", 96 if turned else 12, planes)
    return net.shapes


def dat(
    planes: int = 32,
    depth: tuple[int, ...] = (4, 3),
    heads: tuple[int, ...] = (4, 2),
    expansion: int = 4,
    scale: int = 4,
    window: tuple[int, int] = _WINDOW,
) -> Shapes:
    """DAT that ends in convolutions whose planes are shuffled."""
    net, width = Layers(), planes // 2 // 4 // 4

    def norm(key: str, made: int) -> None:
        _norm(net, key, made)
        net.shapes |= {f"{key}.running_mean": (made,), f"{key}.running_var": (made,)}
        net.shapes[f"{key}.num_batches_tracked"] = ()

    def places(key: str, own: int) -> None:
        _linear(net, f"{key}.pos_proj", width, 2)
        for step in (1, 2, 3):
            _norm(net, f"{key}.pos{step}.0", width)
            _linear(net, f"{key}.pos{step}.2", width if step < 3 else own // 2, width)

    net.conv("conv_first", planes, 3)
    _norm(net, "before_RG.1", planes)
    for group, (blocks, own) in enumerate(zip(depth, heads, strict=True)):
        for block in range(blocks):
            key = f"layers.{group}.blocks.{block}"
            attn = f"{key}.attn"
            _norm(net, f"{key}.norm1", planes)
            if block % 2:
                net.shapes[f"{attn}.temperature"] = (own, 1, 1)
            else:
                for half in (0, 1):
                    count = (2 * window[0] - 1) * (2 * window[1] - 1)
                    net.shapes[f"{attn}.attns.{half}.rpe_biases"] = (count, 2)
                    places(f"{attn}.attns.{half}.pos", own)
            _linear(net, f"{attn}.qkv", 3 * planes, planes)
            _linear(net, f"{attn}.proj", planes, planes)
            net.conv(f"{attn}.dwconv.0", planes, 1)
            norm(f"{attn}.dwconv.1", planes)
            net.conv(f"{attn}.channel_interaction.1", planes // 8, planes, 1)
            norm(f"{attn}.channel_interaction.2", planes // 8)
            net.conv(f"{attn}.channel_interaction.4", planes, planes // 8, 1)
            net.conv(f"{attn}.spatial_interaction.0", planes // 16, planes, 1)
            norm(f"{attn}.spatial_interaction.1", planes // 16)
            net.conv(f"{attn}.spatial_interaction.3", 1, planes // 16, 1)
            wide = expansion * planes
            _linear(net, f"{key}.ffn.fc1", wide, planes)
            _norm(net, f"{key}.ffn.sg.norm", wide // 2)
            net.conv(f"{key}.ffn.sg.conv", wide // 2, 1)
            _linear(net, f"{key}.ffn.fc2", planes, wide // 2)
            _norm(net, f"{key}.norm2", planes)
        _residual(net, f"layers.{group}.conv", planes, three=False)
    _norm(net, "norm", planes)
    _residual(net, "conv_after_body", planes, three=False)
    _swin_end(net, planes, scale, "shuffle")
    return net.shapes


def tspan(planes: int = 16, history: int = 4, frames: int = 5, scale: int = 2) -> Shapes:
    """TSPAN: a layer for each frame, then a SPAN with norms."""
    net = Layers()
    _folded(net, "center_conv", planes, 3)
    for frame in range(frames - 1):
        _folded(net, f"history_convs.{frame}", history, 3)
    _folded(net, "fusion_conv.0", planes, planes + history * (frames - 1))
    _folded(net, "fusion_conv.1", planes, planes)
    for block in range(1, 7):
        for part in (1, 2, 3):
            _folded(net, f"block_{block}.c{part}_r", planes, planes)
            _norm(net, f"block_{block}.norm{part}", planes)
    net.conv("conv_cat", planes, 4 * planes, 1)
    _folded(net, "conv_2", planes, planes)
    net.conv("upsampler.0", 3 * scale**2, planes)
    return net.shapes


def tspan_v2(planes: int = 8, frames: int = 5, scale: int = 2) -> Shapes:
    """TSPANv2: SPANs of three neighbours in turn."""
    net = Layers()
    net.conv("m_head", planes, 3, bias=False)
    for layer in range(frames // 2):
        key = f"m_layers.{layer}"
        _folded(net, f"{key}.m_head", planes, 3 * planes)
        for block in range(6):
            for part in (1, 2, 3):
                _folded(net, f"{key}.blocks.{block}.c{part}_r", planes, planes)
        net.conv(f"{key}.conv_cat", planes, 4 * planes, 1)
        _folded(net, f"{key}.conv_post", planes, planes)
        net.conv(f"{key}.m_tail.0", planes, planes, bias=False)
    net.conv("m_res", planes, planes, bias=False)
    net.conv("m_upsample.0", planes * scale**2, planes)
    net.conv("m_tail", 3, planes, bias=False)
    return net.shapes


def tscunet(planes: int = 64, frames: int = 3, scale: int = 2, blocks: int = 2) -> Shapes:
    """TSCUNet: U-nets of three neighbours in turn, then residual blocks and enlargements."""
    net = Layers()

    def mixed(key: str, half: int, first: int = 0) -> None:
        for number in range(first, first + blocks):
            block = f"{key}.{number}"
            net.conv(f"{block}.conv1_1", 2 * half, 2 * half, 1)
            net.conv(f"{block}.conv1_2", 2 * half, 2 * half, 1)
            for part in (0, 2):
                net.conv(f"{block}.conv_block.{part}", half, half, bias=False)
            inner = f"{block}.trans_block"
            _norm(net, f"{inner}.ln1", half)
            _norm(net, f"{inner}.ln2", half)
            _linear(net, f"{inner}.msa.embedding_layer", 3 * half, half)
            net.shapes[f"{inner}.msa.relative_position_params"] = (half // 32, 15, 15)
            _linear(net, f"{inner}.msa.linear", half, half)
            _linear(net, f"{inner}.mlp.0", 4 * half, half)
            _linear(net, f"{inner}.mlp.2", half, 4 * half)

    net.conv("m_head.0", planes, 3, bias=False)
    for layer in range(frames // 2):
        key, wide = f"m_layers.{layer}", planes
        net.conv(f"{key}.m_head.0", planes, 3 * planes, bias=False)
        for level in (1, 2, 3):
            mixed(f"{key}.m_down{level}", wide // 2)
            net.conv(f"{key}.m_down{level}.{blocks}", 2 * wide, wide, 2, bias=False)
            wide *= 2
        mixed(f"{key}.m_body", wide // 2)
        for level in (3, 2, 1):
            net.conv(f"{key}.m_up{level}.0.up.1", wide, wide)
            net.conv(f"{key}.m_up{level}.0.up.3", wide // 2, wide)
            wide //= 2
            mixed(f"{key}.m_up{level}", wide // 2, 1)
        net.conv(f"{key}.m_res.0", planes, planes, bias=False)
        net.conv(f"{key}.m_tail.0", planes, planes, bias=False)
    net.conv("m_res.0", planes, planes, bias=False)
    for block in range(2):
        for part in (1, 2, 3):
            for number in range(1, 6):
                made = 32 if number < 5 else planes
                net.conv(
                    f"m_upsample.0.up.{block}.rdb{part}.conv{number}",
                    made,
                    planes + 32 * (number - 1),
                )
    last = 2
    for _ in range(scale // 2):
        net.conv(f"m_upsample.0.up.{last + 1}", planes, planes)
        last += 3
    net.conv(f"m_upsample.0.up.{last}", planes, planes)
    net.conv("m_tail.0", 3, planes, bias=False)
    return net.shapes
