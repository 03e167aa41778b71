"""What every map is when the whole picture is mid grey: bf16 maps are stored less that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.steps import (
    BicubicResize,
    Conv,
    Copy,
    DepthToSpace,
    GatedAdd,
    GlobalAvgPool,
    Linear,
    MapStep,
    Program,
    Scale,
    SpaceToDepth,
    View,
    residual_of,
)
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import LEAKY, sigmoid

_GREY = 0.5


def find(program: Program) -> list[NDArray[np.float64]]:
    """(planes,) of every value, all parts, unfolded."""
    values = [np.zeros(value.planes) for value in program.values]
    values[0][:] = _GREY
    vectors = [np.zeros(size) for size in program.vectors]

    def read(view: View) -> NDArray[np.float64]:
        parts = program.values[view.value].parts
        first = sum(parts[: view.first])
        return values[view.value][first : first + sum(parts[view.first :][: view.parts])]

    for step in program.steps:
        match step:
            case GlobalAvgPool():
                vectors[step.vector] = read(step.source)
            case Linear():
                sums = step.weight.astype(np.float64) @ vectors[step.source] + step.bias
                vectors[step.vector] = _activated(sums, step.activation)
            case Conv():
                source = np.tile(
                    read(step.source), program.values[step.source.value].space_to_depth ** 2
                )
                sums = step.weight.sum(axis=(2, 3), dtype=np.float64) @ source + step.bias
                made = _activated(sums, step.activation) * step.factor
                if step.depth_to_space > 1:
                    # One for all places, though they may differ.
                    made = made.reshape(step.depth_to_space**2, -1).mean(axis=0)
                _write(program, values, step, made)
            case Copy():
                _write(program, values, step, read(step.source) * step.factor)
            case Scale():
                made = read(step.source) * vectors[step.vector]
                _write(program, values, step, made * step.factor)
            case DepthToSpace():
                made = read(step.source).reshape(-1, step.block**2).mean(axis=1)
                _write(program, values, step, made * step.factor)
            case SpaceToDepth():
                _write(program, values, step, read(step.source).repeat(step.block**2))
            case BicubicResize():
                _write(program, values, step, read(step.source))
            case GatedAdd():
                made = read(step.source)
                gate = sigmoid(made) - 0.5
                _write(program, values, step, made * gate, gate)
    return values


def _write(
    program: Program,
    values: list[NDArray[np.float64]],
    step: MapStep,
    made: NDArray[np.float64],
    share: NDArray[np.float64] | float = 1.0,
) -> None:
    """Writes what a step makes, plus `share` of its residual."""
    residual = residual_of(step)
    if residual is not None:
        parts = program.values[residual.value].parts
        first = sum(parts[: residual.first])
        made = made + share * values[residual.value][first : first + len(made)]
    parts = program.values[step.target.value].parts
    first = sum(parts[: step.target.part]) + step.target.plane
    values[step.target.value][first : first + len(made)] = made


def _activated(sums: NDArray[np.float64], activation: Activation) -> NDArray[np.float64]:
    if activation.function != LEAKY:
        return activation(sums)
    # Slopes as the decimals that were meant, 0.1 and not the float32 next to it. Either would do,
    # but every bit of the results in bf16 depends on which.
    slopes = activation.slopes.astype(str).astype(np.float64)
    return np.where(sums > 0, sums, sums * slopes)
