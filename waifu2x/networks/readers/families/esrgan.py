"""ESRGAN networks (RRDB), under the three ways in which the field names their layers."""

from __future__ import annotations

from waifu2x.errors import ModelError
from waifu2x.networks.model import Model
from waifu2x.networks.readers.named_graph import NamedGraph, NamedWeights


def esrgan(weights: NamedWeights) -> Model:
    """Builds residual blocks of dense blocks, then convolutions of maps enlarged by two."""
    names = _names_of_layers(weights)
    read = weights.length(f"{names['first']}.weight", 1)
    made = weights.planes(names["last"])
    unshuffle = next((by for by in (1, 2, 4) if read == made * by**2), None)
    if unshuffle is None:
        raise ModelError(f"{weights.name}: an ESRGAN that reads {read} planes and makes {made}")
    net = NamedGraph(weights, made)
    value = net.pixel_unshuffle(0, unshuffle) if unshuffle > 1 else 0
    first = value = net.same_size(value, names["first"])
    for block in range(int(names["blocks"])):
        outer = value
        for part in (1, 2, 3):
            value = dense_block(net, value, names["block"].format(block, part))
        value = net.add(value, outer, 0.2)
    value = net.add(net.same_size(value, names["trunk"]), first)
    for key in names["ups"].split():
        value = net.same_size(net.enlarge(value, 2), key, 0.2)
    value = net.same_size(value, names["hr"], 0.2)
    net.same_size(value, names["last"])
    return net.model("reflect", same_planes=True)


def dense_block(net: NamedGraph, source: int, key: str) -> int:
    """Adds five convolutions, each of all maps before it, a fifth of the result to the source."""
    plus = key.format("1x1").removesuffix(".0")
    has_more = f"{plus}.weight" in net.weights
    parts = [source]
    for number in range(1, 6):
        read = parts[0] if number == 1 else net.concatenate(*parts)
        value = net.same_size(read, key.format(number), 0.2 if number < 5 else 1.0)
        if has_more and number == 2:  # as ESRGAN+ has it
            value = net.add(value, net.same_size(source, plus, taps=1, has_bias=False))
        elif has_more and number == 4:
            value = net.add(value, parts[2])
        parts.append(value)
    return net.add(parts[-1], source, 0.2)


def _names_of_layers(weights: NamedWeights) -> dict[str, str]:
    """Returns the names of the layers; those inside a block have {} for a layer's number."""
    if "model.0.weight" in weights:
        blocks, ups = weights.count("model.1.sub.{}.RDB1.conv1.0"), 0
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
    return {
        "first": "conv_first",
        "blocks": str(weights.count(f"{body}.{{}}.{rdb}1.conv1")),
        "block": body + ".{}." + rdb + "{}.conv{{}}",
        "trunk": "trunk_conv" if older else "conv_body",
        "ups": " ".join(f"{up}{step + 1}" for step in range(weights.count(f"{up}{{}}", 1))),
        "hr": "HRconv" if older else "conv_hr",
        "last": "conv_last",
    }
