"""Rewrites a graph, before it is lowered, into a cheaper one that computes the same.

- A zero-padded convolution behind a nearest enlargement becomes one of the small map and a pixel
  shuffle, with the taps that fall on the same pixel summed: a quarter of the input transforms, and
  the enlarged map is never made.
- A nearest enlargement added to a shuffled convolution becomes a further input of that convolution,
  which passes it on: no addition over all pixels of the result.
- A map of one plane that multiplies others is repeated for each of their planes.
- A crop behind a convolution moves before it, where it is only an offset of a view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.activations import Activation, leaky
from waifu2x.networks.digests import note_rewritten
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    MOST_PLANES,
    Add,
    Concatenate,
    Convolution,
    Crop,
    Enlarge,
    MultiplyMaps,
    Node,
    PixelShuffle,
)

_MOST_WEIGHTS = 1 << 24
"""The most weights of a convolution of a small map instead of the enlarged one, for the caches."""


def simplified(model: Model) -> Model:
    """Returns the same network in cheaper nodes; the model itself if there are none."""
    nodes: list[Node] = []
    places = [0]
    """The new number of each value of the model."""
    counts = [0] * (len(model.nodes) + 1)
    for node in model.nodes:
        for source in node.sources:
            counts[source] += 1

    def only(value: int) -> Node | None:
        """Returns the node that makes a value, if it has one reader."""
        return model.nodes[value - 1] if value and counts[value] == 1 else None

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes)

    for node in model.nodes:
        match node:
            case Convolution(stride=1, padding=1) if node.weight.shape[-1] == 3:
                enlarged = only(node.source)
                if isinstance(enlarged, Enlarge) and _is_small(node, enlarged.factor):
                    inner = _before_enlarging(node, enlarged.factor)
                    made = add(replace(inner, source=places[enlarged.source]))
                    places.append(add(PixelShuffle(made, enlarged.factor)))
                    continue
            case Crop():
                cropped = only(node.source)
                if isinstance(cropped, Convolution) and (cropped.stride, cropped.padding) == (1, 0):
                    made = add(Crop(places[cropped.source], node.pixels))
                    places.append(add(replace(cropped, source=made)))
                    continue
            case MultiplyMaps():
                planes = model.shapes[node.source].planes
                if model.shapes[node.other].planes < planes:
                    maker = only(node.other)
                    single = _passed_on(node.other)
                    if isinstance(maker, Convolution):
                        single = maker
                    single = replace(single, source=places[single.source])
                    other = add(_repeated(single, planes))
                    places.append(add(MultiplyMaps(places[node.source], other)))
                    continue
            case Add():
                pair = _shuffled_and_enlarged(model, node, only)
                if pair is not None:
                    shuffle, convolution, small = pair
                    wide = add(Concatenate((places[convolution.source], places[small])))
                    planes = model.shapes[small].planes
                    inner = _passing_on(convolution, planes, shuffle.factor)
                    made = add(replace(inner, source=wide))
                    places.append(add(PixelShuffle(made, shuffle.factor)))
                    continue
        places.append(add(node.renumbered(places)))
    if len(nodes) == len(model.nodes):
        return model
    rewritten = without_unread(replace(model, nodes=tuple(nodes)))
    note_rewritten(rewritten, model)
    return rewritten


def _is_small(node: Convolution, factor: int) -> bool:
    """Returns whether `_before_enlarging` would make few enough weights and planes to be
    cheaper."""
    made = len(node.bias) * factor**2
    return factor > 1 and made <= MOST_PLANES and node.weight.size * factor**2 <= _MOST_WEIGHTS


def _before_enlarging(node: Convolution, factor: int) -> Convolution:
    """Returns a convolution of the small map whose planes [plane][dy][dx] are the pixels that
    `node` makes of the map enlarged by `factor`."""
    made, read = node.weight.shape[:2]
    weight = np.zeros((made, factor, factor, read, 3, 3))
    for y, x in np.ndindex(factor, factor):
        for ky, kx in np.ndindex(3, 3):
            near = (y + ky - 1) // factor + 1, (x + kx - 1) // factor + 1
            weight[:, y, x, :, near[0], near[1]] += node.weight[:, :, ky, kx]
    return replace(
        node,
        weight=weight.reshape(made * factor**2, read, 3, 3).astype(np.float32),
        bias=node.bias.repeat(factor**2),
        activation=Activation(node.activation.function, node.activation.slopes.repeat(factor**2)),
    )


def _passed_on(source: int) -> Convolution:
    """Returns a 1x1 convolution that copies a map of one plane."""
    ones = np.ones((1, 1, 1, 1), np.float32)
    return Convolution(source, ones, np.zeros(1, np.float32), leaky(1.0, 1))


def _repeated(node: Convolution, planes: int) -> Convolution:
    """Returns the convolution with its one output plane repeated `planes` times."""
    activation = node.activation
    return replace(
        node,
        weight=node.weight.repeat(planes, axis=0),
        bias=node.bias.repeat(planes),
        activation=Activation(activation.function, activation.slopes.repeat(planes)),
    )


def _shuffled_and_enlarged(
    model: Model, node: Add, only: Callable[[int], Node | None]
) -> tuple[PixelShuffle, Convolution, int] | None:
    """Returns the shuffle, its convolution and the small map of an addition of a shuffled
    convolution and an enlarged map; None if `node` is no such addition."""
    for first, second in ((node.source, node.other), (node.other, node.source)):
        shuffle, enlarge = only(first), only(second)
        if not isinstance(shuffle, PixelShuffle) or not isinstance(enlarge, Enlarge):
            continue
        convolution = only(shuffle.source)
        if (
            isinstance(convolution, Convolution)
            and convolution.activation.is_linear
            and (convolution.stride, convolution.padding) == (1, 1)
            and convolution.weight.shape[-1] == 3
            and shuffle.factor == enlarge.factor
            and node.factor == 1
        ):
            return shuffle, convolution, enlarge.source
    return None


def _passing_on(node: Convolution, planes: int, factor: int) -> Convolution:
    """Returns the convolution with `planes` further inputs, each added to the factor x factor
    pixels that it makes of one."""
    more: NDArray[np.float32] = np.zeros((node.weight.shape[0], planes, 3, 3), np.float32)
    for plane in range(planes):
        more[plane * factor**2 : (plane + 1) * factor**2, plane, 1, 1] = 1
    return replace(node, weight=np.concatenate([node.weight, more], axis=1))


def without_unread(model: Model) -> Model:
    """Returns the model without nodes that the result does not depend on."""
    live = {len(model.nodes)}
    for value in range(len(model.nodes), 0, -1):
        if value in live:
            live.update(model.nodes[value - 1].sources)
    places, nodes = [0], list[Node]()
    for value, node in enumerate(model.nodes, 1):
        if value in live:
            nodes.append(node.renumbered(places))
        places.append(len(nodes))
    return replace(model, nodes=tuple(nodes))
