"""Runs planewise steps in fp32, by `kernels/planewise.cl`."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, plain
from waifu2x.backends.gpu.device.runtime import Argument
from waifu2x.backends.gpu.device.source import float_text, switches, vector_type
from waifu2x.backends.gpu.fp32.activation import join_macro
from waifu2x.backends.gpu.fp32.maps import (
    HALF_VECTOR,
    blocks_of,
    bounds,
    result_arguments,
    source_macros,
    target_macros,
)
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.backends.gpu.planewise import source_value_macros
from waifu2x.lowering.ops.planewise import PlanewiseStep, Rearrange, ResamplingStep
from waifu2x.lowering.plan.box import round_up

_GROUP = 64


class Fp32PlanewiseStep(Fp32Step[PlanewiseStep]):
    """A planewise step of any kind."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, block = self.step, self.block
        self._residual = step.residual
        self._group = self.runtime.limits.group(_GROUP)
        values, target = self.program.values, self.program.values[step.target.value]
        source = values[step.source.value]
        self._from_pixels = step.source.value == 0
        self._to_pixels = step.target.value == self.program.result
        planes = step.planes_made(self.program)
        part = target.parts[step.target.part]
        end = step.target.plane + planes
        # The step that writes the end of a part fills its last block with zeros.
        filled = round_up(part, block) if end == part and not self._to_pixels else end
        width = min(block, HALF_VECTOR) if self.form.is_half else block
        self._vectors = -(-(filled - step.target.plane) // width)
        macros: dict[str, str | int] = {
            "GROUP": self._group,
            **self.form.macros,
            "WIDTH": width,
            "VECTOR": vector_type(width),
            "PLANES": planes,
            "TARGET_PLANE": step.target.plane,
            "PART_PLANES": filled - step.target.plane,
            **source_value_macros(self.program, step),
            "SOURCE_S2D": source.space_to_depth,
            "SOURCE_BLOCKS": blocks_of(source, block)[0],
            "TARGET_S2D": target.space_to_depth,
            "TARGET_BLOCKS": blocks_of(target, block)[0],
            **switches(ZERO_OUTSIDE=target.zero_outside and not self._to_pixels),
        }
        macros |= dict.fromkeys(("FACTORS", "SHIFTS")[: len(step.vectors_read)], 1)
        if step.factor != 1:
            macros["FACTOR"] = float_text(step.factor)
        if self._residual is not None:
            residual = values[self._residual.value]
            macros["RESIDUAL"] = 1
            macros |= join_macro(step.join)
            macros["RESIDUAL_S2D"] = residual.space_to_depth
            macros["RESIDUAL_BLOCKS"] = blocks_of(residual, block)[0]
        self._macros = macros

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the results in a box."""
        batch, box, model = task.batch, task.boxes[self.number], self.program.model
        macros = dict(self._macros)
        if self._from_pixels:
            macros |= source_macros(batch.source, model, self.step.source)
        if self._to_pixels:
            macros |= target_macros(batch.target, model.out_planes)
        groups = -(-box.width // self._group), self._vectors, box.height * task.pictures
        arguments = plain(
            *self._read(task),
            self.step.source.offset,
            *self._written(task),
            *box,
            *self._bounds(task),
            *self._factors(task),
            *self._added(task),
            *((batch.flags,) if self.form.is_half else ()),
        )
        return self.launch_of(KernelSpec("planewise", macros, self._group), groups, arguments)

    def _read(self, task: Fp32Task) -> Sequence[Argument]:
        batch, view = task.batch, self.step.source
        if self._from_pixels:
            return (batch.source.buffer, *batch.source.shape[1:3], self.program.model.padding)
        source = task.maps[view.value]
        place = (*source.start(view.first), *source.corner)
        if isinstance(self.step, ResamplingStep | Rearrange):
            return (*place, *batch.sizes[view.value], *batch.sizes[self.step.target.value])
        return place

    def _written(self, task: Fp32Task) -> Sequence[Argument]:
        target = self.step.target
        if self._to_pixels:
            box = task.batch.target_box
            return (*result_arguments(task.batch, box.top, box.left), *box[:2])
        made = task.maps[target.value]
        return (*made.start(target.part), *made.corner)

    def _bounds(self, task: Fp32Task) -> Sequence[Argument]:
        if self._to_pixels:
            return bounds(task.batch.tile, 0, 0)
        return task.whole(self.step.target.value, 0, 0)

    def _factors(self, task: Fp32Task) -> Sequence[Argument]:
        """Returns the places of the planes' factors, and of their shifts if there are any."""
        places = [self.layout.vectors[vector] for vector in self.step.vectors_read]
        return (task.vectors, places[0], self.layout.step, *places[1:]) if places else ()

    def _added(self, task: Fp32Task) -> Sequence[Argument]:
        view = self._residual
        if view is None:
            return ()
        residual = task.maps[view.value]
        top, left = residual.corner
        return (*residual.start(view.first), top - view.offset, left - view.offset)
