"""Defines the executor for any device: fp32 on multiply-add units, and maps of 16-bit floats where
units multiply matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from waifu2x.backends.gpu.device.flags import NO_FLAGS, BufferFlags, Flags
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.peak import multiply_add_peak
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, Runtime
from waifu2x.backends.gpu.executor import PassWork
from waifu2x.backends.gpu.fp32.attention import Fp32AttentionStep, Fp32PlaneAttentionStep
from waifu2x.backends.gpu.fp32.avg_pool import Fp32AvgPoolStep, Fp32LinearStep, SumClearing
from waifu2x.backends.gpu.fp32.channel_attention import (
    Fp32ChannelWeightsStep,
    Fp32CrossSumsStep,
    Fp32MixStep,
)
from waifu2x.backends.gpu.fp32.conv import Fp32ConvStep
from waifu2x.backends.gpu.fp32.depthwise import Fp32DepthwiseStep
from waifu2x.backends.gpu.fp32.maps import (
    ALIGNMENT,
    Maps,
    Margin,
    format_of,
    layout_of,
    vector_layout,
)
from waifu2x.backends.gpu.fp32.matrix import MatrixUnit, matrix_peak
from waifu2x.backends.gpu.fp32.norm import Fp32LayerNormStep, Fp32NormVectorStep
from waifu2x.backends.gpu.fp32.planewise import Fp32PlanewiseStep
from waifu2x.backends.gpu.fp32.step import Fp32Context, Fp32Step, Fp32Task
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program

STEPS: Mapping[type[Step], Callable[[Fp32Context, int], Fp32Step[Any]]] = {
    Conv: Fp32ConvStep,
    Depthwise: Fp32DepthwiseStep,
    NormPlanes: Fp32LayerNormStep,
    NormVector: Fp32NormVectorStep,
    GlobalAvgPool: Fp32AvgPoolStep,
    Linear: Fp32LinearStep,
    CrossSums: Fp32CrossSumsStep,
    ChannelWeights: Fp32ChannelWeightsStep,
    MixPlanes: Fp32MixStep,
    AttendWindows: Fp32AttentionStep,
    AttendPlanes: Fp32PlaneAttentionStep,
}
"""The class that runs a step of each type; all others are planewise."""


class Fp32Executor:
    """Runs programs with sums in fp32. Maps are floats, in the layout of `kernels/maps.h`."""

    alignment = ALIGNMENT
    in_place: Mapping[int, Sequence[int]] = MappingProxyType({})
    clipped = frozenset[int]()

    def __init__(
        self,
        runtime: Runtime,
        program: Program,
        choose: Choose,
        matrices: MatrixUnit | None = None,
    ) -> None:
        """With a unit for products of `matrices`, maps hold 16-bit floats, where sums stay in fp32.

        Raises BackendError, OutOfMemoryError.
        """
        self.program = program
        self.arithmetic = "fp32" if matrices is None else "fp16 by matrices"
        self._runtime = runtime
        self._matrices = matrices
        self._form = form = format_of(runtime.limits, is_half=matrices is not None)
        self.map_limit = form.limit
        self.unit = (form.cell, form.cell)
        self._layout = vector_layout(program, form.block)
        context = Fp32Context(runtime, program, form, self._layout, choose, matrices)
        self._steps: list[Fp32Step[Any]] = []
        try:
            for number, step in enumerate(program.steps):
                make = STEPS.get(type(step), Fp32PlanewiseStep)
                self._steps.append(make(context, number))
        except BaseException:
            self.close()
            raise
        self._margins = self._find_margins()
        self._clearing = SumClearing(runtime, self._layout, form)

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        stored = self.program.values[value]
        layout = layout_of(stored, box, self._margins[value], self._form)
        return layout.step * ALIGNMENT * pictures

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        maps = Maps(self.program.values, self._margins, one.places, self._form)
        task = Fp32Task(one.batch, one.work.steps, one.sums, maps, one.vectors)
        found: list[LaunchMaker] = []
        for number in sorted({*one.work.steps, *one.sums}):
            found += self._steps[number].launches(task)
        for number in (*one.ends.averages, *one.ends.dense) if one.ends else ():
            found += self._steps[number].finishing(task)
        return found

    def new_flags(self, pictures: int) -> Flags:
        """Returns NO_FLAGS for maps of fp32, which hold every value that models make."""
        return BufferFlags(self._runtime, pictures) if self._form.is_half else NO_FLAGS

    def vector_bytes(self, pictures: int) -> int:
        return self._layout.size * pictures

    def clearing(self, vectors: Buffer, pictures: int) -> Sequence[LaunchMaker]:
        if not self._layout.sums:
            return []
        return [partial(self._clearing.launch, vectors, pictures)]

    def step(self, kernel: Kernel) -> int:
        """Returns the number of a kernel's step; zeroing the sums counts as the first mean's."""
        if self._clearing.owns(kernel):
            return min(self._layout.sums)
        return next(own.number for own in self._steps if own.owns(kernel))

    def peak(self) -> float:
        if self._matrices is not None:
            return matrix_peak(self._runtime, self._matrices)
        return multiply_add_peak(self._runtime)

    def share(self, number: int) -> float:
        return self._steps[number].share

    def close(self) -> None:
        for own in self._steps:
            own.close()

    def _find_margins(self) -> list[Margin]:
        """Returns, for each value, the margin that its writers and readers need beyond its box."""
        margins = [Margin()] * len(self.program.values)
        for step, own in zip(self.program.steps, self._steps, strict=True):
            if not isinstance(step, Conv) or not isinstance(own, Fp32ConvStep):
                continue
            margin, target = own.margin, step.target.value
            d2s, s2d = step.depth_to_space, self.program.values[target].space_to_depth
            written = Margin(-(-margin.rows * d2s // s2d), -(-margin.columns * d2s // s2d))
            margins[target] = margins[target].hull(written)
            for view in step.reads:
                margins[view.value] = margins[view.value].hull(margin)
        return margins
