"""Checks of planewise steps."""

from __future__ import annotations

from waifu2x.lowering.ops.checker import Checker
from waifu2x.lowering.ops.planewise import (
    BicubicResize,
    BilinearResize,
    DepthToSpace,
    PlanewiseStep,
    PoolMaxima,
    Rearrange,
    ResamplingStep,
    Scale,
    SpaceToDepth,
)
from waifu2x.lowering.step_facts import residual_of


def check_planewise(check: Checker, step: PlanewiseStep) -> None:
    check.must(step.source.parts == 1, "source", "several parts")
    residual = residual_of(step)
    if residual:
        check.joined(step, residual)
        # An engine may let the last step read the picture itself.
        is_last = step.target.value == check.program.result
        check.must(residual.value != 0 or is_last, "residual", "of the picture")


def check_depth_to_space(check: Checker, step: DepthToSpace) -> None:
    planes = check.planes_read(step.source)
    whole = step.block >= 1 and planes % step.block**2 == 0
    check.must(whole, "block", f"{step.block}, of {planes} planes")
    check_planewise(check, step)


def check_space_to_depth(check: Checker, step: SpaceToDepth) -> None:
    check.must(step.block >= 1, "block", f"{step.block}")
    check_planewise(check, step)


def check_scale(check: Checker, step: Scale) -> None:
    check.must(step.vector in check.vectors, "vector", f"{step.vector} is not written yet")
    planes, size = check.planes_read(step.source), check.program.vectors[step.vector]
    check.must(planes == size, "vector", f"{size} factors for {planes} planes")
    if step.shifts is not None:
        alike = step.shifts in check.vectors and check.program.vectors[step.shifts] == size
        check.must(alike, "shifts", f"{step.shifts} is not written yet, or of another size")
    check_planewise(check, step)


def check_resize(check: Checker, step: BicubicResize) -> None:
    check.must(min(step.up, step.down) >= 1, "up", f"{step.up} / {step.down}")
    _check_resampling(check, step)


def check_bilinear(check: Checker, step: BilinearResize) -> None:
    check.must(step.up >= step.down >= 1, "up", f"{step.up} / {step.down}")
    check.must(step.radius >= 1, "radius", f"{step.radius}")
    check.must(step.target.value != check.program.result, "target", "the result")
    _check_resampling(check, step)


def check_maxima(check: Checker, step: PoolMaxima) -> None:
    check.must(min(step.kernel, step.stride) >= 1, "kernel", f"{step.kernel}, {step.stride}")
    check.must(step.target.value != check.program.result, "target", "the result")
    _check_resampling(check, step)


def _check_resampling(check: Checker, step: ResamplingStep) -> None:
    check.whole("source", step.source)
    single = check.values[step.source.value].space_to_depth == 1
    check.must(single, "source", "stored by space-to-depth")
    check_planewise(check, step)


def check_rearrange(check: Checker, step: Rearrange) -> None:
    check.must(step.parts >= 1, "parts", f"{step.parts}")
    check.whole("source", step.source)
    target = check.values[step.target.value]
    single = check.values[step.source.value].space_to_depth == target.space_to_depth == 1
    check.must(single, "source", "stored by space-to-depth")
    check.must(target.zero_outside, "target", "not zero outside")
    check.must(step.target.value != check.program.result, "target", "the result")
