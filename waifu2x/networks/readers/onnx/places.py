"""Joins and divides planes, cuts edges off and pads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.readers.onnx import views
from waifu2x.networks.readers.onnx.call import NodeCall
from waifu2x.networks.readers.onnx.folding import slices_of
from waifu2x.networks.readers.onnx.graph import OnnxGraph
from waifu2x.networks.readers.onnx.messages import OnnxNode
from waifu2x.networks.readers.onnx.values import (
    DividedMap,
    Lengths,
    MapValue,
    Value,
    lengths,
)


def concatenate(call: NodeCall) -> Value:
    """Adds Concat of planes."""
    if call.node.get("axis", 1) not in (1, -3):
        raise call.node.refused("it joins maps along another axis than planes: not supported")
    maps = [call.map(place) for place in range(len(call.inputs))]
    if len({each.shown for each in maps}) != 1:
        raise call.node.refused("maps of different sizes: not supported")
    return call.graph.like(maps[0], call.graph.concatenate(*map(call.graph.plain, maps)))


def split(call: NodeCall) -> list[Value]:
    """Adds Split of planes."""
    node, graph, found = call.node, call.graph, call.map()
    if node.get("axis", 0) not in (1, -3):
        raise node.refused("it splits another axis than planes: not supported")
    planes, count = graph.planes(found.value), len(node.outputs)
    given = call.whole(1)[0]
    parts = list(node.get("split", ())) if given is None else given.reshape(-1).tolist()
    parts = parts or [-(-planes // count)] * (count - 1)
    if len(parts) == count - 1:
        parts.append(planes - sum(parts))
    if len(parts) != count or sum(parts) != planes or min(parts) < 1:
        raise node.refused(f"damaged: {planes} planes in parts of {parts[:8]}")
    made: list[Value] = []
    first = 0
    for length in parts:
        made.append(_planes(graph, found, first, length))
        first += length
    return made


def _planes(graph: OnnxGraph, found: MapValue, first: int, count: int) -> MapValue:
    value = graph.plain(found)
    if count == graph.planes(value):
        return found
    return graph.like(found, graph.slice(value, first, count))


def scatter(call: NodeCall) -> Value:
    """Adds ScatterND that replaces neighbouring planes, as exporters write `x[:, :16] = y`."""
    node, graph = call.node, call.graph
    call.only("reduction", "none")
    view, updates, places = call.view(), call.view(2), call.whole(1)
    found = [None if each is None else _planes_of(each, view) for each in places]
    shapes = [
        None if each is None else (*each.shape[:-1], *view.shape(picture)[each.shape[-1] :])
        for picture, each in enumerate(places)
    ]
    first, count = found[0] or (0, 0)
    if (
        not (count and all(map(views.is_in_order, (view, updates))))
        or found != [(first, count)] * 3
        or shapes != [updates.shape(picture) for picture in range(3)]
    ):
        raise node.refused("it replaces other numbers than neighbouring planes: not supported")
    source, end = view.source, first + count
    parts = [updates.source]
    if first:
        parts.insert(0, _planes(graph, source, 0, first))
    if end < graph.planes(source.value):
        parts.append(_planes(graph, source, end, graph.planes(source.value) - end))
    made = [graph.plain(each) for each in parts]
    value = graph.concatenate(*made) if len(made) > 1 else made[0]
    return views.with_source(graph, view, graph.like(source, value))


def _planes_of(places: NDArray[np.int64], view: DividedMap) -> tuple[int, int] | None:
    """Returns first and count of the planes that indices name; None where they name others."""
    axes = places.shape[-1] if places.size else 0
    if not 1 <= axes <= len(view.dims) or not views.is_of_planes(view, axes - 1):
        return None
    shape, flat = view.shape(0), places.reshape(-1, axes)
    first, count = int(flat[0, -1]), len(flat)
    if (
        math.prod(shape[: axes - 1]) != 1
        or flat[:, :-1].any()
        or not 0 <= first <= shape[axes - 1] - count
        or not np.array_equal(flat[:, -1], np.arange(first, first + count))
    ):
        return None
    return first, count


def cut(call: NodeCall) -> Value:
    """Adds Slice: some planes, or a map whose edges are cut off."""
    node, found = call.node, call.map()
    numbers = [call.whole(place) for place in range(1, 5)]
    cuts = [slices_of(node, [None, *(each[picture] for each in numbers)]) for picture in range(3)]
    for places in zip(*cuts, strict=True):
        axis, _, _, step = places[0]
        if step != 1 or any((each[0], each[3]) != (axis, 1) for each in places):
            raise node.refused("steps other than 1: not supported")
        axis = axis + 4 if axis < 0 else axis
        planes = call.graph.planes(found.value)
        if not 1 <= axis <= 3:
            raise node.refused(f"it cuts axis {axis}: not supported")
        sizes = ((planes,) * 3, *found.shown)[axis - 1]
        bounds = [
            slice(each[1], each[2]).indices(length)[:2]
            for each, length in zip(places, sizes, strict=True)
        ]
        if any(end <= begin for begin, end in bounds):
            raise node.refused("nothing is left of a map")
        if axis == 1:
            if len(set(bounds)) != 1:
                raise node.refused("damaged: planes that depend on the picture's size")
            found = _planes(call.graph, found, bounds[0][0], bounds[0][1] - bounds[0][0])
        else:
            found = _cut_edges(call, found, axis - 2, bounds)
    return found


def _cut_edges(
    call: NodeCall, found: MapValue, axis: int, bounds: list[tuple[int, int]]
) -> MapValue:
    """Cuts rows (axis 0) or columns (1) to these bounds, for each picture."""
    sizes = found.shown[axis]
    before = lengths([begin for begin, _ in bounds])
    behind = lengths([n - end for n, (_, end) in zip(sizes, bounds, strict=True)])
    if found.pad:
        raise call.node.refused("it cuts a padding: not supported")
    # The pixels that made the picture up to a multiple are cut off again.
    resolution = call.graph.shape(found.value).resolution or Fraction(1)
    picture = call.graph.size[axis]
    multiple = call.graph.edge.multiple if call.graph.edge else 1
    more = [int(-n % multiple * resolution) for n in picture]
    if not any(before) and list(behind) == more and any(more):
        kept = lengths([n - by for n, by in zip(sizes, behind, strict=True)])
        rows, columns = found.size
        size = (rows, kept) if axis else (kept, columns)
        return replace(found, size=size, is_trimmed=True)
    cuts, place = list(found.cuts), 2 * axis
    for at, by in ((place, before), (place + 1, behind)):
        cuts[at] = lengths([old + new for old, new in zip(cuts[at], by, strict=True)])
    return replace(found, cuts=cast("tuple[Lengths, Lengths, Lengths, Lengths]", tuple(cuts)))


def pad(call: NodeCall) -> Value:
    """Notes Pad, of the picture or by zeros for a convolution; negative pads cut edges off."""
    node, found, graph = call.node, call.map(), call.graph
    sides = pads_of(node, [call.whole(1), call.whole(3)])
    if not any(map(any, sides)):
        return found
    if all(length <= 0 for side in sides for length in side):
        for axis, first, last in ((0, *sides[:2]), (1, *sides[2:])):
            bounds = [(-a, n + b) for a, b, n in zip(first, last, found.shown[axis], strict=True)]
            if any(end <= begin for begin, end in bounds):
                raise node.refused("nothing is left of a map")
            found = _cut_edges(call, found, axis, bounds)
        return found
    mode, fill = node.get("mode", "constant"), call.array(2)
    if graph.is_raw(found):
        return graph.padded(found, sides, mode)
    each = {length for side in sides for length in side}
    if mode != "constant" or (fill is not None and fill.any()) or node.get("value", 0.0):
        raise node.refused(f"it pads a map by {mode[:20]!r}: only zeros are supported")
    if len(each) != 1 or min(each) < 0 or not found.pending.is_nothing or found.is_trimmed:
        raise node.refused("it pads by different numbers of zeros: not supported")
    return replace(found, pad=found.pad + each.pop())


def pads_of(
    node: OnnxNode, given: Sequence[Sequence[NDArray[np.int64] | None]]
) -> tuple[Lengths, Lengths, Lengths, Lengths]:
    """Returns pixels above, below, left and right, from the inputs pads and axes."""
    by_picture = []
    for picture in range(3):
        pads, axes = (each[picture] for each in given)
        numbers = list(node.get("pads", ())) if pads is None else pads.reshape(-1).tolist()
        places = range(len(numbers) // 2) if axes is None else axes.reshape(-1).tolist()
        sides = [0] * 8
        if len(numbers) != 2 * len(places) or len(places) > 4:
            raise node.refused(f"damaged: {len(numbers)} pads")
        for place, axis in enumerate(places):
            if not -4 <= axis < 4:
                raise node.refused(f"it pads axis {axis}: not supported")
            sides[axis % 4], sides[axis % 4 + 4] = numbers[place], numbers[place + len(places)]
        if any(sides[:2]) or any(sides[4:6]):
            raise node.refused("it pads planes: not supported")
        by_picture.append((sides[2], sides[6], sides[3], sides[7]))
    above, below, left, right = (lengths(each) for each in zip(*by_picture, strict=True))
    return above, below, left, right
