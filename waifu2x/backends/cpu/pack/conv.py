"""Packs convolutions: chooses their kernels and targets, and packs their weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import PLANE_UNIT, unit_of
from waifu2x.backends.cpu.pack import records, weights
from waifu2x.backends.cpu.pack.layouts import PixelLayout
from waifu2x.backends.cpu.pack.maps import FEW
from waifu2x.backends.cpu.pack.packing import Packers, Packing
from waifu2x.backends.cpu.pack.planewise import padding_task, store_task
from waifu2x.backends.cpu.pack.shapes import BLOCK, INTEGER_BLOCK, LANES
from waifu2x.backends.cpu.pack.tasks import (
    IN_INTEGERS,
    ON_TILES,
    ROWS,
    CpuTask,
    RowWindow,
    TaskSchedule,
)
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.values import Target, View
from waifu2x.networks.expressions import ADD, LEAKY
from waifu2x.system.lazy_dataclass import dataclass

_LEAST_INTEGERS = 32
"""The fewest input planes of a 1x1 convolution in integers: with fewer, quantization costs what it
saves."""
_WEIGHTS = {
    records.FEW_INPUTS: weights.pack_direct,
    records.POINTWISE: weights.pack_direct,
    records.WINOGRAD: weights.pack_winograd,
    records.INTEGER_WINOGRAD: weights.pack_integers,
    records.INTEGER_POINTWISE: weights.pack_integer_points,
    records.FEW_OUTPUTS: weights.pack_few_outputs,
    records.TILES: weights.pack_tiles,
    records.PIXEL_TILES: weights.pack_pixel_tiles,
    records.FEW_TILES: weights.pack_few_tiles,
}


@dataclass(frozen=True)
class _Store:
    """The map that the kernel of a convolution writes."""

    target: Target
    depth_to_space: int
    group_planes: int
    """The planes of a pixel after depth-to-space, with padding."""
    is_direct: bool
    """Whether it is the step's own target: then the epilogue completes the step."""


def pack_conv(packing: Packing, number: int, step: Conv) -> list[CpuTask]:
    """Packs step `number`: a copy of the picture with padded planes if the convolution needs it,
    the convolution, and a planewise task if its epilogue does not complete the step."""
    tasks: list[CpuTask] = []
    maps, view = packing.maps, step.source
    source = maps.source_map(view)
    if not view.value and step.taps == 1:
        layout = maps.layouts[source]
        padded = round_up(layout.parts[0], PLANE_UNIT[packing.arithmetic])
        wide = maps.add(replace(layout, padded=(padded,)))
        tasks.append(padding_task(packing, number, RowWindow(source, offset=view.offset), wide))
        source, view = wide, replace(view, offset=0)
    kind = _kind(packing, step, maps.layouts[source])
    store = _store(packing, step, kind)
    tasks.append(_conv_task(packing, number, step, replace(view, value=source), kind, store))
    if not store.is_direct:
        tasks.append(store_task(packing, number, step, store.target.value))
    return tasks


def pack_depthwise(packing: Packing, number: int, step: Depthwise) -> list[CpuTask]:
    """Packs step `number`. Its maps are floats, padded to whole vectors."""
    value, part = step.target.value, step.target.part
    planes, arrays = packing.layout(value).padded[part], packing.arrays
    constants = np.zeros((2, planes), np.float32)
    constants[:, : len(step.bias)] = step.bias, step.activation.slopes
    fields = {
        **packing.source(step.source),
        **packing.target(step.target),
        "planes": planes,
        "taps": step.taps,
        "weight": arrays.add_weight(weights.pack_depthwise(step.weight, planes)),
        "bias": arrays.add_constant(constants[0]),
        "slopes": arrays.add_constant(constants[1]),
        "activation": packing.function(step.activation.function),
        "join": records.JOINED.index(step.join),
    }
    windows = [packing.window(step.source, step.taps - 1)]
    if step.residual is not None:
        windows.append(packing.residual_window(step.residual))
        fields |= packing.residual(step.residual)
    return [
        CpuTask(TaskSchedule(number, ROWS, tuple(windows), value, part), records.DEPTHWISE, fields)
    ]


def _kind(packing: Packing, step: Conv, source: PixelLayout) -> int:
    """Returns the kind of its task, which chooses its kernel."""
    few = step.taps == 3 and step.out_planes <= FEW
    in_integers = packing.arithmetic == "int16"
    if source.terms:
        return records.FEW_TILES if few else records.TILES
    if step.taps == 1:
        many = in_integers and step.in_planes >= _LEAST_INTEGERS
        return records.INTEGER_POINTWISE if many else records.POINTWISE
    if in_integers and step.taps == 3:
        inner = step.source.value and source.planes % INTEGER_BLOCK == 0
        return records.INTEGER_WINOGRAD if inner else records.FEW_INPUTS
    if step.taps > 3:
        return records.FEW_INPUTS if step.taps % 3 or source.planes % LANES else records.WINOGRAD
    if source.planes % LANES:
        fits = packing.arithmetic == "bf16" and source.planes <= FEW and not few
        return records.PIXEL_TILES if fits else records.FEW_INPUTS
    return records.FEW_OUTPUTS if few else records.WINOGRAD


