"""Norms over the planes of a pixel as tasks."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.pack.packing import Packing
from waifu2x.backends.cpu.pack.records import LAYER_NORM
from waifu2x.backends.cpu.pack.shapes import LANES
from waifu2x.backends.cpu.pack.tasks import (
    ROWS,
    LayerNormTask,
    RowWindow,
    TaskSchedule,
    TaskSource,
    TaskTarget,
)
from waifu2x.lowering.ops.norm import NormPlanes


def layer_norm_task(packing: Packing, number: int, step: NormPlanes) -> LayerNormTask:
    """The task of step `number`. Its maps are floats, padded to whole vectors."""
    layouts, view = packing.maps.layouts, step.source
    source, target = layouts[view.value], layouts[step.target.value]
    planes, count = target.padded[step.target.part], len(step.weight)
    constants = np.zeros((2, planes), np.float32)
    constants[:, :count] = step.weight, step.bias
    ends = np.array([step.eps, 1 / count]).repeat(LANES)
    window = RowWindow(view.value, offset=view.offset, first=view.first)
    return LayerNormTask(
        schedule=TaskSchedule(number, ROWS, (window,), step.target.value, step.target.part),
        kind=LAYER_NORM,
        source=TaskSource(view.value, offset=view.offset, plane=source.start(view.first)),
        target=TaskTarget(step.target.value, target.start(step.target.part)),
        planes=planes,
        depth=count,
        slopes=packing.arrays.add_constant(np.concatenate([constants.ravel(), ends])),
    )
