"""Runs planewise steps on 16-bit maps by whole vectors, by `kernels/tensor_planewise.cu`."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.cuda.tensor.activation import join_macro
from waifu2x.backends.cuda.tensor.layout import PLANE_UNIT, FewLayout, MapLayout
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES, vectors_of
from waifu2x.backends.cuda.tensor.step import TensorStep, TensorTask
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.lowering.ops.planewise import Planewise, PlanewiseStep
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program

_THREADS = 256
_REPEATS = 4


class TensorPlanewiseStep(TensorStep[PlanewiseStep]):
    """A planewise step between maps of many planes, by vectors of 16 bytes; `has_whole_vectors`
    must hold for it."""

    def launch(self, task: TensorTask) -> Launch:
        step, box = self.step, task.boxes[self.number]
        source, residual = self.layout(step.source.value), step.residual
        read, made = self.read(task, step.source), self.written(task, step.target)
        added = self.added(task, residual)
        planes, written = written_planes(self.program, step)
        vectors = vectors_of(written)
        # Halved, since two terms of two maps would take more registers than a thread has.
        repeats = _REPEATS // 2 if residual and source.terms == 2 else _REPEATS
        macros: dict[str, str | int] = {
            "THREADS": _THREADS,
            "VECTORS": vectors,
            "REPEATS": repeats,
            "PLANES": planes,
            "WRITTEN": written,
            "IN_EACH": source.parts[step.source.first],
            "IN_S2D": source.space_to_depth,
            "IN_PART": source.start(step.source.first),
            "ENLARGE": step.source.enlarge,
            "FACTORS": len(step.vectors_read),
            **read.macros,
            **made.macros,
            **added.macros,
            **join_macro(step.join, 2),
        }
        factors = {
            "factors": self.vector(task, next(iter(step.vectors_read), None)),
            "factors_each": task.vectors.vectors_each,
            "factor": step.factor,
        }
        across = -(-box.width // (_THREADS // vectors * repeats))
        parts = written // (VECTOR_VALUES * vectors)
        blocks = across, box.height, parts * task.grid.pictures
        fields = {**read.fields, **made.fields, **added.fields, **factors}
        return self.launch_with(KernelSpec("tensor_planewise", macros, _THREADS), blocks, fields)


def has_whole_vectors(
    program: Program, step: PlanewiseStep, layouts: Sequence[MapLayout | FewLayout]
) -> bool:
    """Returns whether a step reads and writes whole vectors of 16 bytes, each from one vector."""
    values = (*(view.value for view in step.reads), step.target.value)
    are_maps = all(
        0 < value < program.result and isinstance(layouts[value], MapLayout) for value in values
    )
    _, written = written_planes(program, step)
    return (
        are_maps
        and isinstance(step, Planewise)
        and not step.is_shuffle
        and (step.target.plane | written) % VECTOR_VALUES == 0
    )


def written_planes(program: Program, step: PlanewiseStep) -> tuple[int, int]:
    """Returns the number of planes that a step makes, and that it writes: the step that makes a
    part's last plane also writes the zeros behind it."""
    planes = step.planes_made(program)
    part_planes = program.values[step.target.value].parts[step.target.part]
    if step.target.plane + planes < part_planes:
        return planes, planes
    return planes, round_up(part_planes, PLANE_UNIT) - step.target.plane
