"""Defines the steps without weights: each plane of the result is made of one of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import Checker, Levels, MapStep
from waifu2x.lowering.plan.box import Box, divided, scaled, viewed
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.expressions import ADD, JOINS, Expression
from waifu2x.networks.model import Size
from waifu2x.system.lazy_dataclass import dataclass


class PlanewiseStep(MapStep):
    """A step whose source and residual are views of one part each, stored by single pixels."""

    def check(self, check: Checker) -> None:
        check.must(self.source.parts == 1, "source", "several parts")
        check.must(self.join in JOINS.values(), "join", f"{self.join}")
        check.must(bool(self.residual) or self.join == ADD, "join", "without a residual")
        if self.residual:
            check.joined(self)
            # An engine may let the last step read the picture itself.
            is_last = self.target.value == check.program.result
            check.must(self.residual.value != 0 or is_last, "residual", "of the picture")


@dataclass(frozen=True)
class Planewise(PlanewiseStep):
    """join((moved * vector + shifts) * factor, residual), plane by plane, where `moved` is the
    source after depth-to-space or space-to-depth.

    With depth-to-space, plane c of the result's pixel (y, x) is plane (c * block + y % block) *
    block + x % block of the source's pixel (y // block, x // block); space-to-depth is the inverse.
    One of the two blocks is 1.
    """

    factor: float = 1.0
    residual: View | None = None
    """It has the target's pixels and planes, and is of a value other than the picture."""
    join: Expression = ADD
    vector: int | None = None
    """One element for each plane of the source."""
    shifts: int | None = None
    """A vector of the same length, added to the product with `vector`."""
    depth_to_space: int = 1
    space_to_depth: int = 1

    @property
    def vectors_read(self) -> tuple[int, ...]:
        return tuple(vector for vector in (self.vector, self.shifts) if vector is not None)

    @property
    def is_shuffle(self) -> bool:
        """Whether it is a depth-to-space or a space-to-depth."""
        return self.depth_to_space > 1 or self.space_to_depth > 1

    @property
    def is_copy(self) -> bool:
        """Whether it only scales the source by the factor and perhaps adds the residual."""
        return not self.is_shuffle and self.vector is None and self.join == ADD

    @property
    def label(self) -> str:
        if self.depth_to_space > 1:
            return "depth to space"
        if self.space_to_depth > 1:
            return "space to depth"
        if self.vector is not None:
            return "scale"
        return next(name for name, join in JOINS.items() if join == self.join)

    def planes_made(self, program: Program) -> int:
        planes = program.planes_read(self.source)
        return planes // self.depth_to_space**2 * self.space_to_depth**2

    def resolution_made(self, program: Program) -> Fraction:
        return super().resolution_made(program) * self.depth_to_space / self.space_to_depth

    def source_box(self, program: Program, box: Box) -> Box:
        if self.is_shuffle:
            box = scaled(divided(box, self.depth_to_space), self.space_to_depth)
        return viewed(self.source, box)

    def _level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        source = read(self.source).reshape(-1, self.depth_to_space**2).mean(axis=1)
        made: NDArray[np.float64] = source.repeat(self.space_to_depth**2)
        if self.vector is not None:
            made = made * vectors[self.vector]
        if self.shifts is not None:
            made = made + vectors[self.shifts]
        made *= self.factor
        return made

    def check(self, check: Checker) -> None:
        planes = check.program.planes_read(self.source)
        for field in ("depth_to_space", "space_to_depth"):
            block = getattr(self, field)
            check.must(block >= 1, field, f"{block}")
        whole = planes % self.depth_to_space**2 == 0
        check.must(whole, "depth_to_space", f"{self.depth_to_space}, of {planes} planes")
        once = 1 in (self.depth_to_space, self.space_to_depth)
        check.must(once, "space_to_depth", "of pixels that depth-to-space makes")
        check.must(self.shifts is None or self.vector is not None, "shifts", "without a vector")
        for field in ("vector", "shifts"):
            vector = getattr(self, field)
            if vector is not None:
                check.written(field, vector)
                size = check.program.vectors[vector]
                check.must(planes == size, field, f"{size} for {planes} planes")
        super().check(check)


class ResamplingStep(PlanewiseStep):
    """A step that makes each pixel from several, at places that depend on the edges of the source.
    This is a whole value of one part, stored by single pixels, other than the picture."""

    def check(self, check: Checker) -> None:
        check.whole("source", self.source)
        check.single(self.source)
        super().check(check)


