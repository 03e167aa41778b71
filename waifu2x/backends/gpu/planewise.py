"""The macros by which kernels of planewise steps, `kernels/planewise.cl` and
`kernels/tensor_gather.cu`, know what each value is made of."""

from __future__ import annotations

from waifu2x.lowering.ops.planewise import (
    InterleavePixels,
    Planewise,
    PlanewiseStep,
    PoolMaxima,
    Resize,
    SampleGrid,
)
from waifu2x.lowering.program import Program


def source_value_macros(program: Program, step: PlanewiseStep) -> dict[str, str | int]:
    """Returns the macros of a step, besides those of its maps."""
    macros: dict[str, str | int] = {"STEP_D2S": 1, "STEP_S2D": 1, "ENLARGE": step.source.enlarge}
    match step:
        case Planewise():
            macros |= {"STEP_D2S": step.depth_to_space, "STEP_S2D": step.space_to_depth}
        case Resize(taps="bicubic"):
            macros |= {"UP": step.up, "DOWN": step.down}
        case Resize():
            macros["BILINEAR"] = 1
        case PoolMaxima():
            macros |= {"POOL": step.kernel, "POOL_STEP": step.stride}
        case InterleavePixels():
            macros |= {"PARTS": step.parts, "INVERSE": int(step.inverse)}
        case SampleGrid():
            sampled = step.planes_made(program) // step.scale**2
            macros |= {"SAMPLES": step.scale, "SAMPLED": sampled, "GROUPS": step.groups}
    return macros
