"""What every map is when the whole picture is mid grey: bf16 maps are stored less that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.steps import Average, DenseStep, Move, Product, Program, View
from waifu2x.networks.activations import Activation, sigmoid

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
            case Average():
                vectors[step.vector] = read(step.source)
            case DenseStep():
                sums = step.weight.astype(np.float64) @ vectors[step.source] + step.bias
                vectors[step.vector] = _activated(sums, step.activation)
            case Product():
                source = np.tile(read(step.source), program.values[step.source.value].fold ** 2)
                sums = step.weight.sum(axis=(2, 3), dtype=np.float64) @ source + step.bias
                made = _activated(sums, step.activation) * step.factor
                if step.shuffle > 1:
                    # One for all places, though they may differ.
                    made = made.reshape(step.shuffle**2, -1).mean(axis=0)
                _write(program, values, step, made)
            case Move():
                made = read(step.source)
                if step.factors is not None:
                    made = made * vectors[step.factors]
                made = made.reshape(-1, step.shuffle**2).mean(axis=1) * step.factor
                if step.gate:
                    assert step.residual is not None
                    gate = sigmoid(made) - 0.5
                    _write(program, values, step, made * gate, gate)
                    continue
                _write(program, values, step, made.repeat(step.unshuffle**2))
    return values


def _write(
    program: Program,
    values: list[NDArray[np.float64]],
    step: Product | Move,
    made: NDArray[np.float64],
    share: NDArray[np.float64] | float = 1.0,
) -> None:
    """Writes what a step makes, plus `share` of its residual."""
    if step.residual is not None:
        parts = program.values[step.residual.value].parts
        first = sum(parts[: step.residual.first])
        made = made + share * values[step.residual.value][first : first + len(made)]
    parts = program.values[step.target.value].parts
    first = sum(parts[: step.target.part]) + step.target.plane
    values[step.target.value][first : first + len(made)] = made


def _activated(sums: NDArray[np.float64], activation: Activation) -> NDArray[np.float64]:
    if activation.kind != "leaky":
        return activation(sums)
    # The decimals that were meant, 0.1 and not the float32 next to it: so zero points of networks
    # have been since before slopes were arrays.
    slopes = activation.slopes.astype(str).astype(np.float64)
    return np.where(sums > 0, sums, sums * slopes)