def _store(packing: Packing, step: Conv, kind: int) -> _Store:
    if _is_direct(packing, step, kind):
        planes = packing.layout(step.target.value).padded[step.target.part]
        return _Store(step.target, step.depth_to_space, planes, is_direct=True)
    unit = LANES if kind in (*IN_INTEGERS, *ON_TILES) else PLANE_UNIT[packing.arithmetic]
    few = kind in (records.FEW_OUTPUTS, records.FEW_TILES)
    planes = step.out_planes if few else round_up(step.out_planes, unit)
    between = packing.maps.add(PixelLayout((step.out_planes,), (planes,)))
    return _Store(Target(between), 1, planes, is_direct=False)


def _is_direct(packing: Packing, step: Conv, kind: int) -> bool:
    """Returns whether the epilogue of that kind completes the step."""
    layouts = packing.maps.layouts
    target = layouts[step.target.value]
    added = [layouts[step.residual.value]] if step.residual else []
    does_all = (
        step.target.value != packing.program.result
        and step.activation.function == LEAKY
        and step.join == ADD
        and (step.factor == 1 or bool(added))
        and target.space_to_depth <= 2
        and step.depth_to_space <= records.MOST_DEPTH_TO_SPACE
    )
    if kind in (records.FEW_OUTPUTS, records.FEW_TILES):
        is_plain = len(target.parts) == target.space_to_depth == 1 and target.padded == target.parts
        fits = is_plain and step.depth_to_space == 1 and not added
    else:
        fits = target.planes % PLANE_UNIT[packing.arithmetic] == 0
        if kind not in (records.TILES, records.PIXEL_TILES):
            fits = fits and not any(layout.terms for layout in (target, *added))
    return does_all and fits


def _conv_task(
    packing: Packing, number: int, step: Conv, view: View, kind: int, store: _Store
) -> CpuTask:
    """Packs the convolution itself; `view` is its source."""
    source, target, block = packing.layout(view.value), store.target, store.depth_to_space
    depth = _depth(source, view)
    weight, bias, slopes = _arrays(packing, step, view, kind, store)
    fields = {
        **packing.source(view),
        "source_plane": source.start(view.first) // (2 if source.terms else 1),
        "source_terms": packing.maps.terms_read(step, source),
        **packing.target(target, block),
        "depth": depth * ((step.taps // 3) ** 2 if kind == records.WINOGRAD else 1),
        "planes": block**2 * store.group_planes,
        "group_planes": store.group_planes,
        "taps": step.taps,
        "across": 1 if kind == records.PIXEL_TILES else step.taps,
        "k_blocks": 2 if kind == records.PIXEL_TILES else depth // BLOCK,
        "k_step": 0 if kind == records.PIXEL_TILES else BLOCK // 2,
        "weight": weight,
        "bias": bias,
        "slopes": slopes,
        "depth_to_space": block,
    }
    windows = [packing.window(view, step.taps - 1)]
    if store.is_direct and step.residual is not None:
        windows.append(packing.residual_window(step.residual, block))
        fields |= packing.residual(step.residual, block)
    made = packing.layout(target.value)
    schedule = TaskSchedule(
        number,
        _rows(packing, kind, made),
        tuple(windows),
        target.value,
        target.part,
        (block, made.space_to_depth),
    )
    return CpuTask(schedule, kind, fields, step.factor)


def _depth(source: PixelLayout, view: View) -> int:
    """Returns the number of planes read of each stored pixel, with padding."""
    if view.parts == len(source.parts):
        return source.values
    return sum(source.padded[view.first : view.first + view.parts])


def _rows(packing: Packing, kind: int, target: PixelLayout) -> int:
    """Returns the rows that a convolution computes at a time."""
    if kind in (records.POINTWISE, records.INTEGER_POINTWISE):
        return target.space_to_depth
    return records.CELL if kind == records.WINOGRAD else unit_of(packing.arithmetic)[0]


def _arrays(
    packing: Packing, step: Conv, view: View, kind: int, store: _Store
) -> tuple[int, int, int]:
    """Adds weights, biases and slopes, padded to whole vectors of planes; returns their offsets."""
    source, arrays = packing.layout(view.value), packing.arrays
    groups = store.depth_to_space**2
    planes, count = groups * store.group_planes, step.out_planes // groups
    made = (np.arange(groups)[:, np.newaxis] * store.group_planes + np.arange(count)).ravel()
    read = source.positions(view.first, view.parts)
    weight = np.zeros((planes, _depth(source, view), step.taps, step.taps), np.float32)
    weight[np.ix_(made, read)] = step.weight
    bias = np.zeros(round_up(planes, LANES), np.float32)
    slopes = np.zeros_like(bias)
    bias[made] = step.bias
    if source.terms:
        bias[made] += _share_of_zero_point(step.weight, source, view)
    slopes[made] = step.activation.slopes if step.activation.function == LEAKY else 1
    return (
        arrays.add_weight(_WEIGHTS[kind](weight, store.group_planes)),
        arrays.add_constant(bias),
        arrays.add_constant(slopes),
    )


def _share_of_zero_point(
    weight: NDArray[np.float32], source: PixelLayout, view: View
) -> NDArray[np.float64]:
    """Returns the contribution of the inputs' zero point to the sums, (out,)."""
    points = np.tile(source.zero_point, source.space_to_depth**2)
    read = points[source.start(view.first) + source.positions(view.first, view.parts)]
    share: NDArray[np.float64] = weight.sum(axis=(2, 3), dtype=np.float64) @ read
    return share


PACKERS: Packers = {Conv: pack_conv, Depthwise: pack_depthwise}
