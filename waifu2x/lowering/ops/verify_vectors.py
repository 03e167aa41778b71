"""Checks of steps that make vectors."""

from __future__ import annotations

from waifu2x.lowering.ops.checker import Checker
from waifu2x.lowering.ops.norm import NormVector
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear


def check_pool(check: Checker, step: GlobalAvgPool) -> None:
    check.whole("source", step.source)
    planes = check.planes_read(step.source)
    sizes = check.program.vectors[step.vector : step.vector + 1]
    check.must(sizes == (planes,), "vector", f"of {sizes} for {planes} planes")


def check_linear(check: Checker, step: Linear) -> None:
    check.must(step.source in check.vectors, "source", f"vector {step.source} is not written yet")
    vectors = check.program.vectors
    wanted = (*vectors[step.vector : step.vector + 1], vectors[step.source])
    check.must(step.weight.shape == wanted, "weight", f"{step.weight.shape}, not {wanted}")
    for field, array in (("bias", step.bias), ("activation", step.activation.slopes)):
        check.must(array.shape == wanted[:1], field, f"shape {array.shape}")


def check_norm_vector(check: Checker, step: NormVector) -> None:
    sizes = check.program.vectors
    size = sizes[step.vector] if 0 <= step.vector < len(sizes) else 0
    for field in ("source", "squares"):
        vector = getattr(step, field)
        there = vector in check.vectors and sizes[vector] == size
        check.must(there, field, f"{vector} is not written yet, or of another size")
    for field, array in (("weight", step.weight), ("bias", step.bias)):
        check.must(array.shape == (size,), field, f"shape {array.shape} for {size} planes")
    check.must(step.groups >= 1 and size % step.groups == 0, "groups", f"{step.groups}")
