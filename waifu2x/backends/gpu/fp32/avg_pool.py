"""Runs sums over the picture in fp32, by `kernels/avg_pool.cl`, and linear layers, `linear.cl`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from waifu2x.backends.gpu.device.launch import (
    Arguments,
    KernelOwner,
    KernelSpec,
    Launch,
    LaunchMaker,
    plain,
)
from waifu2x.backends.gpu.device.runtime import Argument, Buffer, Limits, Macros, Runtime
from waifu2x.backends.gpu.fp32.activation import activation_macro
from waifu2x.backends.gpu.fp32.maps import CHUNKS, MapFormat, VectorLayout, blocks_of
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.plan.box import Box
from waifu2x.networks.model import Size

GROUP = 64

_Sum = TypeVar("_Sum", bound=GlobalAvgPool | CrossSums)


class SumClearing(KernelOwner):
    """Holds the kernel that zeroes all sums."""

    def __init__(self, runtime: Runtime, layout: VectorLayout, form: MapFormat) -> None:
        super().__init__(runtime)
        self._layout = layout
        group = runtime.limits.group_on_gpu(GROUP)
        self._spec = KernelSpec("avg_pool", _macros(runtime.limits, form), group, "clear")

    def launch(self, vectors: Buffer, pictures: int) -> Launch:
        """Returns its launch; partial sums, which lie behind the sums, need no zeroing."""
        count = self._layout.sum_step * (pictures - 1) + self._layout.sum_count
        groups = -(-count // self._spec.group), 1, 1
        return self.launch_of(self._spec, groups, plain(vectors, count))


class SumKernels(NamedTuple):
    """The kernels of a step that sums over the picture."""

    kernels: Sequence[KernelSpec]
    """The first sums chunks of a box, the second adds these to the sums, and the third makes the
    vector."""
    groups: tuple[int, int]
    """The groups of the first kernel, for each picture."""


class Fp32SumStep(Fp32Step[_Sum]):
    """A step that sums over the picture."""

    _work: SumKernels

    def launches(self, task: Fp32Task) -> Sequence[LaunchMaker]:
        box = task.sums[self.number]
        if not (box.height and box.width):
            return []
        return [partial(self._parts, task, box), partial(self._all, task)]

    def finishing(self, task: Fp32Task) -> Sequence[LaunchMaker]:
        return [partial(self._vector, task)]

    def _places(self, box: Box, corner: tuple[int, int]) -> tuple[int, ...]:
        """Returns the arguments for a box of a map that begins at a corner."""
        return (box.top - corner[0], box.left - corner[1], box.height, box.width)

    def _factors(self, size: Size) -> tuple[float, ...]:
        """Returns the factors of the vector, for a source of that size."""
        return ()

    def _parts(self, task: Fp32Task, box: Box) -> Launch:
        source = task.maps[self.step.source.value]
        sums: tuple[Argument, ...] = task.vectors, self.layout.partial, self.layout.sum_step
        arguments = plain(*source.start(), *self._places(box, source.corner), *sums)
        groups = *self._work.groups, task.pictures
        return self.launch_of(self._work.kernels[0], groups, arguments)

    def _all(self, task: Fp32Task) -> Launch:
        layout = self.layout
        places = layout.sums[self.number], layout.partial, layout.sum_step
        return self._each(self._work.kernels[1], 2, task, plain(task.vectors, *places))

    def _vector(self, task: Fp32Task) -> Launch:
        layout, step = self.layout, self.step
        arguments = plain(
            *(task.vectors, layout.sums[self.number], layout.sum_step),
            *(task.vectors, layout.vectors[step.vector], layout.step),
            *self._factors(task.batch.sizes[step.source.value]),
        )
        return self._each(self._work.kernels[2], 1, task, arguments)

    def _each(self, spec: KernelSpec, times: int, task: Fp32Task, arguments: Arguments) -> Launch:
        """Returns a launch with a work-item for each element of the vector, `times` over."""
        count = times * self.program.vectors[self.step.vector]
        return self.launch_of(spec, (-(-count // spec.group), 1, task.pictures), arguments)


class Fp32AvgPoolStep(Fp32SumStep[GlobalAvgPool]):
    """A mean over the picture."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        limits, step = self.runtime.limits, self.step
        value = self.program.values[step.source.value]
        blocks, planes = blocks_of(value, self.block)[0], self.program.vectors[step.vector]
        macros = _macros(limits, self.form, blocks, planes, value.space_to_depth, step.squared)
        group = limits.group_on_gpu(GROUP)
        kernels = [KernelSpec("avg_pool", macros, group, name) for name in ("sum", "add", "mean")]
        self._work = SumKernels(kernels, (CHUNKS, blocks))

    def _factors(self, size: Size) -> tuple[float, ...]:
        return (1 / (size[0] * size[1]),)


class Fp32LinearStep(Fp32Step[Linear]):
    """A fully connected layer."""

    def __init__(self, context: Fp32Context, number: int) -> None:
        super().__init__(context, number)
        step = self.step
        outputs, inputs = step.weight.shape
        group = self.runtime.limits.group(GROUP)
        macros: Macros = {
            "GROUP": group,
            "INPUTS": inputs,
            "OUTPUTS": outputs,
            **activation_macro(step.activation.function),
        }
        self._spec = KernelSpec("linear", macros, group)
        self._weight = self.upload(np.asarray(step.weight.T, np.float32))
        epilogue = np.stack([step.bias, step.activation.slopes]).astype(np.float32)
        self._epilogue = self.upload(epilogue)

    def launch(self, task: Fp32Task) -> Launch:
        """Returns the launch for the vectors of all pictures."""
        step, vectors = self.step, self.layout.vectors
        places = vectors[step.source], vectors[step.vector], self.layout.step
        groups = -(-len(step.weight) // self._spec.group), 1, task.pictures
        arguments = plain(task.vectors, *places, self._weight, self._epilogue)
        return self.launch_of(self._spec, groups, arguments)


def _macros(
    limits: Limits,
    form: MapFormat,
    blocks: int = 1,
    planes: int = 1,
    space_to_depth: int = 1,
    squared: bool = False,
) -> Macros:
    return {
        "GROUP": limits.group_on_gpu(GROUP),
        **form.macros,
        "BLOCKS": blocks,
        "PLANES": planes,
        "S2D": space_to_depth,
        "CHUNKS": CHUNKS,
        "SQUARED": int(squared),
    }
