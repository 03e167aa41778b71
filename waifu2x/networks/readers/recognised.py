"""Which network weights by name are of, and that network.

The names of layers tell the architecture, and the shapes of weights all its sizes; what belongs to
no layer is refused.
"""

from __future__ import annotations

import re

from waifu2x.errors import ModelError
from waifu2x.networks.model import Model
from waifu2x.networks.readers.compact import compact, is_compact
from waifu2x.networks.readers.esrgan import esrgan, is_esrgan
from waifu2x.networks.readers.named_graph import NamedWeights
from waifu2x.networks.readers.span import is_span, span
from waifu2x.networks.readers.tensors import Contents
from waifu2x.networks.readers.waifu2x_named import is_stack, is_u_net, stack, u_net

_KNOWN = (
    (is_compact, compact),
    (is_span, span),
    (is_u_net, u_net),
    (is_esrgan, esrgan),
    (is_stack, stack),
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


def build(contents: Contents, name: str) -> Model:
    """The network; `name` stands for its file in messages.

    Raises ModelError for networks that are not known, by their name where they are, and for weights
    that are not those of their network.
    """
    for is_one, make in _KNOWN:
        if is_one(contents):
            weights = NamedWeights(contents, name)
            model = make(weights)
            weights.finish()
            return model
    for word, pattern in _UNSUPPORTED.items():
        if any(re.search(pattern, key) for key in contents.tensors):
            raise ModelError(f"{name}: {word}: not supported yet")
    some = ", ".join(sorted(contents.tensors)[:2])
    raise ModelError(f"{name}: weights of no network that is known ({some[:80]} ...)")
