"""Packs layer norm, over the planes of each pixel."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.pack.packing import Packers, Packing
from waifu2x.backends.cpu.pack.records import LAYER_NORM
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import ROWS, CpuTask, TaskSchedule
from waifu2x.lowering.ops.norm import NormPlanes


def pack_norm(packing: Packing, number: int, step: NormPlanes) -> list[CpuTask]:
    """Packs step `number`. Its maps are floats, padded to whole vectors."""
    value, part = step.target.value, step.target.part
    planes, count = packing.layout(value).padded[part], len(step.weight)
    constants = np.zeros((2, planes), np.float32)
    constants[:, :count] = step.weight, step.bias
    ends = np.array([step.eps, 1 / count]).repeat(LANES)
    fields = {
        **packing.source(step.source),
        **packing.target(step.target),
        "planes": planes,
        "depth": count,
        "slopes": packing.arrays.add_constant(np.concatenate([constants.ravel(), ends])),
    }
    schedule = TaskSchedule(number, ROWS, (packing.window(step.source),), value, part)
    return [CpuTask(schedule, LAYER_NORM, fields)]


PACKERS: Packers = {NormPlanes: pack_norm}
