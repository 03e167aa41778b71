"""Computes the areas of frames that have changed, and takes all else from the result before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from waifu2x.flows.film.frames.frame_source import EnlargedFrame, PlacedFrame, Planes
from waifu2x.formats.film.description import PixelFormat
from waifu2x.lowering.plan.box import Box, scaled

if TYPE_CHECKING:
    from waifu2x.flows.film.frames.changed_areas import Area, AreaWork
    from waifu2x.flows.film.frames.frame_device import Enlarge
    from waifu2x.imaging.streams import Header, Sink


class Patch(NamedTuple):
    """The result of an area."""

    area: Area
    planes: Planes
    """Those of its halo."""


class ComputedFrame(NamedTuple):
    """A frame as a device has computed it, whole or by areas."""

    placed: PlacedFrame
    planes: Planes | None
    """The result of a whole frame."""
    is_wide: bool = False
    """Whether that was computed again, in wider numbers."""
    patches: Sequence[Patch] | None = ()
    """The results of areas; None if values left the range of the network's arithmetic."""


class AreaMaker:
    """Computes areas of frames, by a device that enlarges parts of them. Threads may share it."""

    def __init__(
        self, work: AreaWork | None, source: PixelFormat, target: PixelFormat, scale: int
    ) -> None:
        """`work` makes planes of `target`, `scale` times as large, from those of `source`; None for
        frames of no areas."""
        self._work = work
        self._source, self._target, self._scale = source, target, scale

    def __call__(self, planes: Planes, areas: Sequence[Area]) -> list[Patch] | None:
        """Returns the results of areas of a frame; None if values left the range of the network's
        arithmetic: such a frame is computed whole, in wider numbers. Raises BackendError."""
        made: list[Patch] = []
        # Those of one size are a stack.
        for kind in dict.fromkeys(area.halo[2:] + area.right for area in areas):
            alike = [area for area in areas if area.halo[2:] + area.right == kind]
            parts = [list(_parts(planes, self._source, area.halo)) for area in alike]
            height, width = (side * self._scale for side in kind[:2])
            shapes = self._target.shapes(height, width)
            results = [[np.empty(shape, self._target.dtype) for shape in shapes] for _ in alike]
            assert self._work is not None
            if self._work.enlarge(parts, results, alike[0].right):
                return None
            made += map(Patch, alike, results)
        return made

    def paste(self, patch: Patch, planes: Planes) -> None:
        """Copies the result of an area into that of its frame."""
        box, halo, _ = patch.area
        inner = Box(box.top - halo.top, box.left - halo.left, box.height, box.width)
        ends = (_parts(planes, self._target, scaled(box, self._scale)),
                _parts(patch.planes, self._target, scaled(inner, self._scale)))  # fmt: skip
        for place, part in zip(*ends, strict=True):
            place[:] = part


class CompletedFrames:
    """A sink before another one: completes the results of areas by the result before."""

    def __init__(
        self,
        sink: Sink[Sequence[EnlargedFrame]],
        enlarge: Enlarge,
        maker: AreaMaker,
        memory: Callable[[], Planes],
    ) -> None:
        """`memory` returns planes for a result."""
        self._sink, self._enlarge, self._maker, self._memory = sink, enlarge, maker, memory
        self._kept: Planes = ()
        """The result that the frame before has."""
        self._is_wide = False
        """Whether it was computed in wider numbers, which areas of the next one would not be."""

    def open(self, header: Header) -> None:
        self._sink.open(header)

    def add(self, result: Sequence[ComputedFrame]) -> None:
        """Takes the next frames, completes them and hands them on. Raises OutputError,
        BackendError."""
        self._sink.add([self._completed(frame) for frame in result])

    def close(self) -> None:
        self._sink.close()

    def abort(self) -> None:
        self._sink.abort()

    def _completed(self, made: ComputedFrame) -> EnlargedFrame:
        placed, planes = made.placed, made.planes
        if placed.is_held:
            return EnlargedFrame(placed, None)
        if placed.areas is None:
            assert planes is not None
            self._is_wide = made.is_wide
        else:
            planes = self._memory()
            if made.patches is None or self._is_wide:
                self._is_wide = bool(self._enlarge([placed.planes], [planes]))
            else:
                for kept, plane in zip(self._kept, planes, strict=True):
                    plane[:] = kept
                for patch in made.patches:
                    self._maker.paste(patch, planes)
        self._kept = planes
        return EnlargedFrame(placed, planes)


def _parts(planes: Planes, pixels: PixelFormat, box: Box) -> Iterator[Any]:
    """Yields a box of each plane; it begins at a whole sample of chroma, and ends at one or where
    the picture ends."""
    for plane, (rows, columns) in zip(planes, pixels.steps, strict=True):
        yield plane[
            box.top // rows : -(-box.bottom // rows), box.left // columns : -(-box.right // columns)
        ]
