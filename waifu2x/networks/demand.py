"""Bounds what a network may ask for, before anything is made of it.

A few bytes of a file can ask for maps joined from thousands of parts, or for layers that take
minutes for a small picture. The bounds lie well above the largest networks of the field: HAT-L has
41 million weights and about 60 million multiply-adds for a pixel of the picture, RCAN 1,400 nodes
and 200 means, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.errors import ModelError
from waifu2x.networks.attention import ChannelAttention
from waifu2x.networks.nodes import Concatenate, GroupNorm, Mean, Node, Slice, ValueShape, Weighted

_MOST_NODES = 4096
_MOST_PARTS = 4096
"""Maps that are joined to others, or cut out of joined ones, those inside one another counted."""
_MOST_SUMS = 512
"""Nodes that add up over the whole picture: each may have to wait for the one before."""
_MOST_OF_LAYER = 1 << 24
"""Weights of a layer."""
_MOST_WEIGHTS = 1 << 27
"""Weights of all layers, those that several share counted for each."""
MOST_FRAMES = 15
"""Frames of a film, which are in memory together; networks of the field take three to five."""
_MOST_WORK = 1 << 28
"""Multiply-adds for a pixel of the picture."""
_VECTOR = 16
"""Planes that are stored and computed together: each part of a map takes a multiple."""
_PLANE_WORK = 32
"""Multiply-adds that take as long as to read and write a plane of a pixel."""


def check_demand(nodes: Sequence[Node], shapes: Sequence[ValueShape], frames: int) -> None:
    """Raises ModelError, whose message has no file, if nodes ask for too much.

    `shapes` are those of the picture and of each node's value; `frames` of a film are in a picture.
    """
    _check(frames, MOST_FRAMES, "frames of a film")
    _check(len(nodes), _MOST_NODES, "nodes")
    parts, stored = [1], [_VECTOR]
    joined, sums, weights, work = 0, 0, 0, 0.0
    for value, (node, shape) in enumerate(zip(nodes, shapes[1:], strict=True), 1):
        parts.append(1)
        stored.append(-(-shape.planes // _VECTOR) * _VECTOR)
        own = 0
        if isinstance(node, Concatenate):
            parts[-1] = sum(parts[source] for source in node.sources)
            stored[-1] = sum(stored[source] for source in node.sources)
            joined += parts[-1]
        elif isinstance(node, Slice):
            joined += parts[node.source]
            if parts[node.source] == 1:  # planes may be passed on by a layer
                own = shape.planes * shapes[node.source].planes
        elif isinstance(node, Weighted):
            own = node.weight.size * stored[node.source] // shapes[node.source].planes
        sums += isinstance(node, Mean | GroupNorm | ChannelAttention)
        weights += own
        pixels = float(shape.resolution or 0) ** 2
        work += float(node.multiply_adds + _PLANE_WORK * stored[-1]) * pixels
        _check(own, _MOST_OF_LAYER, "weights of a layer", node.label(value))
        _check(joined, _MOST_PARTS, "joined maps", node.label(value))
    _check(sums, _MOST_SUMS, "means over the picture")
    _check(weights, _MOST_WEIGHTS, "weights")
    _check(round(work), _MOST_WORK, "multiply-adds for a pixel of the picture")


def _check(found: int, most: int, what: str, label: str = "") -> None:
    if found > most:
        where = f"{label}: " if label else ""
        raise ModelError(f"{where}it asks for more than {most:,} {what}", "use a smaller network")
