"""Runs attention between planes in fp32, by `kernels/channel_attention.cl`."""

from __future__ import annotations

import math

import numpy as np

from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, plain
from waifu2x.backends.gpu.fp32.avg_pool import GROUP, Fp32SumStep, SumKernels
from waifu2x.backends.gpu.fp32.maps import bounds, chunks_of
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.lowering.ops.attention import ChannelWeights, CrossSums, MixPlanes
from waifu2x.lowering.plan.box import Box

_LOCAL_FLOATS = 2048
"""The most local memory of a run of pixels, which leaves some for other groups."""
_PIXELS = 32
_REGISTER_SUMS = 8
_MEMORY_SUMS = 1024
"""The most sums of a work-item: in registers on a GPU, in memory on a processor."""


class Fp32CrossSumsStep(Fp32SumStep[CrossSums]):
    """Sums of products of planes."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, depth = self.step, self.step.planes // self.step.heads
        names = "multiply", "add", "floats"
        kernels = [_spec(context, name, step.heads, depth, step.period) for name in names]
        slices = -(-depth * (depth + 2) // (kernels[0].group * int(kernels[0].macros["EACH"])))
        across = step.parts * step.heads * slices
        self._work = SumKernels(kernels, (across, chunks_of(step.period)))

    def _places(self, box: Box, corner: tuple[int, int]) -> tuple[int, ...]:
        return (*self.step.first, *corner, *super()._places(box, corner))


class Fp32ChannelWeightsStep(Fp32Step[ChannelWeights]):
    """The weights by which planes are mixed."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step, heads = self.step, len(self.step.temperature)
        depth = step.planes // heads
        self._spec = _spec(context, "weights", heads, depth, math.isqrt(step.parts))
        self._temperatures = self.upload(np.asarray(step.temperature, np.float32))

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the vectors of all pictures."""
        step, vectors = self.step, self.layout.vectors
        groups = -(-step.planes * step.parts // self._spec.group), 1, task.pictures
        places = vectors[step.source], vectors[step.vector], self.layout.step
        arguments = plain(task.vectors, *places, self._temperatures)
        return self.launch_of(self._spec, groups, arguments)


class Fp32MixStep(Fp32Step[MixPlanes]):
    """Planes mixed by weights."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step = self.step
        depth = step.planes // step.heads
        self._spec = _spec(context, "mix_planes", step.heads, depth, step.period)

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the results in a box."""
        step, box, maps = self.step, task.boxes[self.number], task.maps
        source, target = maps[step.source.value], maps[step.target.value]
        stored = self.program.values[step.target.value]
        kept = task.whole(step.target.value, 0, 0) if stored.zero_outside else bounds(box, 0, 0)
        blocks = -(-stored.parts[step.target.part] // self.block)
        groups = -(-box.width // self._spec.group), blocks, box.height * task.pictures
        arguments = plain(
            *(*source.start(), *target.start(step.target.part)),
            *(*source.corner, *target.corner),
            *(step.first, box.top, box.left, box.height, box.width),
            *(task.vectors, self.layout.vectors[step.vector], self.layout.step, *kept),
        )
        return self.launch_of(self._spec, groups, arguments)


def _spec(context: Fp32Context, name: str, heads: int, depth: int, period: int) -> KernelSpec:
    """Returns a kernel of the file; all kernels of a step have equal macros, and so one module."""
    limits = context.runtime.limits
    group = limits.group_on_gpu(GROUP)
    most = _MEMORY_SUMS if limits.is_cpu else _REGISTER_SUMS
    macros = {
        "GROUP": group,
        **context.form.macros,
        "HEADS": heads,
        "DEPTH": depth,
        "PERIOD": period,
        "CHUNKS": chunks_of(period),
        "PIXELS": max(1, min(_PIXELS, _LOCAL_FLOATS // (2 * depth))),
        "EACH": min(most, -(-depth * (depth + 2) // group)),
    }
    return KernelSpec("channel_attention", macros, group, name)
