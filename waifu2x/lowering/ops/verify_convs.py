"""Checks of steps with weights: convolutions and norms over the planes of a pixel."""

from __future__ import annotations

from waifu2x.lowering.ops.checker import Checker
from waifu2x.lowering.ops.conv import MOST_TAPS, Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes


def check_conv(check: Checker, step: Conv) -> None:
    weight, block, source = step.weight, step.depth_to_space, check.values[step.source.value]
    square = weight.ndim == 4 and weight.shape[2] == weight.shape[3]
    known = step.taps in ((5,) if step.resized else (1, *range(3, MOST_TAPS + 1)))
    check.must(square and known, "weight", f"shape {weight.shape}")
    planes = check.planes_read(step.source) * source.space_to_depth**2
    fits = step.in_planes == planes
    check.must(fits, "weight", f"reads {step.in_planes} planes of {planes}")
    for field, array in (("bias", step.bias), ("activation", step.activation.slopes)):
        check.must(array.shape == (step.out_planes,), field, f"shape {array.shape}")
    whole = block >= 1 and step.out_planes % block**2 == 0
    check.must(whole, "depth_to_space", f"{block}, of {step.out_planes} planes")
    is_picture = step.source.value == 0
    check.must(is_picture or step.source.enlarge == 1, "source", "a map that is enlarged")
    target = check.values[step.target.value]
    single = target.space_to_depth == 1
    check.must(block == 1 or single, "depth_to_space", "into a value by space-to-depth")
    for field, vector, view in (
        ("factors", step.factors, step.source),
        ("residual_factors", step.residual_factors, step.residual),
    ):
        if vector is not None:
            check.must(vector in check.vectors, field, f"{vector} is not written yet")
            check.must(view is not None and view.value != 0, field, "of no map")
            assert view is not None
            planes, size = check.planes_read(view), check.program.vectors[vector]
            check.must(planes == size, field, f"{size} for {planes} planes")
    check.must(step.factors is None or step.taps == 1, "factors", "with several taps")
    if step.resized:
        made = (4, 4, step.out_planes // 4, *weight.shape[1:])
        check.must(step.resized.weight.shape == made, "resized", f"not {made}")
        check.must(step.resized.bias.shape == made[:3], "resized", f"not {made[:3]}")
        last = block == 2 and step.target.value == check.program.result
        check.must(last, "resized", "other than the result, by blocks of 2")
    gates = step.residual is not None and step.factor == 1
    check.must(gates or not step.gated, "gated", "without a residual, or with a factor")
    plain = gates and block == 1 and not step.gated
    check.must(plain or not step.multiplied, "multiplied", "not by a residual alone")
    if step.own_gate:
        check.must(plain and not step.multiplied, "own_gate", "of other than a plain sum")
        gate, planes = step.own_gate, step.out_planes
        check.must(gate.weight.shape == (planes, planes), "own_gate", f"{gate.weight.shape}")
        for array in (gate.bias, gate.activation.slopes):
            check.must(array.shape == (planes,), "own_gate", f"shape {array.shape}")
    if step.residual:
        added = check.values[step.residual.value]
        check.joined(step, step.residual)
        is_picture = step.residual.value == 0
        alike = added.space_to_depth == block or (is_picture and step.residual.enlarge == block)
        check.must(alike, "residual", f"stored by blocks of {added.space_to_depth}, not {block}")
        aligned = step.residual.offset % block == 0
        check.must(aligned, "residual", f"offset {step.residual.offset} in blocks of {block}")
        check.must(target.space_to_depth == 1, "residual", "with a target by space-to-depth")


def check_depthwise(check: Checker, step: Depthwise) -> None:
    planes, source = check.planes_read(step.source), check.values[step.source.value]
    shape = (planes, step.taps, step.taps)
    fits = step.weight.shape == shape and step.taps <= MOST_TAPS
    check.must(fits, "weight", f"shape {step.weight.shape}, not {shape}")
    for field, array in (("bias", step.bias), ("activation", step.activation.slopes)):
        check.must(array.shape == (planes,), field, f"shape {array.shape}")
    plain = source.space_to_depth == 1 and step.source.value != 0 and step.source.parts == 1
    check.must(plain and step.source.enlarge == 1, "source", "not a part of a plain map")
    joined = step.residual is not None or not step.multiplied
    check.must(joined, "multiplied", "without a residual")
    if step.residual:
        check.must(step.residual.value != 0, "residual", "of the picture")
        check.joined(step, step.residual)
    for view in (step.target, step.residual):
        single = view is None or check.values[view.value].space_to_depth == 1
        check.must(single, "target", "or a residual stored by space-to-depth")
    check.must(step.target.value != check.program.result, "target", "the result")


def check_norm(check: Checker, step: NormPlanes) -> None:
    planes, source = check.planes_read(step.source), check.values[step.source.value]
    for field, array in (("weight", step.weight), ("bias", step.bias)):
        check.must(array.shape == (planes,), field, f"shape {array.shape} for {planes} planes")
    check.must(step.eps > 0, "eps", f"{step.eps}")
    plain = source.space_to_depth == 1 and step.source.value != 0 and step.source.parts == 1
    check.must(plain and step.source.enlarge == 1, "source", "not a part of a plain map")
    target = check.values[step.target.value]
    inner = target.space_to_depth == 1 and step.target.value != check.program.result
    check.must(inner, "target", "the result, or stored by space-to-depth")
