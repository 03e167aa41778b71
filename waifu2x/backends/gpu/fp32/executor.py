"""The fp32 executor, on the multiply-add units of any device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from waifu2x.backends.gpu.device.flags import NO_FLAGS, Flags
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.peak import multiply_add_peak
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, Limits, Runtime
from waifu2x.backends.gpu.executor import Batch, PassWork
from waifu2x.backends.gpu.fp32 import direct, winograd, winograd_vector
from waifu2x.backends.gpu.fp32.attention import Fp32AttentionStep
from waifu2x.backends.gpu.fp32.avg_pool import Fp32AvgPoolStep, Fp32LinearStep, Sums, vector_layout
from waifu2x.backends.gpu.fp32.channel_attention import (
    Fp32ChannelWeightsStep,
    Fp32CrossSumsStep,
    Fp32MixStep,
)
from waifu2x.backends.gpu.fp32.conv import CELL, ConvShape, Fp32ConvStep, Planes, planes_of
from waifu2x.backends.gpu.fp32.depthwise import Fp32DepthwiseStep
from waifu2x.backends.gpu.fp32.layer_norm import Fp32LayerNormStep
from waifu2x.backends.gpu.fp32.maps import ALIGNMENT, MAP_LIMIT, Maps, Margin, block_of, layout_of
from waifu2x.backends.gpu.fp32.norm_vector import Fp32NormVectorStep
from waifu2x.backends.gpu.fp32.plane_attention import Fp32PlaneAttentionStep
from waifu2x.backends.gpu.fp32.planewise import Fp32PlanewiseStep
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.base import PictureSum, Step
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes, NormVector
from waifu2x.lowering.ops.planewise import Planewise
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program

_Own = (
    Fp32AttentionStep
    | Fp32ChannelWeightsStep
    | Fp32CrossSumsStep
    | Fp32MixStep
    | Fp32PlaneAttentionStep
    | Fp32ConvStep
    | Fp32DepthwiseStep
    | Fp32LayerNormStep
    | Fp32PlanewiseStep
    | Fp32AvgPoolStep
    | Fp32LinearStep
    | Fp32NormVectorStep
)


class Fp32Executor:
    """Runs programs in fp32. Maps are floats, in the layout of `kernels/maps.h`."""

    arithmetic = "fp32"
    unit = (CELL, CELL)
    alignment = ALIGNMENT
    map_limit = MAP_LIMIT
    in_place: Mapping[int, Sequence[int]] = MappingProxyType({})
    clipped = frozenset[int]()

    def __init__(self, runtime: Runtime, program: Program, choose: Choose) -> None:
        """Raises BackendError, OutOfMemoryError."""
        self.program = program
        self._runtime = runtime
        self._block = block_of(runtime.limits)
        self._layout = vector_layout(program, self._block)
        self._steps: list[_Own] = []
        self._prepare(choose)
        self._margins = self._find_margins()
        self._sums = Sums(runtime, self._layout, self._block) if self._layout.sums else None

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        stored = self.program.values[value]
        layout = layout_of(stored, box, self._margins[value], self._block)
        return layout.step * ALIGNMENT * pictures

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        batch, vectors = one.batch, one.vectors
        maps = Maps(self.program.values, self._margins, one.places, self._block)
        pictures = batch.source.shape[0]
        found: list[LaunchMaker] = []
        for number in sorted({*one.work.steps, *one.sums}):
            own = self._steps[number]
            match own:
                case (
                    Fp32ConvStep()
                    | Fp32DepthwiseStep()
                    | Fp32LayerNormStep()
                    | Fp32AttentionStep()
                    | Fp32PlaneAttentionStep()
                ):
                    found.append(partial(own.launch, batch, one.work.steps[number], maps))
                case Fp32PlanewiseStep():
                    places = self._factors(number), self._layout.size // 4
                    box = one.work.steps[number]
                    found.append(partial(own.launch, batch, box, maps, vectors, *places))
                case Fp32MixStep():
                    box = one.work.steps[number]
                    found.append(partial(own.launch, batch, box, maps, vectors))
                case Fp32AvgPoolStep() | Fp32CrossSumsStep():
                    source = self.program.steps[number]
                    box = one.sums[number]
                    if box.height and box.width and isinstance(source, PictureSum):
                        value = maps[source.source.value]
                        found += own.sums(value, box, vectors, pictures)
        if one.ends is not None:
            found += self._finishing(one.ends, batch, vectors)
        return found

    def new_flags(self, pictures: int) -> Flags:
        """None: floats of 32 bits have room for all that models make."""
        return NO_FLAGS

    def vector_bytes(self, pictures: int) -> int:
        return self._layout.size * pictures

    def clearing(self, vectors: Buffer, pictures: int) -> Sequence[LaunchMaker]:
        if self._sums is None:
            return []
        return [partial(self._sums.clearing, vectors, pictures)]

    def step(self, kernel: Kernel) -> int:
        """The step that a kernel belongs to; what clears the sums counts as the first mean."""
        if self._sums is not None and kernel is self._sums.kernel:
            return min(self._layout.sums)
        return next(number for number, own in enumerate(self._steps) if own.owns(kernel))

    def peak(self) -> float:
        return multiply_add_peak(self._runtime)

    def share(self, number: int) -> float:
        own = self._steps[number]
        return own.share if isinstance(own, Fp32ConvStep) else 1.0

    def close(self) -> None:
        for own in self._steps:
            own.close()

    def _finishing(self, phase: Phase, batch: Batch, vectors: Buffer) -> Iterator[LaunchMaker]:
        """What is made of sums that are complete, then the steps on vectors."""
        pictures = batch.source.shape[0]
        for number in (*phase.averages, *phase.dense):
            own, step = self._steps[number], self.program.steps[number]
            if isinstance(own, Fp32AvgPoolStep | Fp32CrossSumsStep):
                assert isinstance(step, PictureSum)
                size = batch.sizes[step.source.value]
                yield partial(own.finish, size, vectors, pictures)
            elif isinstance(own, Fp32LinearStep | Fp32NormVectorStep | Fp32ChannelWeightsStep):
                yield partial(own.launch, batch, vectors)

    def _prepare(self, choose: Choose) -> None:
        """Makes all steps."""
        try:
            for number, step in enumerate(self.program.steps):
                self._steps.append(self._make(number, step, choose))
        except BaseException:
            self.close()
            raise

    def _make(self, number: int, step: Step, choose: Choose) -> _Own:
        runtime, program = self._runtime, self.program
        match step:
            case Conv():
                planes = planes_of(program, step, self._block)
                found = candidates(runtime.limits, planes)
                shape = choose(number, found, f"fp32 {planes!r}")
                return Fp32ConvStep(runtime, program, step, planes, shape)
            case Depthwise():
                return Fp32DepthwiseStep(runtime, program, step, self._block)
            case NormPlanes():
                return Fp32LayerNormStep(runtime, program, step, self._block)
            case GlobalAvgPool():
                return Fp32AvgPoolStep(runtime, program, number, self._layout, self._block)
            case NormVector():
                return Fp32NormVectorStep(runtime, step, self._layout)
            case Linear():
                return Fp32LinearStep(runtime, step, self._layout)
            case CrossSums():
                return Fp32CrossSumsStep(runtime, program, number, self._layout, self._block)
            case ChannelWeights():
                return Fp32ChannelWeightsStep(runtime, step, self._layout, self._block)
            case MixPlanes():
                return Fp32MixStep(runtime, program, step, self._layout, self._block)
            case AttendWindows():
                return Fp32AttentionStep(runtime, program, step, self._block)
            case AttendPlanes():
                return Fp32PlaneAttentionStep(runtime, program, step, self._block)
            case _:
                return Fp32PlanewiseStep(runtime, program, number, self._block)

    def _find_margins(self) -> list[Margin]:
        """How far the groups of convolutions that write and read each value go beyond it."""
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

    def _factors(self, number: int) -> list[int]:
        """The first float of a step's factors, and that of its shifts if it has any."""
        step = self.program.steps[number]
        vectors = step.vectors_read if isinstance(step, Planewise) else ()
        return [self._layout.vectors[vector] for vector in vectors]


def candidates(limits: Limits, planes: Planes) -> list[ConvShape]:
    """Ways to cut a convolution on a device, the usual one first. Any of them is right."""
    transformed = winograd_vector if limits.is_cpu else winograd
    shapes: list[ConvShape] = [*transformed.candidates(limits, planes)]
    return shapes or [*direct.candidates(limits, planes)]
