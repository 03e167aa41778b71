"""Computes the results of each class of step in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.imaging.dtypes import to_unit
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv, Depthwise, Resized
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import (
    InterleavePixels,
    Planewise,
    PlanewiseStep,
    PoolMaxima,
    Rearrange,
    Resize,
    SampleGrid,
)
from waifu2x.lowering.plan.box import Box, divided, scaled
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.model import Border, Model, Size
from waifu2x.networks.nodes import cubic_taps

Planes = NDArray[np.float64]
"""A map, (rows, columns, planes), or part of one."""


class StepArithmetic:
    """Computes the steps of a program on maps of one picture."""

    def __init__(
        self,
        program: Program,
        picture: NDArray[Any],
        sizes: Sequence[Size],
        vectors: Mapping[int, Planes],
    ) -> None:
        """`sizes` are those of all values; `vectors` holds the vectors made by earlier steps."""
        self._program = program
        self._picture = picture
        self._sizes = sizes
        self._vectors = vectors

    def conv(self, step: Conv, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns the results in a box before the residual, (rows, columns, planes), as
        depth-to-space stores them."""
        fold = self._program.values[step.source.value].space_to_depth
        reach = step.taps - 1
        read = Box(box.top, box.left, box.height + reach, box.width + reach)
        if fold > 1:
            value = self._program.values[step.source.value]
            moved = Box(read.top + step.source.offset, read.left + step.source.offset, *read[2:])
            pixels = maps[step.source.value].read(scaled(moved, fold))
            cells = pixels.reshape(read.height, fold, read.width, fold, value.planes)
            planes = cells.transpose(0, 2, 1, 3, 4).reshape(read.height, read.width, -1)
        else:
            planes = self._read(step.source, read, maps)
        if step.factors is not None:
            planes = planes * np.tile(self._vectors[step.factors], fold**2)
        sums = np.zeros((box.height, box.width, step.out_planes)) + step.bias
        for y in range(step.taps):
            for x in range(step.taps):
                # Contiguous, since NumPy passes only such arrays to BLAS.
                taken = np.ascontiguousarray(planes[y : y + box.height, x : x + box.width])
                sums += taken @ step.weight[:, :, y, x].astype(np.float64).T
        made = step.activation(sums) * step.factor
        r = step.depth_to_space
        cells = made.reshape(box.height, box.width, r, r, -1).transpose(0, 2, 1, 3, 4)
        pixels = cells.reshape(box.height * r, box.width * r, -1)
        if step.resized:
            self._edges(step, step.resized, box, planes, pixels)
        return pixels

    def depthwise(self, step: Depthwise, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns results in a box before the residual, (rows, columns, planes)."""
        more = step.taps - 1
        read = Box(box.top, box.left, box.height + more, box.width + more)
        planes = self._read(step.source, read, maps)
        sums = np.zeros((box.height, box.width, len(step.weight))) + step.bias
        for y, x in np.ndindex(step.taps, step.taps):
            sums += planes[y : y + box.height, x : x + box.width] * step.weight[:, y, x]
        return step.activation(sums)

    def norm(self, step: NormPlanes, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns results in a box, (rows, columns, planes)."""
        planes = self._read(step.source, box, maps)
        centred = planes - planes.mean(axis=2, keepdims=True)
        variance = (centred**2).mean(axis=2, keepdims=True)
        normed: Planes = centred / np.sqrt(variance + step.eps) * step.weight + step.bias
        return normed

    def _edges(
        self, step: Conv, resized: Resized, box: Box, planes: Planes, pixels: Planes
    ) -> None:
        """Overwrites, among `pixels` of a box, those at edges, which have weights of their own."""
        rows, columns = (
            [_kind(first + i, size) for i in range(length)]
            for first, length, size in zip(
                (2 * box.top, 2 * box.left),
                pixels.shape,
                self._sizes[step.target.value],
                strict=False,
            )
        )
        for y, x in np.ndindex(*pixels.shape[:2]):
            kinds = rows[y], columns[x]
            if {0, 3} & {*kinds}:
                near = planes[y // 2 : y // 2 + step.taps, x // 2 : x // 2 + step.taps]
                weight = resized.weight[kinds].astype(np.float64)
                pixels[y, x] = np.einsum("yxi,oiyx->o", near, weight) + resized.bias[kinds]

    def added(self, step: MapStep, residual: View, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns the pixels of the residual of a step in a box."""
        if not isinstance(step, Conv) or not step.resized:
            return self._read(residual, box, maps)
        source, blend = maps[residual.value], step.resized.blend
        made = source.planes
        for axis, (first, length) in enumerate(((box.top, box.height), (box.left, box.width))):
            places = np.arange(first, first + length)
            near = places // 2
            most, start = self._picture.shape[axis] - 1, source.box[axis]
            both = [
                made.take(found.clip(0, most) - start, axis, mode="clip")
                for found in (near, near + places % 2 * 2 - 1)
            ]
            made = both[0] * (1 - blend) + both[1] * blend
        return made

    def planewise(self, step: PlanewiseStep, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns results in a box before the residual, (rows, columns, planes)."""
        match step:
            case Planewise():
                return self._moved(step, box, maps)
            case Resize(taps="bicubic"):
                return self._resize(step, box, maps[step.source.value])
            case Resize():
                return self._bilinear(step, box, maps[step.source.value])
            case PoolMaxima():
                return self._maxima(step, box, maps[step.source.value])
        raise AssertionError("it reads what no tile has")

    def _moved(self, step: Planewise, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns the planes of pixels after depth-to-space or space-to-depth, scaled."""
        rows, columns = _places(box)
        up, down = step.depth_to_space, step.space_to_depth
        cover = divided(box, up)
        planes = self._read(step.source, scaled(cover, down), maps)
        if up > 1:
            count = planes.shape[-1] // up**2
            repeated = planes[np.ix_(rows // up - cover.top, columns // up - cover.left)]
            cells = repeated.reshape(box.height, box.width, count, up, up)
            y, x = np.ix_(rows % up, columns % up)
            planes = cells[np.arange(box.height)[:, None], np.arange(box.width), :, y, x]
        elif down > 1:
            cells = planes.reshape(box.height, down, box.width, down, -1)
            planes = cells.transpose(0, 2, 4, 1, 3).reshape(box.height, box.width, -1)
        if step.vector is not None:
            planes = planes * self._vectors[step.vector]
        if step.shifts is not None:
            planes = planes + self._vectors[step.shifts]
        return planes * step.factor

    def rearranged(
        self, step: Rearrange, box: Box, source: Planes, maps: Mapping[int, MapPart]
    ) -> Planes:
        """Returns the results in a box from the whole source; pixels beyond the map are
        undefined."""
        if isinstance(step, SampleGrid):
            return self._sampled(step, box, source, maps)
        assert isinstance(step, InterleavePixels)
        places = []
        for first, end, length in (
            (box.top, box.bottom, len(source)),
            (box.left, box.right, source.shape[1]),
        ):
            place, cells = np.arange(first, end).clip(0, length - 1), step.cells(length)
            places.append(place % cells * (length // cells) + place // cells)
        made: Planes = source[np.ix_(*places)]
        return made

    def _sampled(
        self, step: SampleGrid, box: Box, source: Planes, maps: Mapping[int, MapPart]
    ) -> Planes:
        side, each = step.scale, source.shape[2] // step.groups
        assert step.residual is not None
        offsets = self._read(step.residual, box, maps)
        shape = (box.height, box.width, side, side, step.groups)
        # Values that no result depends on may be NaN.
        offsets = np.nan_to_num(offsets.reshape(*shape, 2))
        inner = (np.arange(side) + 0.5) / side - 0.5
        down = np.arange(box.top, box.bottom)[:, None, None, None, None] + inner[:, None, None]
        along = np.arange(box.left, box.right)[:, None, None, None] + inner[:, None]
        both = []
        for places, length in (
            (offsets[..., 1] + down, len(source)),
            (offsets[..., 0] + along, source.shape[1]),
        ):
            place = places.clip(0, length - 1)
            near = np.floor(place).astype(np.int64)
            both.append((near, np.minimum(near + 1, length - 1), (place - near)[..., None]))
        (top, bottom, lower), (left, right, after) = both
        groups = source.reshape(*source.shape[:2], step.groups, each)
        own = np.arange(step.groups)
        upper = groups[top, left, own] * (1 - after) + groups[top, right, own] * after
        under = groups[bottom, left, own] * (1 - after) + groups[bottom, right, own] * after
        made: Planes = upper * (1 - lower) + under * lower
        return made.reshape(box.height, box.width, -1)

    def _resize(self, step: Resize, box: Box, source: MapPart) -> Planes:
        """Interpolates bicubically."""
        rows, columns = _places(box)
        up, down, size = step.up, step.down, self._sizes[step.source.value]
        taps = cubic_taps(up, down)

        def near(places: NDArray[np.int64], tap: int, length: int, first: int) -> Any:
            found = ((2 * places + 1) * down - up) // (2 * up) - 1 + tap
            return found.clip(0, length - 1) - first

        made = np.zeros((len(rows), len(columns), source.planes.shape[-1]))
        for y, x in np.ndindex(4, 4):
            weight = taps[rows % up, y][:, np.newaxis] * taps[columns % up, x]
            index = np.ix_(
                near(rows, y, size[0], source.box.top), near(columns, x, size[1], source.box.left)
            )
            made += weight[..., np.newaxis] * source.planes[index]
        return made

    def _bilinear(self, step: Resize, box: Box, source: MapPart) -> Planes:
        """Interpolates bilinearly to the size of the target, vertically first."""
        made = source.planes
        for axis, places in enumerate(_places(box)):
            size = self._sizes[step.source.value][axis]
            whole = self._sizes[step.target.value][axis]
            # Twice the place in the source, in units of one pixel of `whole`.
            place = ((2 * places + 1) * size - whole).clip(0)
            near, share = place // (2 * whole), place % (2 * whole) / (2 * whole)
            both = [
                made.take(found.clip(0, size - 1) - source.box[axis], axis, mode="clip")
                for found in (near, near + 1)
            ]
            share = share.reshape([-1, 1, 1] if axis == 0 else [-1, 1])
            made = both[0] * (1 - share) + both[1] * share
        return made

    def _maxima(self, step: PoolMaxima, box: Box, source: MapPart) -> Planes:
        """Returns the maxima of the pixels inside the map."""
        rows, columns = _places(box)
        size, box = self._sizes[step.source.value], source.box
        made = np.full((len(rows), len(columns), source.planes.shape[-1]), -np.inf)
        for y, x in np.ndindex(step.kernel, step.kernel):
            down = (rows * step.stride + y).clip(0, size[0] - 1) - box.top
            along = (columns * step.stride + x).clip(0, size[1] - 1) - box.left
            taken = source.planes.take(down, 0, mode="clip").take(along, 1, mode="clip")
            made = np.maximum(made, taken)
        return made

    def _read(self, view: View, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Returns the pixels of a view in a box."""
        rows, columns = ((place + view.offset) // view.enlarge for place in _places(box))
        parts = self._program.values[view.value].parts
        start, count = sum(parts[: view.first]), sum(parts[view.first : view.first + view.parts])
        source = maps[view.value]
        index = np.ix_(rows - source.box.top, columns - source.box.left)
        assert rows.min() >= source.box.top
        assert columns.min() >= source.box.left
        return source.planes[index][..., start : start + count]

    def store(self, step: MapStep, made: Planes, box: Box, maps: Mapping[int, MapPart]) -> Planes:
        """Stores and returns results, with zeros outside the value's size if it is zero there."""
        value = self._program.values[step.target.value]
        target = maps[step.target.value]
        if value.zero_outside:
            height, width = self._sizes[step.target.value]
            rows, columns = _places(box)
            inside = ((rows >= 0) & (rows < height))[:, None] & (columns >= 0) & (columns < width)
            made = np.where(inside[:, :, None], made, 0.0)
        start = sum(value.parts[: step.target.part]) + step.target.plane
        top, left = box.top - target.box.top, box.left - target.box.left
        target.planes[
            top : top + box.height, left : left + box.width, start : start + made.shape[-1]
        ] = made
        return made


def _places(box: Box) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows and the columns of a box."""
    return np.arange(box.top, box.bottom), np.arange(box.left, box.right)


def _kind(place: int, length: int) -> int:
    """Returns the kind of row or column: see Resized."""
    return 0 if place == 0 else 3 if place == length - 1 else 1 + place % 2


class MapPart:
    """A box of a map, with its pixels."""

    def __init__(self, planes: Planes, box: Box) -> None:
        self.planes = planes
        self.box = box

    def read(self, box: Box) -> Planes:
        """Returns the pixels of a box inside it."""
        top, left = box.top - self.box.top, box.left - self.box.left
        assert top >= 0
        assert left >= 0
        return self.planes[top : top + box.height, left : left + box.width]


def border_index(places: NDArray[np.int64], length: int, border: Border) -> NDArray[np.int64]:
    """Returns the index of a picture's pixel for each place inside or beyond it; -1 for zero."""
    if border == "zero":
        return np.where((places >= 0) & (places < length), places, -1)
    if border == "replicate" or length == 1:
        return places.clip(0, length - 1)
    period = 2 * (length - 1)
    turned = places % period
    return np.minimum(turned, period - turned)


def padded(picture: NDArray[Any], model: Model, box: Box) -> Planes:
    """Returns a box of the padded picture."""
    rows = border_index(np.arange(box.top, box.bottom) - model.padding, len(picture), model.border)
    columns = border_index(
        np.arange(box.left, box.right) - model.padding, picture.shape[1], model.border
    )
    pixels = to_unit(picture[np.ix_(rows, columns)], np.float64)
    pixels[rows < 0] = 0
    pixels[:, columns < 0] = 0
    return pixels


def beyond(kept: Planes, box: Box) -> Planes:
    """Returns a box of a map that is zero outside."""
    pads = [
        (max(0, -box.top), max(0, box.bottom - kept.shape[0])),
        (max(0, -box.left), max(0, box.right - kept.shape[1])),
        (0, 0),
    ]
    top, left = max(0, box.top), max(0, box.left)
    inner = kept[top : max(0, box.bottom), left : max(0, box.right)]
    return np.pad(inner, pads)
