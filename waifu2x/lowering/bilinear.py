"""Bounds the pixels that a bilinear enlargement to the size of another map may read.

Strided layers drop pixels at the right and bottom edges, and valid convolutions lose some at every
edge. So the ratio of two maps' sizes differs from that of their resolutions, and varies from
picture to picture; the graph bounds the difference, in pixels.
"""

from __future__ import annotations

import math
from fractions import Fraction

from waifu2x.lowering.ops.planewise import Resize
from waifu2x.lowering.values import Target, View
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution, InterpolateTo, MaxPool


def bilinear_resize(
    model: Model, value: int, node: InterpolateTo, source: View, target: Target
) -> Resize:
    """Returns the Resize step of `node`, which makes `value` of `model`."""
    small, large = model.shapes[node.source], model.shapes[value]
    assert small.resolution is not None
    assert large.resolution is not None
    ratio = large.resolution / small.resolution
    # Sizes that are symmetric about the picture's middle differ by the origins' distance twice.
    lost = _left_out(model)
    apart = 2 * abs(small.origin - large.origin) + lost[node.source] + lost[value]
    differing = max(1, math.ceil(small.resolution * apart))
    return Resize(
        value, source, target, ratio.numerator, ratio.denominator, "bilinear", differing + 1
    )


def _left_out(model: Model) -> list[Fraction]:
    """Returns, for each value, the most pixels of the picture by which it may be smaller than its
    resolution and origin say."""
    found = [Fraction(0)]
    for node in model.nodes:
        if isinstance(node, InterpolateTo):
            found.append(found[node.like])
            continue
        # Maps that are joined are of one size.
        own = min(found[source] for source in node.sources)
        resolution = model.shapes[node.sources[0]].resolution
        if isinstance(node, Convolution | MaxPool) and resolution is not None:
            own += (node.stride - 1) / resolution
        found.append(own)
    return found
