"""Packs planewise steps, and the rest of convolutions that epilogues do not do: finds the source of
each value, and the fastest method that suits the maps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from waifu2x.backends.cpu.pack import records
from waifu2x.backends.cpu.pack.layouts import PixelLayout
from waifu2x.backends.cpu.pack.maps import FEW
from waifu2x.backends.cpu.pack.packing import Packers, Packing
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import ROWS, CpuTask, RowWindow, TaskSchedule
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import (
    InterleavePixels,
    Planewise,
    PlanewiseStep,
    PoolMaxima,
    Rearrange,
    Resize,
    SampleGrid,
)
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.values import Target, View
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import LEAKY
from waifu2x.networks.nodes import cubic_taps
from waifu2x.system.lazy_dataclass import dataclass


class Formula(NamedTuple):
    """Maps each value of a planewise step to the value of its source, as fields of its record,
    `records.TASK`."""

    depth_to_space: int = 1
    space_to_depth: int = 1
    enlarge: int = 1
    plane_step: int = 1
    row_step: int = 0
    column_step: int = 0
    activation: int = 0
    slopes: int = 0
    vector: int = -1
    shifts: int = -1
    factor: float = 1.0
    join: int = 0
    up: int = 0
    """The factor of a bicubic interpolation; 0 for other steps."""
    down: int = 0
    cubic: int = 0
    pool: int = 0
    pool_step: int = 1


def pack_planewise(packing: Packing, number: int, step: PlanewiseStep) -> list[CpuTask]:
    """Packs step `number`."""
    view = step.source
    source = packing.maps.source_map(replace(view, enlarge=1))
    layout = packing.layout(source)
    formula = _formula(packing, step)
    method = None
    match step:
        case Resize(taps="bicubic"):
            method = records.BY_RESIZING
            window = RowWindow(source, up=step.down, down=step.up, offset=-1, more=3)
        case Resize():
            method, radius = records.BY_SIZES, step.radius
            around = {"offset": -radius, "more": 2 * radius + 1}
            window = RowWindow(source, up=step.down, down=step.up, **around)
        case PoolMaxima():
            method = records.BY_MAXIMA
            window = RowWindow(source, up=step.stride, more=step.kernel - step.stride)
        case _:
            window = RowWindow(
                source,
                up=formula.space_to_depth,
                down=formula.depth_to_space,
                offset=view.offset,
                unit=view.enlarge * layout.space_to_depth,
                first=view.first,
            )
    planes = layout.parts[view.first] // formula.depth_to_space**2 * formula.space_to_depth**2
    work = _Planewise(packing, number, window, planes, step.target, formula, step.residual, method)
    return [work.task()]


def pack_rearrange(packing: Packing, number: int, step: Rearrange) -> list[CpuTask]:
    """Packs step `number`, which reads a map that an earlier phase has kept whole."""
    value, part = step.source.value, step.target.part
    fields = {
        "source": value,
        **packing.target(step.target),
        **packing.padding(step.target, packing.layout(step.target.value).parts[part]),
        "depth": packing.layout(value).values,
        "as_integers": int(packing.maps.finished().is_kept_as_integers(value)),
    }
    windows: tuple[RowWindow, ...] = ()
    if isinstance(step, InterleavePixels):
        fields |= {"parts": step.parts, "inverse": int(step.inverse)}
    elif isinstance(step, SampleGrid) and step.residual:
        fields |= {"parts": step.scale, "heads": step.groups, "residual": step.residual.value}
        windows = (packing.residual_window(step.residual),)
    schedule = TaskSchedule(number, ROWS, windows, step.target.value, part)
    return [CpuTask(schedule, records.REARRANGE, fields)]


def store_task(packing: Packing, number: int, step: Conv, source: int) -> CpuTask:
    """Packs the rest of a convolution step, whose sums with biases are in the map `source`."""
    group, block = step.out_planes // step.depth_to_space**2, step.depth_to_space
    formula = Formula(
        depth_to_space=block,
        row_step=block * group,
        column_step=group,
        activation=packing.function(step.activation.function),
        slopes=_slopes(packing, step.activation),
        factor=step.factor,
        join=records.JOINED.index(step.join),
    )
    planes = packing.layout(step.target.value).parts[step.target.part]
    window = RowWindow(source, down=block)
    residual = step.residual
    work = _Planewise(packing, number, window, planes, step.target, formula, residual, scale=block)
    return work.task()


def padding_task(packing: Packing, number: int, window: RowWindow, wide: int) -> CpuTask:
    """Packs a copy of a map of one part into the map `wide`, which is padded with more planes."""
    planes = packing.layout(wide).parts[0]
    return _Planewise(packing, number, window, planes, Target(wide), Formula()).task()


def _slopes(packing: Packing, activation: Activation) -> int:
    """Adds the parameters of a function that convolutions do not apply; returns their offset."""
    if activation.function == LEAKY or not activation.has_slopes:
        return 0
    slopes = np.zeros(round_up(len(activation.slopes), LANES), np.float32)
    slopes[: len(activation.slopes)] = activation.slopes
    return packing.arrays.add_constant(slopes)


def _formula(packing: Packing, step: PlanewiseStep) -> Formula:
    match step:
        case Planewise():
            starts, up = packing.vector_starts, step.depth_to_space
            return Formula(
                depth_to_space=up,
                space_to_depth=step.space_to_depth,
                enlarge=step.source.enlarge,
                plane_step=up**2,
                row_step=up if up > 1 else 0,
                column_step=1 if up > 1 else 0,
                vector=-1 if step.vector is None else starts[step.vector],
                shifts=-1 if step.shifts is None else starts[step.shifts],
                factor=step.factor,
                join=records.JOINED.index(step.join),
            )
        case PoolMaxima():
            return Formula(pool=step.kernel, pool_step=step.stride)
        case Resize(taps="bicubic"):
            taps = packing.arrays.add_constant(cubic_taps(step.up, step.down).ravel())
            return Formula(up=step.up, down=step.down, cubic=taps)
    return Formula()


@dataclass(frozen=True, eq=False)
class _Planewise:
    """A planewise task in the making: its source, results and residual."""

    packing: Packing
    number: int
    """The step."""
    window: RowWindow
    """The rows of its source."""
    planes: int
    """The planes that it makes."""
    target: Target
    """A value of the program, or a further map."""
    formula: Formula
    residual: View | None = None
    method: int | None = None
    """The method of reading its source, if the step decides it."""
    scale: int = 1

    def task(self) -> CpuTask:
        """Returns the task."""
        packing, target, writes = self.packing, self.target, self.writes
        method = self.method
        if method is None:
            method = self._write_method() if writes else self._map_method()
        planes, padding = self._padded(whole=method == records.BY_PLANES and not writes)
        numbers = self.formula._asdict()
        fields = {
            "method": method,
            **packing.source(View(self.window.map, self.window.offset, first=self.window.first)),
            **packing.target(target),
            "planes": planes,
            "padding": 0 if writes else padding,
            **{name: value for name, value in numbers.items() if name != "factor"},
        }
        windows = [self.window]
        if self.residual is not None:
            view = self._added(self.residual)
            windows.append(packing.residual_window(view))
            fields |= packing.residual(view)
        kind = records.WRITE if writes else records.PLANEWISE
        return CpuTask(self._schedule(tuple(windows)), kind, fields, self.formula.factor)

    @property
    def writes(self) -> bool:
        """Whether it writes the pixels of the result."""
        return self.target.value == self.packing.program.result

    @property
    def source_layout(self) -> PixelLayout:
        """The layout of its source."""
        return self.packing.layout(self.window.map)

    @property
    def target_layout(self) -> PixelLayout:
        """The layout of its target."""
        return self.packing.layout(self.target.value)

    def _added(self, residual: View) -> View:
        return replace(residual, value=self.packing.maps.source_map(residual))

    def _read(self) -> list[PixelLayout]:
        """Returns the layouts of the maps that it reads."""
        read = [self.source_layout]
        if self.residual is not None:
            read.append(self.packing.layout(self._added(self.residual).value))
        return read

    def _schedule(self, windows: tuple[RowWindow, ...]) -> TaskSchedule:
        if self.writes:
            return TaskSchedule(self.number, ROWS, windows, scale=self.scale)
        side = self.target_layout.space_to_depth
        value, part = self.target.value, self.target.part
        rows = round_up(ROWS, side)
        return TaskSchedule(self.number, rows, windows, value, part, (1, side), self.scale)

    def _padded(self, *, whole: bool) -> tuple[int, int]:
        """Returns the number of planes that it makes, and of zeros behind them; `whole` parts are
        read with their padding."""
        target, part = self.target_layout, self.target.part
        if whole and self.source_layout.padded[self.window.first] == target.padded[part]:
            return target.padded[part], 0
        if self.target.plane + self.planes == target.parts[part]:
            return self.planes, target.padded[part] - target.parts[part]
        return self.planes, 0

    def _write_method(self) -> int:
        """Returns the method by which the source of the result's pixels is read."""
        formula = self.formula
        if not self._is_plain():
            return records.BY_VALUES
        is_copy = (
            self.residual is None
            and formula.factor == formula.depth_to_space == formula.enlarge == 1
            and self.source_layout.planes == self.planes
        )
        return records.BY_PLANES if is_copy else records.BY_FLOATS

    def _map_method(self) -> int:
        """Returns the method by which the source of a task that writes a map is read."""
        if self._is_by_planes():
            return records.BY_PLANES
        target = self.target_layout
        fits = not target.terms and target.space_to_depth == 1
        return (
            records.BY_FLOATS
            if fits and (self._is_plain() or self._is_unshuffle())
            else records.BY_VALUES
        )

    def _is_even(self) -> bool:
        """Returns whether the values that a row reads are evenly spaced."""
        return self.formula.space_to_depth == 1 and all(
            layout.space_to_depth == 1 for layout in self._read()
        )

    def _is_plain(self) -> bool:
        """Returns whether it reads evenly spaced floats, and only scales and adds them."""
        formula = self.formula
        curved = formula.activation or formula.join or formula.vector >= 0
        is_float = not any(layout.terms for layout in self._read())
        return not curved and is_float and self._is_even()

    def _is_unshuffle(self) -> bool:
        """Returns whether it is only a space-to-depth of a map of floats of single pixels."""
        source, formula = self.source_layout, self.formula
        is_float = source.terms == 0 and source.space_to_depth == 1
        return is_float and formula.space_to_depth > 1 and formula.enlarge == 1

    def _is_by_planes(self) -> bool:
        """Returns whether it makes a whole part, by pixels, from maps padded to whole vectors."""
        formula, source, target = self.formula, self.source_layout, self.target_layout
        padded = target.padded[self.target.part]
        added = 0
        if self.residual is not None:
            view = self._added(self.residual)
            added = self.packing.layout(view.value).padded[view.first]
        return (
            self._is_even()
            and self.target.plane == 0
            and self.planes == target.parts[self.target.part] == source.parts[self.window.first]
            and padded % LANES == 0
            and target.space_to_depth <= 2
            and formula.depth_to_space == formula.enlarge == 1
            and (source.padded[self.window.first] == padded or source.planes <= FEW)
            and added in (0, padded)
        )


PACKERS: Packers = {
    **dict.fromkeys((Planewise, PoolMaxima, Resize), pack_planewise),
    **dict.fromkeys((InterleavePixels, SampleGrid), pack_rearrange),
}
