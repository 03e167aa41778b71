"""Planewise steps between maps of matrix units, by `kernels/tensor_planewise.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor_layout import PLANE_UNIT, FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor_pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor_step import LayerExtent, Range, Task, TensorStep
from waifu2x.backends.gpu.launch import Launch
from waifu2x.lowering.geometry import round_up
from waifu2x.lowering.planewise_steps import Copy, GatedAdd, PlanewiseStep, Scale, ScaleByMap
from waifu2x.lowering.step_facts import factor_of, is_multiplied, made_planes, reads, residual_of
from waifu2x.lowering.steps import Program
from waifu2x.lowering.values import View

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_THREADS = 256
_REPEATS = 4


class PlanewiseArguments(NamedTuple):
    """`Planewise` in `kernels/tensor_planewise.cu`."""

    source: Address
    target: Address
    residual: Address
    factors: Address
    flags: Address
    source_map: MapArguments
    target_map: MapArguments
    residual_map: MapArguments
    extent: LayerExtent
    valid: Range
    factors_each: int
    factor: np.float32
    beyond: int


class AnyPlanewiseStep(TensorStep):
    """What planewise steps of both kernels share."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        terms: int,
        vector_places: Sequence[int],
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, PlanewiseStep)
        self._step = step
        self._residual = residual_of(step)
        self._layouts = layouts
        self._terms = terms
        self._vector_places = vector_places

    def factors(self, task: Task) -> Address:
        """The address of the factors of its planes, if it has any."""
        if not isinstance(self._step, Scale):
            return Address(0)
        return Address(task.vectors.vectors + 4 * self._vector_places[self._step.vector])


class TensorPlanewiseStep(AnyPlanewiseStep):
    """A planewise step between maps of many planes, by vectors of 16 bytes: for steps of which
    `has_whole_vectors` says so."""

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, box = self._step, task.boxes[self.number]
        source, target = self._layouts[step.source.value], self._layouts[step.target.value]
        assert isinstance(source, MapLayout)
        assert isinstance(target, MapLayout)
        held = task.places[step.target.value].box
        planes, written = written_planes(self.program, step)
        vectors = next(n for n in (8, 4, 1) if written % (VECTOR_VALUES * n) == 0)
        # Two terms of two maps take more registers than a thread has.
        repeats = _REPEATS // 2 if self._residual and self._terms == 2 else _REPEATS
        chosen: dict[str, str | int] = {
            "THREADS": _THREADS,
            "VECTORS": vectors,
            "REPEATS": repeats,
            "PLANES": planes,
            "WRITTEN": written,
            "GROUP": source.group,
            "STORED": source.stored,
            "IN_EACH": source.parts[step.source.first],
            "IN_S2D": source.space_to_depth,
            "IN_PART": source.start(step.source.first),
            "ENLARGE": step.source.enlarge,
            "FACTORS": int(isinstance(step, Scale)),
            "GATE": 2 if is_multiplied(step) else int(isinstance(step, GatedAdd)),
            "TERMS": self._terms,
            "OUT_GROUP": target.group,
            "OUT_STORED": target.stored,
            "EACH": target.parts[step.target.part],
            "PART": target.start(step.target.part) + step.target.plane,
            "S2D": target.space_to_depth,
            "ZERO": int(self.reaches_out(step.target.value, box, task)),
            "RESIDUAL": int(self._residual is not None),
        }
        residual, added = Address(0), MapArguments()
        if self._residual:
            layout = self._layouts[self._residual.value]
            assert isinstance(layout, MapLayout)
            residual, added = task.address(self._residual.value), self._seen(task, self._residual)
            chosen |= residual_macros(layout, self._residual)
        rows, columns = task.batch.sizes[step.target.value]
        arguments = PlanewiseArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            residual,
            self.factors(task),
            task.check.flags,
            self._seen(task, step.source),
            target.arguments(held, task.grid, box.top - held.top, box.left - held.left),
            added,
            LayerExtent(
                box.height, box.width, across=task.grid.across, pictures=task.grid.pictures
            ),
            Range(-box.top, -box.left, rows - box.top, columns - box.left),
            task.vectors.vectors_each,
            np.float32(factor_of(step)),
            task.check.beyond,
        )
        columns_each = _THREADS // vectors * repeats
        parts = written // (VECTOR_VALUES * vectors)
        blocks = (-(-box.width // columns_each), box.height, parts * task.grid.pictures)
        kernel = ("tensor_planewise", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))

    def _seen(self, task: Task, view: View) -> MapArguments:
        """A map that a view reads, from the target's first pixel on."""
        layout, held = self._layouts[view.value], task.places[view.value].box
        assert isinstance(layout, MapLayout)
        box = task.boxes[self.number]
        top = box.top + view.offset - held.top * view.enlarge
        left = box.left + view.offset - held.left * view.enlarge
        return layout.arguments(held, task.grid, top, left)


def residual_macros(layout: MapLayout, view: View) -> dict[str, str | int]:
    """The macros of a residual that is a map of many planes."""
    return {
        "RESIDUAL_GROUP": layout.group,
        "RESIDUAL_STORED": layout.stored,
        "RESIDUAL_EACH": layout.parts[view.first],
        "RESIDUAL_S2D": layout.space_to_depth,
        "RESIDUAL_PART": layout.start(view.first),
    }


def has_whole_vectors(
    program: Program, step: PlanewiseStep, layouts: Sequence[MapLayout | FewLayout]
) -> bool:
    """Whether a step reads and writes whole vectors of 16 bytes, each from one place."""
    values = (*(view.value for view in reads(step)), step.target.value)
    are_maps = all(
        0 < value < program.result and isinstance(layouts[value], MapLayout) for value in values
    )
    _, written = written_planes(program, step)
    return (
        are_maps
        and isinstance(step, Copy | Scale | GatedAdd | ScaleByMap)
        and (step.target.plane | written) % VECTOR_VALUES == 0
    )


def written_planes(program: Program, step: PlanewiseStep) -> tuple[int, int]:
    """Planes that a step makes, and those that it writes: whoever writes a part's last plane writes
    the zeros behind it, too."""
    planes = made_planes(step, program.values[step.source.value].parts[step.source.first])
    part_planes = program.values[step.target.value].parts[step.target.part]
    if step.target.plane + planes < part_planes:
        return planes, planes
    return planes, round_up(part_planes, PLANE_UNIT) - step.target.plane
