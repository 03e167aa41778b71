"""SAFMN: blocks in which parts of the planes are seen at a half, a quarter and an eighth of the
size."""

from __future__ import annotations

from waifu2x.errors import ModelError
from waifu2x.networks.activations import elementwise
from waifu2x.networks.expressions import GELU
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import MaxPool
from waifu2x.networks.readers.families.swin import normalised
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights

_EPS = 1e-6
_PARTS = 4


def safmn(weights: NamedWeights) -> Model:
    """Builds blocks between two convolutions; the last one is shuffled."""
    net = NamedGraph(weights, weights.length("to_feat.weight", 1))
    first = value = net.same_size(0, "to_feat")
    for block in range(weights.count("feats.{}.norm1")):
        value = _block(net, value, f"feats.{block}")
    net.last_convolution(net.add(value, first), "to_img.0")
    # All sizes at which parts are seen are to be whole.
    return net.model("reflect", same_planes=True, multiple=2 ** (_PARTS - 1))


def _block(net: NamedGraph, source: int, key: str) -> int:
    normed = normalised(net, source, f"{key}.norm1", _EPS)
    seen = net.same_size(
        _seen_from_afar(net, normed, f"{key}.safm.mfr"),
        f"{key}.safm.aggr",
        elementwise(GELU, net.planes(source)),
        taps=1,
    )
    value = net.add(net.multiply(seen, normed), source)
    inner = f"{key}.ccm.ccm"
    made = net.same_size(
        normalised(net, value, f"{key}.norm2", _EPS),
        f"{inner}.0",
        elementwise(GELU, net.weights.planes(f"{inner}.0")),
    )
    return net.add(net.same_size(made, f"{inner}.2", taps=1), value)


def _seen_from_afar(net: NamedGraph, source: int, key: str) -> int:
    """Convolves each part of the planes at its own size: maxima of 1, 2, 4 or 8 pixels a side."""
    planes, over = divmod(net.planes(source), _PARTS)
    if over:
        raise ModelError(f"{net.name}: {key[:80]}: {_PARTS} parts of {net.planes(source)} planes")
    seen = []
    for part, value in enumerate(net.split(source, *[planes] * _PARTS)):
        side, layer = 2**part, f"{key}.{part}"
        if side > 1:
            value = net.append(MaxPool(value, side, side))
        value = net.depthwise(value, layer)
        seen.append(net.enlarge(value, side) if side > 1 else value)
    return net.concatenate(*seen)
