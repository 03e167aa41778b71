"""Depthwise convolutions as tasks."""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.pack.packing import Packing
from waifu2x.backends.cpu.pack.planewise_tasks import function_number
from waifu2x.backends.cpu.pack.records import DEPTHWISE, JOINED
from waifu2x.backends.cpu.pack.tasks import (
    ROWS,
    DepthwiseTask,
    RowWindow,
    TaskResidual,
    TaskSchedule,
    TaskSource,
    TaskTarget,
)
from waifu2x.backends.cpu.pack.weights import pack_depthwise
from waifu2x.lowering.ops.conv import Depthwise


def depthwise_task(packing: Packing, number: int, step: Depthwise) -> DepthwiseTask:
    """The task of step `number`. Its maps are floats, padded to whole vectors."""
    layouts, view = packing.maps.layouts, step.source
    source, target = layouts[view.value], layouts[step.target.value]
    planes = target.padded[step.target.part]
    windows = [RowWindow(view.value, offset=view.offset, more=step.taps - 1, first=view.first)]
    residual = TaskResidual()
    if step.residual is not None:
        added = layouts[step.residual.value]
        windows.append(packing.residual_window(step.residual))
        place = added.start(step.residual.first)
        residual = TaskResidual(step.residual.value, step.residual.offset, place)
    constants = np.zeros((2, planes), np.float32)
    constants[:, : len(step.bias)] = step.bias, step.activation.slopes
    return DepthwiseTask(
        schedule=TaskSchedule(number, ROWS, tuple(windows), step.target.value, step.target.part),
        kind=DEPTHWISE,
        source=TaskSource(view.value, offset=view.offset, plane=source.start(view.first)),
        target=TaskTarget(step.target.value, target.start(step.target.part)),
        residual=residual,
        planes=planes,
        taps=step.taps,
        weight=packing.arrays.add_weight(pack_depthwise(step.weight, planes)),
        bias=packing.arrays.add_constant(constants[0]),
        slopes=packing.arrays.add_constant(constants[1]),
        activation=function_number(packing, step.activation.function),
        join=JOINED.index(step.join),
    )
