"""Planewise steps between maps of matrix units, by `kernels/tensor_planewise.cu`."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.cuda.tensor.layout import PLANE_UNIT, FewLayout, MapLayout
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES, vectors_of
from waifu2x.backends.cuda.tensor.step import TensorStep, TensorTask
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.lowering.ops.planewise import Copy, GatedAdd, PlanewiseStep, Scale, ScaleByMap
from waifu2x.lowering.plan.geometry import round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.step_facts import factor_of, is_multiplied, made_planes, reads, residual_of

_THREADS = 256
_REPEATS = 4


class TensorPlanewiseStep(TensorStep[PlanewiseStep]):
    """A planewise step between maps of many planes, by vectors of 16 bytes: one for which
    `has_whole_vectors` holds."""

    def launch(self, task: TensorTask) -> Launch:
        step, box = self.step, task.boxes[self.number]
        source, residual = self.layout(step.source.value), residual_of(step)
        read, made = self.read(task, step.source), self.written(task, step.target)
        added = self.added(task, residual)
        planes, written = written_planes(self.program, step)
        vectors = vectors_of(written)
        # Two terms of two maps take more registers than a thread has.
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
            "FACTORS": int(isinstance(step, Scale)),
            "GATE": 2 if is_multiplied(step) else int(isinstance(step, GatedAdd)),
            **read.macros,
            **made.macros,
            **added.macros,
        }
        factors = {
            "factors": self.vector(task, step.vector if isinstance(step, Scale) else None),
            "factors_each": task.vectors.vectors_each,
            "factor": factor_of(step),
        }
        across = -(-box.width // (_THREADS // vectors * repeats))
        parts = written // (VECTOR_VALUES * vectors)
        blocks = across, box.height, parts * task.grid.pictures
        fields = {**read.fields, **made.fields, **added.fields, **factors}
        return self.launch_with(KernelSpec("tensor_planewise", macros, _THREADS), blocks, fields)


def has_whole_vectors(
    program: Program, step: PlanewiseStep, layouts: Sequence[MapLayout | FewLayout]
) -> bool:
    """Returns whether a step reads and writes whole vectors of 16 bytes, each from one place."""
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
    """Returns the planes that a step makes, and those that it writes: the step that makes a part's
    last plane also writes the zeros behind it."""
    planes = made_planes(step, program.values[step.source.value].parts[step.source.first])
    part_planes = program.values[step.target.value].parts[step.target.part]
    if step.target.plane + planes < part_planes:
        return planes, planes
    return planes, round_up(part_planes, PLANE_UNIT) - step.target.plane
