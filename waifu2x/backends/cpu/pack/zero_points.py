"""Finds every map's value when the whole picture is mid grey: bf16 maps are stored less that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.attention import AttendPlanes, AttendWindows, MixPlanes
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import Planewise, PoolMaxima, Rearrange, Resize, SampleGrid
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View
from waifu2x.networks.activations import Activation
from waifu2x.networks.expressions import LEAKY, evaluate

_GREY = 0.5


def find(program: Program) -> list[NDArray[np.float64]]:
    """Returns the values of the planes of each map, all parts, unfolded: (planes,)."""
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
                vectors[step.vector] = read(step.source) ** (2 if step.squared else 1)
            case NormVector():
                vectors[step.vector] = step.made(vectors[step.source], vectors[step.squares])
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
            case NormPlanes():
                made = read(step.source)
                centred = made - made.mean()
                normed = centred / np.sqrt((centred**2).mean() + step.eps)
                _write(program, values, step, normed * step.weight + step.bias)
            case Depthwise():
                weight = step.weight.sum(axis=(1, 2), dtype=np.float64)
                made = _activated(weight * read(step.source) + step.bias, step.activation)
                _write(program, values, step, made)
            case Planewise():
                made = read(step.source)
                if step.depth_to_space > 1:
                    made = made.reshape(-1, step.depth_to_space**2).mean(axis=1)
                elif step.space_to_depth > 1:
                    made = made.repeat(step.space_to_depth**2)
                if step.vector is not None:
                    made = made * vectors[step.vector]
                if step.shifts is not None:
                    made = made + vectors[step.shifts]
                _write(program, values, step, made * step.factor)
            case SampleGrid():
                # The map that moves samples is joined to nothing.
                values[step.target.value][:] = np.tile(read(step.source), step.scale**2)
            case Resize() | PoolMaxima() | Rearrange():
                _write(program, values, step, read(step.source))
            case MixPlanes():
                _write(program, values, step, read(step.source)[step.first :][: step.planes])
            case AttendWindows() | AttendPlanes():
                first = step.first[2]
                _write(program, values, step, read(step.values)[first : first + step.planes])
    return values


def _write(
    program: Program, values: list[NDArray[np.float64]], step: MapStep, made: NDArray[np.float64]
) -> None:
    """Writes the values that a step makes, joined to its residual's if it has one."""
    residual = step.residual
    if residual is not None:
        parts = program.values[residual.value].parts
        first = sum(parts[: residual.first])
        added = values[residual.value][first : first + len(made)]
        made = evaluate(step.join, made, operand=added)
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
