"""Decides which programs matrix units can run; others run in fp32, on the multiply-add units."""

from __future__ import annotations

import math
from collections.abc import Sequence

from waifu2x.backends.cuda.tensor.attention import LEAST_SCALE, MOST_BIASES, MOST_DEPTH
from waifu2x.backends.cuda.tensor.channel_attention import mix_bytes
from waifu2x.backends.cuda.tensor.layout import PLANE_UNIT, FewLayout, MapLayout
from waifu2x.backends.cuda.tensor.shape import MOST_SUMS, ROWS_WIDTH
from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows, CrossSums, MixPlanes
from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import InterleavePixels
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import MULTIPLY

_NORM_PLANES = 512
"""The most planes of a norm that fit the registers of its threads."""
_MIX_BYTES = 63 << 10
"""The most shared memory of a block that mixes planes: as much as every chip has."""


def runs(program: Program, layouts: Sequence[MapLayout | FewLayout]) -> bool:
    """Returns whether matrix units can run every step of a program."""
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
            if is_last and (step.join == MULTIPLY or step.own_gate):
                return False
            if step.own_gate and not _fits_rows(layouts[step.source.value]):
                return False
            if not is_last:
                return step.residual is None or is_map(step.residual.value)
            added = step.residual is None or (
                not is_first and step.residual.enlarge == step.depth_to_space
                if step.residual.value == 0
                else step.depth_to_space == 1 and not is_map(step.residual.value)
            )
            return added and step.out_planes <= (PLANE_UNIT if is_first else MOST_SUMS)
        case AttendWindows():
            views = step.source, step.keys, step.values, step.target
            depth = step.planes // step.heads
            fits = depth <= MOST_DEPTH and step.scale >= LEAST_SCALE
            fits = fits and math.prod(step.windows.bias_sides) <= MOST_BIASES
            return fits and all(is_map(view.value) for view in views)
        case CrossSums():
            fits = step.planes // step.heads <= MOST_DEPTH and step.period == 1
            return fits and is_map(step.source.value)
        case MixPlanes():
            written = round_up(step.planes, PLANE_UNIT)
            fits = mix_bytes(step, written) <= _MIX_BYTES and step.period == 1
            return fits and is_map(step.source.value) and is_map(step.target.value)
        case GlobalAvgPool():
            return not step.squared and is_map(step.source.value)
        case Depthwise():
            added = step.residual is None or is_map(step.residual.value)
            return added and is_map(step.source.value) and is_map(step.target.value)
        case NormPlanes():
            values = step.source.value, step.target.value
            return len(step.weight) <= _NORM_PLANES and all(map(is_map, values))
        case NormVector() | AttendPlanes() | InterleavePixels():
            return False
    return True


def _fits_rows(layout: MapLayout | FewLayout) -> bool:
    """Returns whether `tensor_rows.cu` with a gate can read maps of a layout."""
    return isinstance(layout, MapLayout) and layout.group == ROWS_WIDTH
