"""Which programs matrix units can run: others run in fp32, on the multiply-add units."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.cuda.tensor_layout import PLANE_UNIT, FewLayout, MapLayout
from waifu2x.backends.cuda.tensor_shape import MOST_SUMS
from waifu2x.lowering.attention_steps import AttendWindows, CrossSums, MixPlanes
from waifu2x.lowering.conv_steps import Conv, Depthwise
from waifu2x.lowering.norm_steps import NormPlanes, NormVector
from waifu2x.lowering.steps import Program, Step
from waifu2x.lowering.vector_steps import GlobalAvgPool


def runs(program: Program, layouts: Sequence[MapLayout | FewLayout]) -> bool:
    """Whether matrix units can run every step of a program."""
    return all(_runs(program, layouts, step) for step in program.steps)


def _runs(program: Program, layouts: Sequence[MapLayout | FewLayout], step: Step) -> bool:
    def is_map(value: int) -> bool:
        return 0 < value < program.result and isinstance(layouts[value], MapLayout)

    match step:
        case Conv():
            if step.taps > 3 and not step.resized:
                return False
            is_first, is_last = not is_map(step.source.value), not is_map(step.target.value)
            if step.factor != 1 and step.residual is None:
                return False
            if is_first and not isinstance(layouts[step.source.value], FewLayout):
                return False
            if is_last and step.multiplied:
                return False
            if not is_last:
                return step.residual is None or is_map(step.residual.value)
            added = step.residual is None or (
                not is_first and step.residual.enlarge == step.depth_to_space
                if step.residual.value == 0
                else step.depth_to_space == 1 and not is_map(step.residual.value)
            )
            return added and step.out_planes <= (PLANE_UNIT if is_first else MOST_SUMS)
        case AttendWindows() | CrossSums() | MixPlanes():
            return False
        case GlobalAvgPool():
            return is_map(step.source.value)
        case Depthwise() | NormPlanes() | NormVector():
            return False
    return True
