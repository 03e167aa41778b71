"""Runs convolutions in fp32, by `direct.cl`, `winograd.cl` or `winograd_vector.cl`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument, Limits
from waifu2x.backends.gpu.device.source import float_text, switches
from waifu2x.backends.gpu.fp32 import direct, matrix, winograd
from waifu2x.backends.gpu.fp32.activation import activation_macro, cheapest, join_macro
from waifu2x.backends.gpu.fp32.conv_planes import NARROW, Planes, planes_of
from waifu2x.backends.gpu.fp32.maps import (
    Margin,
    bounds,
    picture_arguments,
    result_arguments,
    source_macros,
    target_macros,
)
from waifu2x.backends.gpu.fp32.matrix import MatrixUnit
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import Box, round_up, scaled

ConvShape = (
    direct.DirectShape | matrix.MatrixShape | winograd.WinogradShape | winograd.WinogradVectorShape
)
"""The division of a convolution's work among groups of work-items; its `repr` identifies it.

`planes`, `rows`, `columns` and `group` are the output planes, pixel rows, pixel columns and
work-items of a group. With `plane_groups`, groups divide the planes among them; otherwise each
makes all. `share` is the multiply-adds done, divided by those of the definition. `macros` returns
the macros of the kernel `stem`; `pack` reorders a weight (out, in, taps, taps) as that kernel reads
it.
"""


class Fp32ConvStep(Fp32Step[Conv]):
    """A convolution, in the shape that the context chooses."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        program, step = self.program, self.step
        self._planes = planes = planes_of(program, step, self.block)
        found = candidates(self.runtime.limits, planes, context.unit)
        self._shape = shape = context.choose(number, found, f"fp32 {planes!r}")
        self._is_checked = self.form.is_half and not planes.from_pixels
        self.share = shape.share
        self._target = program.values[step.target.value]
        self._width = round_up(planes.out_count, shape.planes)
        epilogue = np.zeros((2, self._width), np.float32)
        epilogue[0, planes.outputs], epilogue[1, planes.outputs] = step.bias, step.activation.slopes
        self._weight = self.upload(shape.pack(planes, step.weight))
        self._epilogue = self.upload(epilogue)
        self._macros = {**shape.macros(planes), **self._store_macros()}

    @property
    def margin(self) -> Margin:
        """The most pixels of its results beyond a box of whole cells."""
        rows, columns, cell = self._shape.rows, self._shape.columns, self.form.cell
        return Margin(rows - math.gcd(rows, cell), columns - math.gcd(columns, cell))

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the results in a box."""
        step, shape, planes = self.step, self._shape, self._planes
        batch, box, model = task.batch, task.boxes[self.number], self.program.model
        macros, source = dict(self._macros), step.source
        if planes.from_pixels:
            macros |= source_macros(batch.source, model, source)
            read = picture_arguments(batch, model, source, box.top, box.left)
        else:
            read = task.maps.read(source, box)
        if planes.to_pixels:
            macros |= target_macros(batch.target, model.out_planes)
        row_groups = -(-box.height // shape.rows)
        groups = (
            self._width // shape.planes if shape.plane_groups else 1,
            -(-box.width // shape.columns),
            row_groups * task.pictures,
        )
        arguments = plain(
            *read,
            self._weight,
            self._epilogue,
            row_groups,
            *self._written(task, box),
            *self._residual(task, box),
            *self._bounds(task, box),
            *((batch.flags, box.height, box.width) if self._is_checked else ()),
        )
        return self.launch_of(KernelSpec(shape.stem, macros, shape.group), groups, arguments)

    def _store_macros(self) -> dict[str, str | int]:
        step, planes, target = self.step, self._planes, self._target
        own = step.out_planes // step.depth_to_space**2
        vector = NARROW if planes.is_narrow and planes.block > NARROW else planes.block
        macros: dict[str, str | int] = {
            **self.form.macros,
            "SUB_PLANES": planes.sub_planes if step.depth_to_space > 1 else self._width,
            "SUB_BLOCKS": -(-own // planes.block),
            "STORED": planes.out_count if planes.to_pixels else round_up(planes.out_count, vector),
            "D2S": step.depth_to_space,
            "S2D": target.space_to_depth,
            **activation_macro(cheapest(step.activation)),
            **join_macro(step.join),
            **switches(
                RESIDUAL=step.residual,
                CHECKED=self._is_checked,
                ZERO_OUTSIDE=target.zero_outside and not planes.to_pixels,
            ),
        }
        slopes = step.activation.slopes
        if not step.activation.has_slopes:
            macros["SLOPE"] = "0.0f"
        elif (slopes == slopes[0]).all():
            macros["SLOPE"] = float_text(slopes[0])
        if step.factor != 1:
            macros["FACTOR"] = float_text(step.factor)
        return macros

    def _written(self, task: Fp32Task, box: Box) -> Sequence[Argument]:
        step, s2d = self.step, self._target.space_to_depth
        top, left = scaled(box, step.depth_to_space)[:2]
        if self._planes.to_pixels:
            return result_arguments(task.batch, top, left)
        return task.maps[step.target.value].arguments(top // s2d, left // s2d, step.target.part)

    def _residual(self, task: Fp32Task, box: Box) -> Sequence[Argument]:
        view = self.step.residual
        if view is None:
            return ()
        offset = view.offset // self.step.depth_to_space
        return task.maps[view.value].arguments(box.top + offset, box.left + offset, view.first)

    def _bounds(self, task: Fp32Task, box: Box) -> Sequence[Argument]:
        step = self.step
        top, left = scaled(box, step.depth_to_space)[:2]
        if self._planes.to_pixels:
            return bounds(task.batch.tile, top, left)
        return task.whole(step.target.value, top, left) if self._target.zero_outside else ()


def candidates(limits: Limits, planes: Planes, unit: MatrixUnit | None = None) -> list[ConvShape]:
    """Returns the shapes that a convolution can take on a device, the default first; with a unit
    for products of matrices, those for maps of 16 bits."""
    shapes: list[ConvShape] = []
    if unit is not None:
        shapes += matrix.candidates(limits, planes, unit)
    else:
        shapes += winograd.candidates(limits, planes)
    return shapes or [*direct.candidates(limits, planes)]
