"""Planewise steps between maps of matrix units, by `kernels/tensor_planewise.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from waifu2x.backends.cuda.arguments import Address, structs
from waifu2x.backends.cuda.tensor.cells import CellStep, residual_macros
from waifu2x.backends.cuda.tensor.layout import PLANE_UNIT, FewLayout, MapArguments, MapLayout
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.step import LayerExtent, Range, Task
from waifu2x.backends.gpu.device.launch import Launch
from waifu2x.lowering.ops.planewise import Planewise, PlanewiseStep
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import GATE, MULTIPLY

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


class AnyPlanewiseStep(CellStep):
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
        super().__init__(runtime, program, number, layouts)
        step = program.steps[number]
        assert isinstance(step, PlanewiseStep)
        self._step = step
        self._residual = step.residual
        self._terms = terms
        self._vector_places = vector_places

    def factors(self, task: Task) -> Address:
        """The address of the factors of its planes, if it has any."""
        if not self._step.vectors_read:
            return Address(0)
        place = self._vector_places[self._step.vectors_read[0]]
        return Address(task.vectors.vectors + 4 * place)


class TensorPlanewiseStep(AnyPlanewiseStep):
    """A planewise step between maps of many planes, by vectors of 16 bytes: for steps of which
    `has_whole_vectors` says so."""

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, box = self._step, task.boxes[self.number]
        source, made = self.layout(step.source.value), self.written(task, step.target)
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
            "FACTORS": len(step.vectors_read),
            "GATE": 2 if step.join == MULTIPLY else int(step.join == GATE),
            "TERMS": self._terms,
            **made.macros,
        }
        residual, added = Address(0), MapArguments()
        if self._residual:
            residual, added = task.address(self._residual.value), self.seen(task, self._residual)
            chosen |= residual_macros(self.layout(self._residual.value), self._residual)
            chosen["RESIDUAL"] = 1
        arguments = PlanewiseArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            residual,
            self.factors(task),
            task.check.flags,
            self.seen(task, step.source),
            made.arguments,
            added,
            made.extent,
            made.valid,
            task.vectors.vectors_each,
            np.float32(step.factor),
            task.check.beyond,
        )
        columns_each = _THREADS // vectors * repeats
        parts = written // (VECTOR_VALUES * vectors)
        blocks = (-(-box.width // columns_each), box.height, parts * task.grid.pictures)
        kernel = ("tensor_planewise", chosen)
        return self.launch_of(kernel, _THREADS, 0, blocks, lambda: structs(arguments))


def has_whole_vectors(
    program: Program, step: PlanewiseStep, layouts: Sequence[MapLayout | FewLayout]
) -> bool:
    """Whether a step reads and writes whole vectors of 16 bytes, each from one place."""
    values = (*(view.value for view in step.reads), step.target.value)
    are_maps = all(
        0 < value < program.result and isinstance(layouts[value], MapLayout) for value in values
    )
    _, written = written_planes(program, step)
    return (
        are_maps
        and isinstance(step, Planewise)
        and not step.moves
        and (step.target.plane | written) % VECTOR_VALUES == 0
    )


def written_planes(program: Program, step: PlanewiseStep) -> tuple[int, int]:
    """Planes that a step makes, and those that it writes: whoever writes a part's last plane writes
    the zeros behind it, too."""
    planes = step.planes_made(program)
    part_planes = program.values[step.target.value].parts[step.target.part]
    if step.target.plane + planes < part_planes:
        return planes, planes
    return planes, round_up(part_planes, PLANE_UNIT) - step.target.plane
