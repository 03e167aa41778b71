"""Checks of the steps of attention."""

from __future__ import annotations

from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    AttentionStep,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.checker import Checker
from waifu2x.networks.windows import Windows


def check_attention(check: Checker, step: AttendWindows) -> None:
    _check_maps(check, step)
    table = (step.heads, *step.windows.bias_sides)
    check.must(step.bias.shape == table, "bias", f"shape {step.bias.shape}, not {table}")


def check_plane_attention(check: Checker, step: AttendPlanes) -> None:
    _check_maps(check, step)
    plain = step.windows == Windows(step.windows.rows, step.windows.rows)
    check.must(plain, "windows", f"{step.windows}")
    check.must(step.source == step.keys, "keys", "of another map than queries")


def _check_maps(check: Checker, step: AttentionStep) -> None:
    made = check.values[step.target.value].resolution
    cells = (1, step.windows.cell, step.windows.cell)
    for field, view, first, cell in zip(
        ("source", "keys", "values"),
        (step.source, step.keys, step.values),
        step.first,
        cells,
        strict=True,
    ):
        check.whole(field, view)
        stored = check.values[view.value]
        check.must(stored.space_to_depth == 1, field, "stored by space-to-depth")
        within = 0 <= first <= stored.planes - step.planes
        check.must(within, "first", f"{first} of {stored.planes} planes, for {step.planes}")
        check.must(stored.resolution * cell == made, field, f"resolution {stored.resolution}")
    target = check.values[step.target.value]
    check.must(target.space_to_depth == 1, "target", "stored by space-to-depth")
    check.must(target.zero_outside, "target", "not zero outside")
    check.must(step.planes % step.heads == 0, "planes", f"{step.planes} of {step.heads} heads")


def check_cross(check: Checker, step: CrossSums) -> None:
    check.whole("source", step.source)
    stored = check.values[step.source.value]
    check.must(stored.space_to_depth == 1, "source", "stored by space-to-depth")
    within = all(0 <= first <= stored.planes - step.planes for first in step.first)
    check.must(within, "first", f"{step.first} of {stored.planes} planes")
    check.vector_of(step.vector, step.elements * step.parts)


def check_weights(check: Checker, step: ChannelWeights) -> None:
    there = step.source in check.vectors
    check.must(there, "source", f"vector {step.source} is not written yet")
    depth = step.planes // len(step.temperature)
    check.vector_of(step.source, step.planes * (depth + 2) * step.parts)
    check.vector_of(step.vector, step.planes * depth * step.parts)


def check_mix(check: Checker, step: MixPlanes) -> None:
    check.must(step.vector in check.vectors, "vector", f"{step.vector} is not written yet")
    weights = step.planes * (step.planes // step.heads)
    check.vector_of(step.vector, weights * step.period**2)
    check.whole("source", step.source)
    stored = check.values[step.source.value]
    single = stored.space_to_depth == check.values[step.target.value].space_to_depth == 1
    check.must(single, "source", "stored by space-to-depth")
    within = 0 <= step.first <= stored.planes - step.planes
    check.must(within, "first", f"{step.first} of {stored.planes} planes")
    is_last = step.target.value == check.program.result
    check.must(not is_last, "target", "the result")
