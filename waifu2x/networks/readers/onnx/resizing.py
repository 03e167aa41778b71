"""Enlarges and reduces maps: shuffles, also in several steps, and interpolation."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from waifu2x.networks.nodes import Interpolate, InterpolateTo
from waifu2x.networks.readers.onnx import views
from waifu2x.networks.readers.onnx.call import NodeCall
from waifu2x.networks.readers.onnx.folding import axes_of
from waifu2x.networks.readers.onnx.values import DividedMap, MapValue, Value, map_size


def depth_to_space(call: NodeCall) -> Value:
    """Adds DepthToSpace, its planes in ONNX's order, or in PyTorch's."""
    found, node, graph = call.map(), call.node, call.graph
    factor = _block(call)
    source, planes = graph.plain(found), graph.planes(found.value)
    match node.get("mode", "DCR"):
        case "DCR" if planes % factor**2 == 0:
            order = np.arange(planes).reshape(factor, factor, -1).transpose(2, 0, 1).reshape(-1)
            source = graph.rearranged(source, order)
        case "CRD":
            pass
        case other:
            raise node.refused(f"mode {other[:20]!r} of {planes} planes")
    return found.made(graph.pixel_shuffle(source, factor), lambda length: length * factor)


def space_to_depth(call: NodeCall) -> Value:
    """Adds SpaceToDepth: planes are grouped by their offset in the block."""
    found, graph = call.map(), call.graph
    factor = _block(call)
    made = graph.pixel_unshuffle(graph.plain(found), factor)
    order = np.arange(graph.planes(made)).reshape(-1, factor, factor).transpose(1, 2, 0)
    made = graph.rearranged(made, order.reshape(-1))
    return found.made(made, lambda length: length // factor)


def _block(call: NodeCall) -> int:
    factor = call.node.get("blocksize", 1)
    if not 1 <= factor <= 64:
        raise call.node.refused(f"damaged: blocks of {factor}")
    return factor


def resize(call: NodeCall) -> Value:
    """Adds Resize or Upsample.

    Nearest by whole factors, linear by those and to the size of another map, cubic by any.
    """
    found, node, graph = call.map(), call.node, call.graph
    mode = node.get("mode", "nearest")
    places = node.get("coordinate_transformation_mode", "half_pixel")
    if node.op == "Upsample":
        places = "asymmetric"
    is_linear = mode == "linear" and places in ("half_pixel", "pytorch_half_pixel")
    if is_linear and not node.get("antialias", 0):
        return _linear(call, found)
    by = _scale(call, found)
    if by == 1:
        return found
    source = graph.plain(found)
    if mode == "nearest" and by.denominator == 1:
        rounding = node.get("nearest_mode", "round_prefer_floor")
        if places not in ("asymmetric", "half_pixel", "pytorch_half_pixel") or (
            places == "asymmetric" and rounding != "floor" and node.op == "Resize"
        ):
            raise node.refused(f"nearest, {places[:20]} and {rounding[:20]}: not supported")
        return found.made(graph.enlarge(source, int(by)), lambda length: length * int(by))
    if mode == "cubic" and places in ("half_pixel", "pytorch_half_pixel"):
        if node.get("cubic_coeff_a", -0.75) != -0.75 or node.get("exclude_outside", 0):
            raise node.refused("another cubic than that of -0.75: not supported")
        call.up_to_its_edges(found)
        made = graph.append(Interpolate(source, by.numerator, by.denominator))
        return found.made(made, lambda length: length * by.numerator // by.denominator)
    raise node.refused(f"mode {mode[:20]!r} by {by}, {places[:20]}: not supported")


def _linear(call: NodeCall, found: MapValue) -> Value:
    """Adds bilinear interpolation to the size of another map, or by a whole factor."""
    node, graph = call.node, call.graph
    call.up_to_its_edges(found)
    source = graph.plain(found)
    wanted = [[int(n) for n in each[2:]] for each in call.whole(3) if each is not None]
    if wanted and all(len(each) == 2 for each in wanted):
        size = map_size(zip(*wanted, strict=True))
        like = graph.of_size(size)
        if like is not None:
            return MapValue(graph.append(InterpolateTo(source, like)), size)
    by = _scale(call, found)
    if by.denominator != 1:
        raise node.refused(f"mode 'linear' by {by}: not supported")
    like = graph.enlarge(source, int(by))
    return found.made(graph.append(InterpolateTo(source, like)), lambda length: length * int(by))


def _scale(call: NodeCall, found: MapValue) -> Fraction:
    """Returns by how much a map is enlarged, the same in both directions for every size."""
    node = call.node
    sizes = call.whole(3)
    if sizes[0] is not None:
        scales = set()
        for picture, wanted in enumerate(sizes):
            have = [each[picture] for each in found.shown]
            if wanted is None or wanted.size != 4:
                raise node.refused("damaged: sizes of other than four axes")
            scales |= {Fraction(int(n), m) for n, m in zip(wanted[2:], have, strict=True)}
    else:
        given = call.array(1 if node.op == "Upsample" else 2)
        numbers = node.fractions("scales") if given is None else tuple(given.reshape(-1).tolist())
        if (
            len(numbers) != 4
            or tuple(numbers[:2]) != (1, 1)
            or not all(0 < n < 64 for n in numbers)
        ):
            raise node.refused("damaged: scales of other than four axes")
        scales = {Fraction(each).limit_denominator(64) for each in numbers[2:]}
    if len(scales) != 1:
        raise node.refused("it enlarges to a size that does not follow from the picture's")
    return scales.pop()


def reshape(call: NodeCall) -> Value:
    """Returns a Reshape of a map, a step of a shuffle."""
    keeps_zero = not call.node.get("allowzero", 0)
    wanted = call.whole(1)
    if wanted[0] is None:
        raise call.node.refused("damaged: no shape")
    numbers = [[int(n) for n in each.reshape(-1)] for each in wanted if each is not None]
    try:
        made = views.reshaped(call.view(), numbers, keeps_zero=keeps_zero)
    except ValueError as error:
        raise call.node.refused(f"damaged: {error}") from None
    if made is None:
        raise call.node.refused("a shape that is no step of a shuffle: not supported")
    return made


def expand(call: NodeCall) -> Value:
    """Returns an Expand of a map: axes of one, as parts of planes."""
    view = call.view()
    times = []
    for picture, wanted in enumerate(call.whole(1)):
        shape = view.shape(picture)
        numbers = [] if wanted is None else [int(n) for n in wanted.reshape(-1)]
        if wanted is None or len(numbers) > len(shape):
            raise call.node.refused("it repeats a map: not supported")
        numbers = [1] * (len(shape) - len(numbers)) + numbers
        times.append([1 if n == have else n for n, have in zip(numbers, shape, strict=True)])
    return _repeated(call, view, times)


def tile(call: NodeCall) -> Value:
    """Returns a Tile of a map: axes of one, as parts of planes."""
    view = call.view()
    times = [[] if each is None else [int(n) for n in each.reshape(-1)] for each in call.whole(1)]
    return _repeated(call, view, times)


def _repeated(call: NodeCall, view: DividedMap, times: list[list[int]]) -> Value:
    """Repeats a map along each axis, `times` for each picture."""
    if any(each != times[0] for each in times) or len(times[0]) != len(view.dims):
        raise call.node.refused("it repeats a map: not supported")
    for axis, count in enumerate(times[0]):
        if count == 1:
            continue
        made = views.repeated(call.graph, view, axis, count)
        if made is None:
            raise call.node.refused("it repeats other than single planes: not supported")
        view = made
    return views.map_of(call.graph, view) or view


def transpose(call: NodeCall) -> Value:
    """Returns a Transpose of a map, a step of a shuffle."""
    view = call.view()
    order = call.node.get("perm", ()) or tuple(reversed(range(len(view.dims))))
    made = views.transposed(view, order)
    if made is None:
        raise call.node.refused(f"damaged: axes {order[:8]}")
    return made


def squeeze(call: NodeCall) -> Value:
    """Returns a Squeeze or Unsqueeze of a map: axes of one, which no shuffle needs."""
    view, node = call.view(), call.node
    axes = axes_of(node, call.whole(1)[0]) or ()
    more = len(axes) if node.op == "Unsqueeze" else 0
    places = {axis + len(view.dims) + more if axis < 0 else axis for axis in axes}
    dims: list[tuple[int, ...]] = []
    if node.op == "Unsqueeze":
        old = iter(view.dims)
        for place in range(len(view.dims) + more):
            dims.append(() if place in places else next(old, ()))
    else:
        dims = [dim for place, dim in enumerate(view.dims) if place not in places]
        if any(view.dims[place] for place in places if place < len(view.dims)):
            raise node.refused("damaged: it leaves out an axis that is longer than 1")
    if len(places) != len(axes) or len(dims) > 8:
        raise node.refused(f"damaged: axes {axes[:8]}")
    return replace(view, dims=tuple(dims))
