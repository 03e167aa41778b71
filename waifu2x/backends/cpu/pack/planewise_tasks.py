"""Planewise steps as tasks, and what convolutions leave to them: the value of the source that each
value is made of, and the fastest method that is right for the maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from waifu2x.backends.cpu.pack.maps import FEW
from waifu2x.backends.cpu.pack.packing import Packing
from waifu2x.backends.cpu.pack.pixel_layout import PixelLayout
from waifu2x.backends.cpu.pack.records import (
    BY_FLOATS,
    BY_MAXIMA,
    BY_PLANES,
    BY_RESIZING,
    BY_SIZES,
    BY_VALUES,
    FUNCTIONS,
    JOINED,
    PLANEWISE,
    WRITE,
)
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import (
    ROWS,
    Formula,
    PlanewiseTask,
    RearrangeTask,
    RowWindow,
    TaskResidual,
    TaskSchedule,
    TaskSource,
    TaskTarget,
)
from waifu2x.errors import BackendError
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.ops.planewise import Planewise, PlanewiseStep, PoolMaxima, Rearrange, Resize
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.values import Target, View
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import LEAKY, Expression
from waifu2x.networks.nodes import cubic_taps
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class _PlanewiseWork:
    """A task to be: what it reads, makes and adds."""

    number: int
    """The step."""
    window: RowWindow
    planes: int
    """Planes that it makes."""
    target: Target
    """A value of the program, or a map behind them."""
    formula: Formula
    residual: View | None = None
    scale: int = 1
    method: int | None = None
    """How its source is read, where the step decides that."""


@dataclass(frozen=True, eq=False)
class _Layouts:
    """The maps of a task."""

    source: PixelLayout
    target: PixelLayout
    added: PixelLayout | None

    @property
    def read(self) -> list[PixelLayout]:
        """Those that it reads."""
        return [self.source, self.added] if self.added else [self.source]


def planewise_task(packing: Packing, number: int, step: PlanewiseStep) -> PlanewiseTask:
    """The task of step `number`."""
    view = step.source
    source = packing.maps.source_map(replace(view, enlarge=1))
    layout = packing.maps.layouts[source]
    formula = _formula(packing, step)
    method = None
    match step:
        case Resize(taps="bicubic"):
            method = BY_RESIZING
            window = RowWindow(source, up=step.down, down=step.up, offset=-1, more=3)
        case Resize():
            method, radius = BY_SIZES, step.radius
            around = {"offset": -radius, "more": 2 * radius + 1}
            window = RowWindow(source, up=step.down, down=step.up, **around)
        case PoolMaxima():
            method = BY_MAXIMA
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
    residual = step.residual
    work = _PlanewiseWork(number, window, planes, step.target, formula, residual, method=method)
    return _task(packing, work)


def rearrange_task(packing: Packing, number: int, step: Rearrange) -> RearrangeTask:
    """The task of step `number`."""
    maps, target = packing.maps, packing.maps.layouts[step.target.value]
    value, part = step.source.value, step.target.part
    return RearrangeTask(
        schedule=TaskSchedule(number, ROWS, target=step.target.value, part=part),
        source=TaskSource(value),
        target=_target(step.target, target),
        planes=target.parts[part],
        padding=target.padded[part] - target.parts[part],
        depth=maps.layouts[value].values,
        parts=step.parts,
        inverse=int(step.inverse),
        as_integers=int(maps.finished().is_kept_as_integers(value)),
    )


def store_task(packing: Packing, number: int, step: Conv, source: int) -> PlanewiseTask:
    """What is left to do behind a convolution whose sums with biases are in the map `source`."""
    group, block = step.out_planes // step.depth_to_space**2, step.depth_to_space
    formula = Formula(
        depth_to_space=block,
        row_step=block * group,
        column_step=group,
        activation=function_number(packing, step.activation.function),
        slopes=_slopes(packing, step.activation),
        factor=step.factor,
        join=JOINED.index(step.join),
    )
    planes = packing.maps.layouts[step.target.value].parts[step.target.part]
    window = RowWindow(source, down=block)
    work = _PlanewiseWork(number, window, planes, step.target, formula, step.residual, scale=block)
    return _task(packing, work)


def function_number(packing: Packing, function: Expression) -> int:
    """The number of a function among those that are compiled."""
    if function not in FUNCTIONS:
        raise BackendError(
            f"{packing.program.model.name}: uses a function that is not among the activations that"
            " backend cpu compiles: use another backend"
        )
    return FUNCTIONS.index(function)


def _slopes(packing: Packing, activation: Activation) -> int:
    """Where the parameters of a function that convolutions do not apply themselves begin."""
    if activation.function == LEAKY or not activation.has_slopes:
        return 0
    slopes = np.zeros(round_up(len(activation.slopes), LANES), np.float32)
    slopes[: len(activation.slopes)] = activation.slopes
    return packing.arrays.add_constant(slopes)


def padding_task(packing: Packing, number: int, window: RowWindow, wide: int) -> PlanewiseTask:
    """A copy of a map of one part into the map `wide`, which is padded with more planes."""
    planes = packing.maps.layouts[wide].parts[0]
    return _task(packing, _PlanewiseWork(number, window, planes, Target(wide), Formula()))


def _formula(packing: Packing, step: PlanewiseStep) -> Formula:
    enlarge = step.source.enlarge
    match step:
        case Planewise():
            starts, up = packing.vector_starts, step.depth_to_space
            return Formula(
                depth_to_space=up,
                space_to_depth=step.space_to_depth,
                enlarge=enlarge,
                plane_step=up**2,
                row_step=up if up > 1 else 0,
                column_step=1 if up > 1 else 0,
                vector=-1 if step.vector is None else starts[step.vector],
                shifts=-1 if step.shifts is None else starts[step.shifts],
                factor=step.factor,
                join=JOINED.index(step.join),
            )
        case PoolMaxima():
            return Formula(pool=step.kernel, pool_step=step.stride)
        case Resize(taps="bicubic"):
            taps = packing.arrays.add_constant(cubic_taps(step.up, step.down).ravel())
            return Formula(up=step.up, down=step.down, cubic=taps)
    return Formula()


def _task(packing: Packing, work: _PlanewiseWork) -> PlanewiseTask:
    maps, target = packing.maps, work.target
    windows, added, residual = [work.window], None, TaskResidual()
    if work.residual is not None:
        view = replace(work.residual, value=maps.source_map(work.residual))
        windows.append(packing.residual_window(view))
        added = maps.layouts[view.value]
        residual = TaskResidual(
            *(view.value, view.offset, added.start(view.first), added.strides(1)[0]),
            terms=added.terms,
            lo=added.values,
            zero=added.zero_at(view.first),
        )
    layouts = _Layouts(maps.layouts[work.window.map], maps.layouts[target.value], added)
    writes = target.value == packing.program.result
    method = _write_method(work, layouts) if writes else _map_method(work, layouts)
    planes, padding = _padded(work, layouts, whole=method == BY_PLANES and not writes)
    return PlanewiseTask(
        schedule=_schedule(work, layouts.target, tuple(windows), writes=writes),
        kind=WRITE if writes else PLANEWISE,
        method=method,
        source=_source(work.window, layouts.source),
        target=_target(target, layouts.target),
        residual=residual,
        formula=work.formula,
        planes=planes,
        padding=0 if writes else padding,
    )


def _schedule(
    work: _PlanewiseWork, target: PixelLayout, windows: tuple[RowWindow, ...], *, writes: bool
) -> TaskSchedule:
    if writes:
        return TaskSchedule(work.number, ROWS, windows, scale=work.scale)
    return TaskSchedule(
        work.number,
        round_up(ROWS, target.space_to_depth),
        windows,
        work.target.value,
        work.target.part,
        (1, target.space_to_depth),
        work.scale,
    )


def _source(window: RowWindow, layout: PixelLayout) -> TaskSource:
    return TaskSource(
        window.map,
        offset=window.offset,
        plane=layout.start(window.first),
        terms=layout.terms,
        lo=layout.values,
        zero=layout.zero_at(window.first),
    )


def _target(target: Target, layout: PixelLayout) -> TaskTarget:
    pixel, pair, block = layout.strides(1)
    return TaskTarget(
        *(target.value, layout.start(target.part) + target.plane, pixel, pair, block),
        terms=layout.terms,
        lo=layout.values,
        zero=layout.zero_at(target.part),
    )


def _padded(work: _PlanewiseWork, layouts: _Layouts, *, whole: bool) -> tuple[int, int]:
    """The planes that a task makes, and those behind them that it makes zero; `whole` parts are
    read with the planes that pad them."""
    target, part = layouts.target, work.target.part
    if whole and layouts.source.padded[work.window.first] == target.padded[part]:
        return target.padded[part], 0
    if work.target.plane + work.planes == target.parts[part]:
        return work.planes, target.padded[part] - target.parts[part]
    return work.planes, 0


def _write_method(work: _PlanewiseWork, layouts: _Layouts) -> int:
    """How the pixels of the result are read."""
    formula = work.formula
    if work.method is not None:
        return work.method
    if not _is_plain(work, layouts):
        return BY_VALUES
    is_copy = (
        work.residual is None
        and formula.factor == formula.depth_to_space == formula.enlarge == 1
        and layouts.source.planes == work.planes
    )
    return BY_PLANES if is_copy else BY_FLOATS


def _map_method(work: _PlanewiseWork, layouts: _Layouts) -> int:
    """How the source of a task that writes a map is read."""
    if work.method is not None:
        return work.method
    if _is_by_planes(work, layouts):
        return BY_PLANES
    target = layouts.target
    is_plain = _is_plain(work, layouts) or _is_unshuffle(work, layouts)
    return BY_FLOATS if is_plain and not target.terms and target.space_to_depth == 1 else BY_VALUES


def _is_even(work: _PlanewiseWork, layouts: _Layouts) -> bool:
    """Whether what a row reads lies evenly spaced."""
    return work.formula.space_to_depth == 1 and all(
        layout.space_to_depth == 1 for layout in layouts.read
    )


def _is_plain(work: _PlanewiseWork, layouts: _Layouts) -> bool:
    """Whether a task reads floats that lie evenly spaced, and only scales and adds them."""
    formula = work.formula
    curved = formula.activation or formula.join or formula.vector >= 0
    is_float = not any(layout.terms for layout in layouts.read)
    return not curved and is_float and _is_even(work, layouts)


def _is_unshuffle(work: _PlanewiseWork, layouts: _Layouts) -> bool:
    """Whether a task only makes planes of the pixels of a map of floats stored by single pixels."""
    source, formula = layouts.source, work.formula
    is_float = source.terms == 0 and source.space_to_depth == 1
    return is_float and formula.space_to_depth > 1 and formula.enlarge == 1


def _is_by_planes(work: _PlanewiseWork, layouts: _Layouts) -> bool:
    """Whether a task makes a whole part, pixel by pixel, of maps padded to whole vectors."""
    formula, source, target = work.formula, layouts.source, layouts.target
    padded = target.padded[work.target.part]
    added = 0
    if layouts.added and work.residual:
        added = layouts.added.padded[work.residual.first]
    return (
        _is_even(work, layouts)
        and work.target.plane == 0
        and work.planes == target.parts[work.target.part] == source.parts[work.window.first]
        and padded % LANES == 0
        and target.space_to_depth <= 2
        and formula.depth_to_space == formula.enlarge == 1
        and (source.padded[work.window.first] == padded or source.planes <= FEW)
        and added in (0, padded)
    )
