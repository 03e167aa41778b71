"""Computes attention in float64: in windows, one by one and head by head, and between planes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.reference.steps import MapPart, Planes
from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    AttentionStep,
    CrossSums,
    MixPlanes,
    existing,
    weights_of_planes,
)
from waifu2x.lowering.plan.box import Box, overlap
from waifu2x.lowering.values import View
from waifu2x.networks.model import Size


def attended(
    step: AttendWindows, box: Box, sizes: Sequence[Size], maps: Mapping[int, MapPart]
) -> Planes:
    """Returns the results in a box of whole windows, (rows, columns, planes), zeros beyond the
    map."""

    def window(begin: tuple[int, int], inner: Box) -> Planes:
        return _window(step, begin, inner, sizes, maps)

    return _by_windows(step, box, sizes[step.source.value], window)


def planes_attended(
    step: AttendPlanes, box: Box, sizes: Sequence[Size], maps: Mapping[int, MapPart]
) -> Planes:
    """Returns the results of attention between planes in a box of whole windows, likewise."""

    def window(begin: tuple[int, int], inner: Box) -> Planes:
        views = step.source, step.keys, step.values
        q, k, v = (
            _planes(view, first, inner, step, sizes, maps)
            for view, first in zip(views, step.first, strict=True)
        )
        query_norms, key_norms = (np.sqrt((one**2).sum(axis=(0, 1))) for one in (q, k))
        products = np.einsum("yxhi,yxhj->hij", q, k)
        weights = weights_of_planes(products, query_norms, key_norms, step.temperature)
        made: Planes = np.einsum("hij,yxhj->yxhi", weights, v)
        return made.reshape(inner.height, inner.width, -1)

    return _by_windows(step, box, sizes[step.source.value], window)


def _by_windows(
    step: AttentionStep, box: Box, size: Size, window: Callable[[tuple[int, int], Box], Planes]
) -> Planes:
    """Returns the results in a box of whole windows, for a map of that size.

    `window` takes a window's first pixel and its box inside the map, and returns its results.
    """
    windows = step.windows
    made = np.zeros((box.height, box.width, step.planes))
    for top in range(box.top, box.bottom, windows.rows):
        for left in range(box.left, box.right, windows.columns):
            inner = overlap(Box(top, left, windows.rows, windows.columns), Box(0, 0, *size))
            if inner.height and inner.width:
                place = (
                    slice(inner.top - box.top, inner.bottom - box.top),
                    slice(inner.left - box.left, inner.right - box.left),
                )
                made[place] = window((top, left), inner)
    return made


def _window(
    step: AttendWindows,
    begin: tuple[int, int],
    queries: Box,
    sizes: Sequence[Size],
    maps: Mapping[int, MapPart],
) -> Planes:
    """Returns the results of the window that begins at `begin`; `queries` is its box in the map."""
    windows, cell = step.windows, step.windows.cell
    rows, columns = (
        existing(windows, axis, begin[axis], sizes[step.source.value][axis]) for axis in (0, 1)
    )
    under = Box(rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0])
    q = _planes(step.source, step.first[0], queries, step, sizes, maps)
    k = _planes(step.keys, step.first[1], under, step, sizes, maps)
    v = _planes(step.values, step.first[2], under, step, sizes, maps)
    places = []
    for size, start, own, first, end in (
        (windows.rows, begin[0], np.arange(queries.top, queries.bottom), *rows),
        (windows.columns, begin[1], np.arange(queries.left, queries.right), *columns),
    ):
        # Counted from the first key that the window would have in an infinite map.
        key = np.arange(first, end) - (start - windows.overlap) // cell
        query = (own - start) // cell
        places.append(key - query[:, None] + size // cell - 1)
    down, across = places
    bias = step.bias.astype(np.float64)[:, down[:, None, :, None], across[None, :, None, :]]
    logits = np.einsum("yxhd,rchd->hyxrc", q, k) * step.scale + bias
    powers = np.exp(logits - logits.max(axis=(3, 4), keepdims=True))
    weights = powers / powers.sum(axis=(3, 4), keepdims=True)
    found: Planes = np.einsum("hyxrc,rchd->yxhd", weights, v)
    return found.reshape(queries.height, queries.width, step.planes)


def _planes(
    view: View,
    first: int,
    box: Box,
    step: AttentionStep,
    sizes: Sequence[Size],
    maps: Mapping[int, MapPart],
) -> NDArray[np.float64]:
    """Returns a box of a map, (rows, columns, heads, planes), with zeros beyond the map."""
    inner = overlap(box, Box(0, 0, *sizes[view.value]))
    found = np.zeros((box.height, box.width, step.planes))
    if inner.height and inner.width:
        pixels = maps[view.value].read(inner)[..., first : first + step.planes]
        top, left = inner.top - box.top, inner.left - box.left
        found[top : top + inner.height, left : left + inner.width] = pixels
    return found.reshape(box.height, box.width, step.heads, -1)


def cross_sums(step: CrossSums, box: Box, pixels: Planes) -> NDArray[np.float64]:
    """Returns the contribution of a box of a map to the sums of CrossSums."""
    parts = [_cross_sums(step, pixels[part]) for part in _apart(box, step.period)]
    return np.concatenate(parts)


def _cross_sums(step: CrossSums, pixels: Planes) -> NDArray[np.float64]:
    """Returns the sums of one part."""
    queries, keys = (
        pixels[..., first : first + step.planes].reshape(-1, step.heads, step.planes // step.heads)
        for first in step.first
    )
    products = np.einsum("phi,phj->hij", queries, keys)
    squares = [(one**2).sum(axis=0).ravel() for one in (queries, keys)]
    return np.concatenate([products.ravel(), *squares])


def mixed(
    step: MixPlanes, box: Box, weights: NDArray[np.float64], maps: Mapping[int, MapPart]
) -> Planes:
    """Returns the results in a box, (rows, columns, planes)."""
    pixels = maps[step.source.value].read(box)[..., step.first : step.first + step.planes]
    depth = step.planes // step.heads
    values = pixels.reshape(box.height, box.width, step.heads, depth)
    # Plane by plane, since the rounding of matrix products would depend on the number of pixels.
    made = np.zeros_like(values)
    parts = zip(
        _apart(box, step.period), weights.reshape(-1, step.heads, depth, depth), strict=True
    )
    for part, by in parts:
        for plane in range(depth):
            made[part] += values[part][..., plane : plane + 1] * by[:, plane]
    return made.reshape(box.height, box.width, step.planes)


def _apart(box: Box, period: int) -> Iterator[tuple[slice, slice]]:
    """Yields, for each pixel of a cell of `period` x `period` pixels, its rows and columns in a
    box."""
    for y, x in np.ndindex(period, period):
        yield (
            slice((y - box.top) % period, None, period),
            slice((x - box.left) % period, None, period),
        )
