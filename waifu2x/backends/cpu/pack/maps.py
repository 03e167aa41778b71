"""Chooses the layouts of a program's maps while it is packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import FINE, PLAIN, PLANE_UNIT, Arithmetic, Fineness
from waifu2x.backends.cpu.pack import zero_points
from waifu2x.backends.cpu.pack.layouts import MapLayouts, PixelLayout
from waifu2x.lowering.ops.attention import AttentionStep, CrossSums, MixPlanes
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import Rearrange, ResamplingStep
from waifu2x.lowering.plan import geometry
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View

FEW = 4
"""The most planes of a map that is stored without padding."""
_LEAST_BFLOATS = 32
"""The fewest planes of a map in one term: with fewer, rounding errors do not average out."""


class ProgramMaps:
    """Holds the layouts of the program's values by number, then of maps only between two tasks."""

    def __init__(
        self,
        program: Program,
        arithmetic: Arithmetic,
        add_constant: Callable[[NDArray[np.floating]], int],
        fineness: Fineness,
    ) -> None:
        """`add_constant` adds values to the constants, and returns their offset."""
        self._program, self._arithmetic, self._add_constant = program, arithmetic, add_constant
        self.readers = geometry.read_by(program)
        """The numbers of the steps that read each value."""
        self.pictures: dict[int, int] = {}
        """The maps that hold the picture, by its enlargement."""
        inner = [step for step in program.steps if isinstance(step, Conv) and step.source.value]
        self._fineness = fineness
        # One near the middle, where rounding costs most: 0.2 dB for animevideov3 2x, which lacks
        # 0.04.
        chosen = [inner[len(inner) * 3 // 5]] if fineness >= FINE and inner else []
        self._chosen = {id(step) for step in chosen}
        self.layouts = [self._float_layout(value) for value in range(len(program.values))]
        if arithmetic == "bf16":
            for value, points in enumerate(zero_points.find(program)):
                self.layouts[value] = self._bf16_layout(value, points)

    def finished(self) -> MapLayouts:
        """Returns the layouts of all maps once all tasks are made."""
        return MapLayouts(self._arithmetic, self.layouts, self.pictures)

    def add(self, layout: PixelLayout) -> int:
        """Adds a map and returns its number."""
        self.layouts.append(layout)
        return len(self.layouts) - 1

    def source_map(self, view: View) -> int:
        """Returns the map that a view reads: a value, or a map of the enlarged picture."""
        if view.value:
            return view.value
        if view.enlarge not in self.pictures:
            planes = self._program.model.in_planes
            self.pictures[view.enlarge] = self.add(PixelLayout((planes,), (planes,)))
        return self.pictures[view.enlarge]

    def terms_read(self, step: Conv, source: PixelLayout) -> int:
        """Returns the number of terms of its source that a convolution on tiles reads."""
        two = sum(source.parts) < _LEAST_BFLOATS or self._reads_two_terms(step)
        return source.terms if source.terms and two else 1

    def _reads_two_terms(self, step: Conv) -> bool:
        """Returns whether a convolution on tiles reads two terms: it makes pixels, or values that
        become pixels, so that no later layer averages out rounding; or it was chosen."""
        target = self.layouts[step.target.value]
        makes_pixels = step.target.value == self._program.result or target.planes <= FEW
        return (makes_pixels and self._fineness >= PLAIN) or id(step) in self._chosen

    def _convs(self, value: int) -> list[Conv]:
        """Returns the convolutions whose source is a value."""
        steps = [self._program.steps[number] for number in self.readers[value]]
        return [s for s in steps if isinstance(s, Conv) and s.source.value == value]

    def _is_of_vectors(self, value: int) -> bool:
        """Returns whether a depthwise convolution or a norm, which need whole vectors of floats,
        reads or writes a value."""
        steps = (step for step in self._program.steps if isinstance(step, Depthwise | NormPlanes))
        return any(value in step.touched for step in steps)

    def _float_layout(self, value: int) -> PixelLayout:
        stored = self._program.values[value]
        narrow = (
            len(stored.parts) == 1
            and stored.space_to_depth == 1
            and stored.planes <= FEW
            and not any(conv.taps == 1 for conv in self._convs(value))
            and not self._is_of_vectors(value)
        )
        unit = PLANE_UNIT[self._arithmetic]
        padded = tuple(p if narrow else round_up(p, unit) for p in stored.parts)
        steps = (self._program.steps[number] for number in self.readers[value])
        sampled = any(
            isinstance(s, Rearrange) and s.interpolates and s.source.value == value for s in steps
        )
        return PixelLayout(stored.parts, padded, stored.space_to_depth, stays_float=sampled)

    def _bf16_layout(self, value: int, points: NDArray[np.float64]) -> PixelLayout:
        """Returns a layout in bf16 if convolutions on tiles read the value, or if all maps are
        bf16: in two terms if other steps read it, too, or one would lose too much."""
        layout, convs = self.layouts[value], self._convs(value)
        stays_float = (
            not value
            or (not convs and self._fineness >= PLAIN)
            or layout.planes % PLANE_UNIT["bf16"]
            or _is_only_float(self._program, value)
            or any(conv.taps > 3 for conv in convs)
            or self._is_of_vectors(value)
        )
        if stays_float:
            return layout
        others = len(self.readers[value]) > len(convs) or any(
            conv.residual and conv.residual.value == value for conv in convs
        )
        two = (
            (others and self._fineness >= PLAIN)
            or any(map(self._reads_two_terms, convs))
            or sum(layout.parts) < _LEAST_BFLOATS
        )
        padded = _padded(points, layout)
        offset = self._add_constant(padded)
        return replace(layout, terms=2 if two else 1, zero_point=padded, zero_offset=offset)


def _is_only_float(program: Program, value: int) -> bool:
    """Returns whether a step that needs floats reads or writes a value: interpolation, maxima,
    attention or a step on whole maps."""
    kinds = ResamplingStep | Rearrange | AttentionStep | CrossSums | MixPlanes
    steps = [step for step in program.steps if isinstance(step, kinds)]
    return any(value in step.touched for step in steps)


def _padded(points: NDArray[np.float64], layout: PixelLayout) -> NDArray[np.float64]:
    """Returns the zero points of the planes of all parts, with zeros for padding."""
    padded = np.zeros(layout.planes)
    for part, count in enumerate(layout.parts):
        first = sum(layout.parts[:part])
        padded[layout.start(part) : layout.start(part) + count] = points[first : first + count]
    return padded
