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
_ONE: Lengths = (1, 1, 1)


def view_of(graph: OnnxGraph, found: MapValue) -> DividedMap:
    """A map as a view of itself."""
    rows, columns = found.shown_rows, found.shown_columns
    plain = MapValue(graph.plain(found), rows, columns, is_trimmed=found.is_trimmed)
    planes = graph.planes(plain.value)
    factors = ((planes,) * 3, rows, columns)
    return DividedMap(plain, (0,), (1,), (2,), ((), (0,), (1,), (2,)), factors)


def _without_ones(view: DividedMap, factors: Sequence[int]) -> tuple[int, ...]:
    return tuple(factor for factor in factors if view.lengths[factor] != _ONE)


def is_of_planes(view: DividedMap, axis: int) -> bool:
    """Whether an axis is all planes of the map, in their order."""
    if not 0 <= axis < len(view.dims):
        return False
    return _without_ones(view, view.dims[axis]) == _without_ones(view, view.planes)


def is_in_order(view: DividedMap) -> bool:
    """Whether all planes come before all rows, and these before all columns, as in the map."""
    dims = [factor for dim in view.dims for factor in _without_ones(view, dim)]
    return dims == [
        *_without_ones(view, view.planes),
        *_without_ones(view, view.rows),
        *_without_ones(view, view.columns),
    ]


def groups_of(view: DividedMap) -> int | None:
    """How many groups of neighbouring planes the second axis is, where the first is empty and the
    others are all that is left of a group; None where it is something else."""
    dims = [_without_ones(view, dim) for dim in view.dims]
    planes = _without_ones(view, view.planes)
    if len(dims) < 3 or dims[0] or dims[1] != planes[: len(dims[1])]:
        return None
    return math.prod(view.lengths[factor][0] for factor in dims[1])


def with_source(graph: OnnxGraph, view: DividedMap, made: MapValue) -> MapValue | DividedMap:
    """The same view of another map of the same size: that map itself, if it is all of it."""
    source = graph.like(made, graph.plain(made))
    plain = view_of(graph, source)
    same = replace(view, source=source)
    dims = tuple(_without_ones(view, dim) for dim in view.dims)
    return source if dims == tuple(_without_ones(plain, dim) for dim in plain.dims) else same


def transposed(view: DividedMap, order: Sequence[int]) -> DividedMap | None:
    """The axes in another order; None for what is none."""
    if sorted(order) != list(range(len(view.dims))):
        return None
    return DividedMap(
        *(view.source, view.planes, view.rows, view.columns),
        tuple(view.dims[axis] for axis in order),
        view.lengths,
    )


