"""Finds the zero point of every map, its value for a mid-grey picture, which bf16 maps lack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waifu2x.lowering.ops.base import InnerVectorStep, MapStep
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import View

_GREY = 0.5


def find(program: Program) -> list[NDArray[np.float64]]:
    """Returns the zero point of each value, (planes,) of a single pixel of all parts."""
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
            case InnerVectorStep():
                vectors[step.vector] = step.made(*(vectors[v] for v in step.vectors_read))
            case MapStep():
                made, target = step.level(read, vectors), step.target
                parts = program.values[target.value].parts
                first = sum(parts[: target.part]) + target.plane
                values[target.value][first : first + len(made)] = made
    return values
