"""Reshape and Transpose: maps whose axes are divided and joined, which together shuffle pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.networks.readers.onnx.folding import new_shape
from waifu2x.networks.readers.onnx.graph import OnnxGraph
from waifu2x.networks.readers.onnx.values import DividedMap, Lengths, MapValue, lengths

_MOST_FACTORS = 12
Axes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_ONE: Lengths = (1, 1, 1)


def view_of(graph: OnnxGraph, found: MapValue) -> DividedMap:
    """Returns a map as a view of itself."""
    plain = graph.like(found, graph.plain(found))
    planes = graph.planes(plain.value)
    factors = ((planes,) * 3, *plain.size)
    return DividedMap(plain, ((0,), (1,), (2,)), ((), (0,), (1,), (2,)), factors)


def _without_ones(view: DividedMap, factors: Sequence[int]) -> tuple[int, ...]:
    return tuple(factor for factor in factors if view.lengths[factor] != _ONE)


def is_of_planes(view: DividedMap, axis: int) -> bool:
    """Returns whether an axis is all planes of the map, in their order."""
    if not 0 <= axis < len(view.dims):
        return False
    return _without_ones(view, view.dims[axis]) == _without_ones(view, view.axes[0])


def is_in_order(view: DividedMap) -> bool:
    """Returns whether planes, rows and columns come in the order of the map."""
    dims = [factor for dim in view.dims for factor in _without_ones(view, dim)]
    return dims == [factor for axis in view.axes for factor in _without_ones(view, axis)]


def groups_of(view: DividedMap) -> int | None:
    """Returns how many groups of neighbouring planes a view's second axis is.

    The first axis must be empty, and the others the rest of a group; None for other views.
    """
    dims = [_without_ones(view, dim) for dim in view.dims]
    planes = _without_ones(view, view.axes[0])
    if len(dims) < 3 or dims[0] or dims[1] != planes[: len(dims[1])]:
        return None
    return math.prod(view.lengths[factor][0] for factor in dims[1])


def with_source(graph: OnnxGraph, view: DividedMap, made: MapValue) -> MapValue | DividedMap:
    """Returns the view of another map of the same size; that map, if it is all of it."""
    source = graph.like(made, graph.plain(made))
    plain = view_of(graph, source)
    same = replace(view, source=source)
    dims = tuple(_without_ones(view, dim) for dim in view.dims)
    return source if dims == tuple(_without_ones(plain, dim) for dim in plain.dims) else same


def transposed(view: DividedMap, order: Sequence[int]) -> DividedMap | None:
    """Returns the axes in another order; None if `order` is none."""
    if sorted(order) != list(range(len(view.dims))):
        return None
    return replace(view, dims=tuple(view.dims[axis] for axis in order))


def reshaped(
    view: DividedMap, wanted: Sequence[Sequence[int]], *, keeps_zero: bool = True
) -> DividedMap | None:
    """Returns a view whose axes have the lengths wanted for each of the three pictures.

    None where these divide no factor of the view. Raises ValueError for what is no shape.
    """
    shapes = [
        new_shape(view.shape(picture), wanted[picture], keeps_zero=keeps_zero)
        for picture in range(3)
    ]
    if len({len(shape) for shape in shapes}) != 1:
        return None
    sizes, axes = list(view.lengths), view.axes
    left = [factor for dim in view.dims for factor in _without_ones(view, dim)]
    dims: list[tuple[int, ...]] = []
    for need in zip(*shapes, strict=True):
        dim: list[int] = []
        while need != _ONE:
            if not left:
                return None
            factor = left.pop(0)
            length = sizes[factor]
            if all(n % have == 0 for n, have in zip(need, length, strict=True)):
                dim.append(factor)
                need = tuple(n // have for n, have in zip(need, length, strict=True))
                continue
            inner = tuple(have // n if n else 0 for n, have in zip(need, length, strict=True))
            if any(n * m != have for n, m, have in zip(need, inner, length, strict=True)):
                return None
            if len(sizes) >= _MOST_FACTORS:
                return None
            made = len(sizes), len(sizes) + 1
            sizes += [lengths(need), lengths(inner)]
            axes = _of_axes(axes, factor, made)
            dim.append(made[0])
            left.insert(0, made[1])
            break
        dims.append(tuple(dim))
    if left:
        return None
    return replace(view, axes=axes, dims=tuple(dims), lengths=tuple(sizes))


def _of_axes(axes: Axes, factor: int, made: tuple[int, int]) -> Axes:
    """Puts two factors in the place of one."""
    planes, rows, columns = (
        tuple(new for old in axis for new in (made if old == factor else (old,))) for axis in axes
    )
    return planes, rows, columns


def repeated(graph: OnnxGraph, view: DividedMap, axis: int, times: int) -> DividedMap | None:
    """Returns a view with an axis of one `times` as long, each plane repeated; None for others.

    Raises ModelError for more planes than a map can have.
    """
    if _without_ones(view, view.dims[axis]) or times < 1 or len(view.lengths) >= _MOST_FACTORS:
        return None
    source, planes = view.source, graph.planes(view.source.value)
    graph.budget.take_bytes(8 * planes * times)
    value = graph.rearranged(source.value, np.repeat(np.arange(planes), times))
    dims, new = list(view.dims), len(view.lengths)
    dims[axis] = (new,)
    return DividedMap(
        graph.like(source, value),
        ((*view.axes[0], new), *view.axes[1:]),
        tuple(dims),
        (*view.lengths, (times,) * 3),
    )


def map_of(graph: OnnxGraph, view: DividedMap) -> MapValue | None:
    """Returns the map that a view is: its source, reordered, shuffled or unshuffled.

    None if it is none of these.
    """
    dims = [_without_ones(view, dim) for dim in view.dims]
    if len(dims) != 4 or dims[0]:
        return None
    planes, rows, columns = dims[1:]
    old_planes, old_rows, old_columns = (_without_ones(view, axis) for axis in view.axes)
    source, value = view.source, view.source.value
    if (rows, columns) == (old_rows, old_columns):
        order = _order(view, old_planes, planes)
        return None if order is None else source.made(graph.rearranged(value, order), int)
    counts = [len(axis) for axis in (old_rows, old_columns, rows, columns)]
    if counts == [1, 1, 2, 2]:  # out of the planes into rows and columns
        inner = rows[1], columns[1]
    elif counts == [2, 2, 1, 1]:
        inner = old_rows[1], old_columns[1]
    else:
        return None
    factor = view.lengths[inner[0]][0]
    if (rows[0], columns[0]) != (old_rows[0], old_columns[0]) or any(
        view.lengths[each] != (factor,) * 3 for each in inner
    ):
        return None
    if len(rows) == 2:
        order = _order(view, old_planes, (*planes, *inner))
        if order is None:
            return None
        value = graph.pixel_shuffle(graph.rearranged(value, order), factor)
        return source.made(value, lambda length: length * factor)
    order = _order(view, (*old_planes, *inner), planes)
    if order is None:
        return None
    value = graph.rearranged(graph.pixel_unshuffle(value, factor), order)
    return source.made(value, lambda length: length // factor)


def _order(
    view: DividedMap, have: tuple[int, ...], want: tuple[int, ...]
) -> NDArray[np.int64] | None:
    """Returns, for each plane made of the factors `want`, its index among those made of `have`."""
    if sorted(have) != sorted(want):
        return None
    sizes = [view.lengths[factor] for factor in have]
    if any(len(set(size)) != 1 for size in sizes):
        return None
    numbers = np.arange(np.prod([size[0] for size in sizes], dtype=np.int64))
    cube = numbers.reshape([size[0] for size in sizes])
    return cube.transpose([have.index(factor) for factor in want]).reshape(-1)