@dataclass(frozen=True)
class Resize(ResamplingStep):
    """Resizes a map by `up / down`: bicubic as `networks.nodes.Interpolate` defines it, or bilinear
    to the size of its target, as `networks.nodes.InterpolateTo` defines it.

    Only a bicubic one may write the result. The factor of a bilinear one is only about up / down:
    the sizes of both values decide it.
    """

    up: int
    down: int
    taps: Literal["bicubic", "bilinear"]
    radius: int = 1
    """The margin, in pixels of the source, by which a result may read beyond the pixels that
    `up / down` says and the next one."""

    @property
    def is_inner(self) -> bool:  # type: ignore[override]
        return self.taps == "bilinear"

    @property
    def label(self) -> str:
        return "resize" if self.taps == "bicubic" else "enlarged to a size"

    def resolution_made(self, program: Program) -> Fraction:
        return super().resolution_made(program) * self.up / self.down

    def receptive_radius(self, program: Program, unit: int) -> float:
        return float((self.radius + 1) / program.values[self.source.value].resolution)

    def source_box(self, program: Program, box: Box) -> Box:
        near, more = divided(scaled(box, self.down), self.up), 2 * self.radius + 1
        top, left = near.top - self.radius, near.left - self.radius
        return Box(top, left, near.height + more, near.width + more)

    def check(self, check: Checker) -> None:
        check.must(min(self.up, self.down) >= 1, "up", f"{self.up} / {self.down}")
        check.must(self.radius >= 1, "radius", f"{self.radius}")
        if self.taps == "bilinear":
            check.must(self.up >= self.down, "up", f"{self.up} / {self.down}")
        super().check(check)


@dataclass(frozen=True)
class PoolMaxima(ResamplingStep):
    """Max-pools the source over kernel x kernel pixels at a stride of `stride`, as
    `networks.nodes.MaxPool` defines it. The target is not the result."""

    kernel: int
    stride: int
    is_inner = True

    @property
    def label(self) -> str:
        return f"maxima {self.kernel}x{self.kernel}"

    def resolution_made(self, program: Program) -> Fraction:
        return super().resolution_made(program) / self.stride

    def receptive_radius(self, program: Program, unit: int) -> float:
        farthest = max(self.kernel, self.stride)
        return float(farthest / program.values[self.source.value].resolution)

    def source_box(self, program: Program, box: Box) -> Box:
        first, more = scaled(box, self.stride), self.kernel - self.stride
        return Box(first.top, first.left, first.height + more, first.width + more)

    def check(self, check: Checker) -> None:
        check.must(min(self.kernel, self.stride) >= 1, "kernel", f"{self.kernel}, {self.stride}")
        super().check(check)


class Rearrange(PlanewiseStep):
    """Moves pixels to other places of the map.

    The source is a whole value of one part, stored by single pixels, other than the picture, and
    the target is not the result. Any pixel may be read for any tile: so the source is complete
    before the step runs. The target is zero outside its size.
    """

    is_inner = True
    interpolates: ClassVar[bool] = False
    """Whether it computes one value from several pixels."""

    @property
    def read_whole(self) -> tuple[View, ...]:
        return (self.source,)

    def read_boxes(
        self, program: Program, box: Box, sizes: Sequence[Size] | None
    ) -> Iterator[tuple[int, Box]]:
        if self.residual:
            yield self.residual.value, viewed(self.residual, box)

    def check(self, check: Checker) -> None:
        check.whole("source", self.source)
        check.single(self.source, self.target)
        zero = check.values[self.target.value].zero_outside
        check.must(zero, "target", "not zero outside")


@dataclass(frozen=True)
class InterleavePixels(Rearrange):
    """Interleaves pixels of the map, as `networks.nodes.Interleave` defines it."""

    parts: int
    inverse: bool

    @property
    def label(self) -> str:
        return "pixels rearranged"

    def cells(self, length: int) -> int:
        """Returns the number of cells into which `length` rows, or columns, are divided: place p of
        the target is p % cells * (length // cells) + p // cells of the source."""
        return length // self.parts if self.inverse else self.parts

    def check(self, check: Checker) -> None:
        check.must(self.parts >= 1, "parts", f"{self.parts}")
        super().check(check)


@dataclass(frozen=True)
class SampleGrid(Rearrange):
    """Samples the map at computed places, as `networks.nodes.GridSample` defines it."""

    scale: int
    groups: int
    residual: View | None = None
    """The offsets of the samples, which are not added: a part of a map stored by single pixels,
    other than the picture and the source."""
    interpolates = True

    @property
    def label(self) -> str:
        return f"samples {self.scale}x{self.scale}"

    def planes_made(self, program: Program) -> int:
        return super().planes_made(program) * self.scale**2

    def level(self, read: Levels, vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.tile(read(self.source), self.scale**2)

    def check(self, check: Checker) -> None:
        least = min(self.scale, self.groups)
        check.must(least >= 1, "scale", f"{self.scale}, groups {self.groups}")
        view = self.residual or self.source
        check.plain_part(view)
        check.must(view.value != self.source.value, "residual", "of the source")
        planes, wanted = check.program.planes_read(view), 2 * self.groups * self.scale**2
        check.must(planes == wanted, "residual", f"{planes} planes, but expected {wanted}")
        super().check(check)
