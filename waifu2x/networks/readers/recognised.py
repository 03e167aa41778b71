"""Recognises the network of weights by name, and builds it.

The names of layers tell the architecture, and the shapes of weights all its sizes; weights that
belong to no layer are refused.
"""

from __future__ import annotations

import re
from collections.abc import Set
from importlib import import_module

from waifu2x.errors import ModelError
from waifu2x.networks.model import Model
from waifu2x.networks.readers.named_graph import NamedWeights
from waifu2x.networks.readers.tensors import Contents
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class _Family:
    """A family of networks, recognised by names of their weights."""

    module: str
    """The module of `readers/` that makes their graph; imported when it is needed."""
    function: str
    """That module's function."""
    keys: tuple[tuple[str, ...], ...]
    """Sets of names: a file that has all of one set is of this family."""


def _weights(*layers: str) -> tuple[str, ...]:
    return tuple(f"{layer}.weight" for layer in layers)


_FIRST = "layers.0.residual_group.blocks.0"
_KNOWN = (
    _Family("families.temporal", "tspan", (_weights("center_conv.sk", "fusion_conv.0.sk"),)),
    _Family("families.temporal", "tspan_v2", (_weights("m_head", "m_layers.0.blocks.0.c1_r.sk"),)),
    _Family("families.temporal", "tscunet", (_weights("m_head.0", "m_layers.0.m_body.0.conv1_1"),)),
    _Family("families.compact", "compact", (_weights("body.0", "body.1"),)),
    _Family(
        "families.swinir",
        "swinir",
        (
            _weights("conv_first", f"{_FIRST}.attn.qkv", f"{_FIRST}.mlp.fc1"),  # SwinIR, HAT
            _weights("conv_first.1", f"{_FIRST}.attn.qkv", f"{_FIRST}.mlp.fc1"),
            _weights("conv_first", f"{_FIRST}.attn.kv", f"{_FIRST}.attn.q"),  # SRFormer
        ),
    ),
    _Family(
        "families.dat",
        "dat",
        (_weights("conv_first", "layers.0.blocks.0.attn.qkv", "layers.0.blocks.0.ffn.sg.conv"),),
    ),
    _Family("families.swinir", "drct", (_weights("conv_first", "layers.0.swin1.attn.qkv"),)),
    _Family(
        "families.span",
        "span",
        tuple(
            _weights("conv_cat", "upsampler.0", f"block_1.c1_r.{part}")
            for part in ("sk", "eval_conv")
        ),
    ),
    _Family(
        "families.spanf3", "spanf3", (_weights("block_1.att_conv", "conv_cat", "block_1.c1_r.sk"),)
    ),
    _Family(
        "families.realplksr",
        "realplksr",
        (_weights("feats.0", "feats.1.channel_mixer.0", "feats.1.lk.conv"),),
    ),
    _Family("families.mosr", "mosr", (_weights("gblocks.0", "gblocks.1.fc1", "gblocks.1.conv"),)),
    _Family(
        "families.spanplus",
        "spanplus",
        tuple(_weights("feats.1.conv_cat", f"upsampler.{last}") for last in ("0", "offset")),
    ),
    _Family(
        "families.safmn",
        "safmn",
        (_weights("to_feat", "feats.0.safm.mfr.3", "feats.0.safm.aggr", "to_img.0"),),
    ),
    _Family(
        "families.omnisr",
        "omnisr",
        (_weights("input", "up.0", "residual_layer.0.residual_layer.0.layer.0.fn.0"),),
    ),
    _Family("families.swin_unet", "swin_unet", (_weights("unet.swin1.block.0.attn.qkv"),)),
    _Family(
        "families.waifu2x", "u_net", (_weights("unet1.conv1.conv.0", "unet2.conv2.seblock.conv1"),)
    ),
    _Family(
        "families.esrgan",
        "esrgan",
        (
            _weights("conv_first", "body.0.rdb1.conv1"),
            _weights("conv_first", "RRDB_trunk.0.RDB1.conv1"),
            _weights("model.0", "model.1.sub.0.RDB1.conv1.0"),
        ),
    ),
    _Family("families.waifu2x", "stack", (_weights("net.0", "net.2"),)),
    _Family(
        "families.rcan",
        "rcan",
        (
            _weights("tail.1", "body.0.body.0.body.3.conv_du.0"),  # RCAN
            _weights("tail.1", "head.0", "body.0.body.0", "body.0.body.2"),  # EDSR
        ),
    ),
    _Family(
        "families.artcnn", "artcnn", (_weights("res_block.0.conv.0.0", "depth_to_space.upscale.0"),)
    ),
)
"""In this order: the first that matches."""
_UNSUPPORTED = {
    "a Swin2SR": r"attn\.logit_scale",
    "an ATD": r"layers\.\d+\.residual_group\.td",
    "an RGT": r"layers\.\d+\.blocks\.\d+\.gamma",
    "a SCUNet": r"^m_body\.\d+\.trans_block",
    "a PLKSR": r"feats\.\d+\.channe_mixer",
    "a GRL": r"layers\.\d+\.blocks\.\d+\.attn\.(window_attn|stripe_attn)",
}
"""Unsupported architectures by a name of a weight that no other has; some look like known ones."""


def is_known(names: Set[str]) -> bool:
    """Returns whether weights of these names are those of a family of networks."""
    return _family(names) is not None


def unknown(names: Set[str], name: str) -> ModelError:
    """Returns the error for weights of no known family; `name` stands for their file."""
    word = _unsupported(names)
    if word:
        return ModelError(f"{name}: {word}: not supported")
    some = ", ".join(sorted(names)[:2])
    return ModelError(f"{name}: weights of no network that is known ({some[:80]} ...)")


def build(contents: Contents, name: str) -> Model:
    """Returns the network; `name` stands for its file in messages.

    Raises ModelError for unknown networks, by their name where it is known, and for weights that
    are not those of their network.
    """
    names = contents.tensors.keys()
    family = _family(names)
    if family is None or _unsupported(names):
        raise unknown(names, name)
    weights = NamedWeights(contents, name)
    module = import_module(f"waifu2x.networks.readers.{family.module}")
    model: Model = getattr(module, family.function)(weights)
    weights.finish()
    return model


def _family(names: Set[str]) -> _Family | None:
    for family in _KNOWN:
        if any(names >= set(keys) for keys in family.keys):
            return family
    return None


def _unsupported(names: Set[str]) -> str | None:
    for word, pattern in _UNSUPPORTED.items():
        if any(re.search(pattern, key) for key in names):
            return word
    return None