def reshaped(
    view: DividedMap, wanted: Sequence[Sequence[int]], *, keeps_zero: bool = True
) -> DividedMap | None:
    """Axes of these lengths, wanted for each of the three pictures; None where factors do not fit.

    Raises ValueError for what is no shape.
    """
    shapes = [
        new_shape(view.shape(picture), wanted[picture], keeps_zero=keeps_zero)
        for picture in range(3)
    ]
    if len({len(shape) for shape in shapes}) != 1:
        return None
    work = _Factors(view)
    left = [factor for dim in view.dims for factor in dim if view.lengths[factor] != _ONE]
    dims: list[tuple[int, ...]] = []
    for axis in range(len(shapes[0])):
        need = tuple(shape[axis] for shape in shapes)
        dim: list[int] = []
        while need != _ONE:
            if not left:
                return None
            factor = left.pop(0)
            length = work.lengths[factor]
            if all(n % have == 0 for n, have in zip(need, length, strict=True)):
                dim.append(factor)
                need = tuple(n // have for n, have in zip(need, length, strict=True))
                continue
            inner = tuple(have // n if n else 0 for n, have in zip(need, length, strict=True))
            outer = need
            if any(n * m != have for n, m, have in zip(outer, inner, length, strict=True)):
                return None
            if len(work.lengths) >= _MOST_FACTORS:
                return None
            first, second = work.divide(factor, outer, inner)
            dim.append(first)
            left.insert(0, second)
            need = _ONE
        dims.append(tuple(dim))
    if left:
        return None
    return work.view(dims)


def repeated(graph: OnnxGraph, view: DividedMap, axis: int, times: int) -> DividedMap | None:
    """A view with an axis of one so many times as long, each plane repeated; None for other axes.

    Raises ModelError for more planes than a map can have.
    """
    if _without_ones(view, view.dims[axis]) or times < 1 or len(view.lengths) >= _MOST_FACTORS:
        return None
    source, planes = view.source, graph.planes(view.source.value)
    graph.budget.take_bytes(8 * planes * times)
    value = graph.rearranged(source.value, np.repeat(np.arange(planes), times))
    dims = list(view.dims)
    dims[axis] = (len(view.lengths),)
    return DividedMap(
        graph.like(source, value),
        (*view.planes, len(view.lengths)),
        *(view.rows, view.columns, tuple(dims)),
        (*view.lengths, (times,) * 3),
    )


class _Factors:
    """The factors of a view's axes while they are divided."""

    def __init__(self, view: DividedMap) -> None:
        self._source = view.source
        self._axes = [list(view.planes), list(view.rows), list(view.columns)]
        self.lengths = list(view.lengths)

    def divide(self, factor: int, outer: Sequence[int], inner: Sequence[int]) -> tuple[int, int]:
        """Two factors in the place of one."""
        made = len(self.lengths), len(self.lengths) + 1
        self.lengths += [lengths(outer), lengths(inner)]
        for axis in self._axes:
            if factor in axis:
                place = axis.index(factor)
                axis[place : place + 1] = made
        return made

    def view(self, dims: list[tuple[int, ...]]) -> DividedMap:
        """The view of such axes."""
        planes, rows, columns = (
            tuple(factor for factor in axis if self.lengths[factor] != _ONE) for axis in self._axes
        )
        return DividedMap(self._source, planes, rows, columns, tuple(dims), tuple(self.lengths))


def map_of(graph: OnnxGraph, view: DividedMap) -> MapValue | None:
    """The map that a view is: as it was, shuffled or unshuffled; None if it is none of these."""
    dims = tuple(
        tuple(factor for factor in dim if view.lengths[factor] != _ONE) for dim in view.dims
    )
    if len(dims) != 4 or dims[0]:
        return None
    source = view.source
    axes = [
        tuple(factor for factor in axis if view.lengths[factor] != _ONE)
        for axis in (view.planes, view.rows, view.columns)
    ]
    planes, rows, columns = dims[1:]
    if (rows, columns) == (axes[1], axes[2]):
        return _reordered(graph, view, axes[0], planes)
    if (len(axes[1]), len(axes[2]), len(rows), len(columns)) == (1, 1, 2, 2):
        # Out of the planes into rows and columns.
        inner = rows[1], columns[1]
        if (rows[0], columns[0]) != (axes[1][0], axes[2][0]):
            return None
        factor = view.lengths[inner[0]][0]
        if any(view.lengths[each] != (factor,) * 3 for each in inner):
            return None
        sorted_ = _order(view, axes[0], (*planes, *inner))
        if sorted_ is None:
            return None
        value = graph.pixel_shuffle(graph.rearranged(source.value, sorted_), factor)
        return _sized(source, value, factor, 1)
    if (len(axes[1]), len(axes[2]), len(rows), len(columns)) == (2, 2, 1, 1):
        inner = axes[1][1], axes[2][1]
        if (rows[0], columns[0]) != (axes[1][0], axes[2][0]):
            return None
        factor = view.lengths[inner[0]][0]
        if any(view.lengths[each] != (factor,) * 3 for each in inner):
            return None
        sorted_ = _order(view, (*axes[0], *inner), planes)
        if sorted_ is None:
            return None
        value = graph.rearranged(graph.pixel_unshuffle(source.value, factor), sorted_)
        return _sized(source, value, 1, factor)
    return None


def _reordered(
    graph: OnnxGraph, view: DividedMap, have: tuple[int, ...], want: tuple[int, ...]
) -> MapValue | None:
    order = _order(view, have, want)
    if order is None:
        return None
    return _sized(view.source, graph.rearranged(view.source.value, order), 1, 1)


def _order(
    view: DividedMap, have: tuple[int, ...], want: tuple[int, ...]
) -> NDArray[np.int64] | None:
    """Which plane of those made of the factors `have` each one made of `want` is."""
    if sorted(have) != sorted(want):
        return None
    sizes = [view.lengths[factor] for factor in have]
    if any(len(set(size)) != 1 for size in sizes):
        return None
    numbers = np.arange(np.prod([size[0] for size in sizes], dtype=np.int64))
    cube = numbers.reshape([size[0] for size in sizes])
    return cube.transpose([have.index(factor) for factor in want]).reshape(-1)


def _sized(source: MapValue, value: int, up: int, down: int) -> MapValue:
    rows, columns = (
        lengths([length * up // down for length in each]) for each in (source.rows, source.columns)
    )
    return MapValue(value, rows, columns, is_trimmed=source.is_trimmed)
