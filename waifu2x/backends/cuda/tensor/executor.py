"""Defines the executor on matrix units, with maps of 16-bit terms; see `kernels/tensor.cuh`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from waifu2x.backends import Precision
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.arguments import address_of
from waifu2x.backends.cuda.runtime import CudaRuntime
from waifu2x.backends.cuda.tensor import choosing
from waifu2x.backends.cuda.tensor.attention import TensorAttentionStep
from waifu2x.backends.cuda.tensor.avg_pool import TensorAvgPoolStep
from waifu2x.backends.cuda.tensor.channel_attention import TensorCrossSumsStep, TensorMixStep
from waifu2x.backends.cuda.tensor.conv import TensorConvStep
from waifu2x.backends.cuda.tensor.depthwise import TensorDepthwiseStep
from waifu2x.backends.cuda.tensor.edges import TensorEdgesStep
from waifu2x.backends.cuda.tensor.gather import GatherStep
from waifu2x.backends.cuda.tensor.in_place import clipped, in_place
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapLayout, batch_grid, layouts
from waifu2x.backends.cuda.tensor.norm import TensorNormStep
from waifu2x.backends.cuda.tensor.pair import TensorPairStep, has_pair
from waifu2x.backends.cuda.tensor.planewise import TensorPlanewiseStep, has_whole_vectors
from waifu2x.backends.cuda.tensor.runs import runs
from waifu2x.backends.cuda.tensor.step import (
    LARGEST,
    CudaFlags,
    RangeCheck,
    TensorContext,
    TensorStep,
    TensorTask,
    beyond,
)
from waifu2x.backends.cuda.tensor.units import Units, is_sm75, matrix_peak
from waifu2x.backends.cuda.tensor.vectors import Vectors
from waifu2x.backends.gpu.backend import Decide, Maker, OnTrial
from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel
from waifu2x.backends.gpu.executor import Executor, PassWork
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.kernel_step import KernelStep
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.ops.attention import AttendWindows, CrossSums, MixPlanes
from waifu2x.lowering.ops.base import InnerVectorStep, Step
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import PlanewiseStep
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.passes.attention_maps import joined, separated
from waifu2x.lowering.passes.fusing import fused
from waifu2x.lowering.passes.ordering import ordered
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Model


def makers(runtime: CudaRuntime, units: Units) -> dict[Precision, Sequence[Maker]]:
    """Returns the makers of executors of each precision: the first for all pictures, the others for
    pictures with values that 16 bits cannot hold. In fp16, these others are those of fp32.

    Programs that matrix units cannot run get an executor in fp32 on other units at once.
    """
    sizes = LARGEST, choosing.IN_FP32, choosing.IN_FLOATS
    fp16, fp32, wide = (_maker(runtime, units, trusted) for trusted in sizes)
    return {"auto": [fp16, fp32, wide], "fp16": [fp16, fp32, wide], "fp32": [fp32, wide]}


def decides(runtime: CudaRuntime, units: Units) -> Decide:
    """Returns the function that chooses a model's maker for `auto`: 16 bits if exact enough."""
    kind = f"{units} {'sm75' if is_sm75(runtime.capability) else ''}"

    def decide(model: Model, on_trial: OnTrial) -> Maker:
        @contextmanager
        def trial(trusted: float) -> Iterator[choosing.Run]:
            with on_trial(_maker(runtime, units, trusted)) as network:
                yield lambda picture: network.run(Call(picture, np.float32))

        return _maker(runtime, units, choosing.trusted(model, kind, trial))

    return decide


def _maker(runtime: CudaRuntime, units: Units, trusted: float) -> Maker:
    """Returns the maker of executors in 16 bits, `trusted` up to that value, or in IN_FP32, or in
    IN_FLOATS."""
    if trusted == choosing.IN_FLOATS:
        return partial(Fp32Executor, runtime)
    terms, largest = (2, LARGEST) if trusted == choosing.IN_FP32 else (1, trusted)

    def make(program: Program, choose: Choose) -> Executor:
        for found in (arranged(program, units, terms, largest), program):
            if runs(found, layouts(found, terms)):
                return TensorExecutor(runtime, found, units, terms, choose, largest)
        return Fp32Executor(runtime, program, choose)

    return make


def arranged(program: Program, units: Units, terms: int, trusted: float = LARGEST) -> Program:
    """Returns the program with steps that are fast here, in an order that takes little memory.

    Values are `trusted` up to that one, LARGEST at most. For less than LARGEST, kernels check every
    value, so every value must be stored.
    """
    takes = scales(units, terms)
    gates = takes and trusted == LARGEST
    found = joined(fused(program, scales=takes, resizes=takes, sums=terms == 1, own_gates=gates))
    # Maps of two terms are large; with one term, reading their source only once saves more.
    return ordered(separated(found) if terms == 2 else found)


def scales(units: Units, terms: int) -> bool:
    """Returns whether convolutions scale 16-bit values as they load them for the matrix unit, and
    resize their results."""
    return units == "wgmma" and terms == 1


STEPS: Mapping[type[Step], Callable[[TensorContext, int], TensorStep[Any]]] = {
    Conv: TensorConvStep,
    Depthwise: TensorDepthwiseStep,
    NormPlanes: TensorNormStep,
    GlobalAvgPool: TensorAvgPoolStep,
    CrossSums: TensorCrossSumsStep,
    MixPlanes: TensorMixStep,
    AttendWindows: TensorAttentionStep,
}
"""The class that runs a step of each type. `Vectors` runs steps from vectors to vectors; all others
are planewise."""


class TensorExecutor:
    """Runs programs on tensor cores."""

    unit = (1, 1)
    alignment = 256
    map_limit = 1 << 34

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        units: Units,
        terms: int,
        choose: Choose,
        trusted: float = LARGEST,
    ) -> None:
        """Kernels flag pictures with values beyond `trusted`, LARGEST at most.

        Raises BackendError for kernels that cannot be built, OutOfMemoryError.
        """
        self.program = program
        self.arithmetic = f"{'fp16' if terms == 1 else 'fp32'} by {units}"
        self._runtime = runtime
        self._units = units
        self._terms = terms
        self._beyond = beyond(trusted)
        self._layouts = found = layouts(program, terms)
        self._vectors = Vectors(runtime, program)
        context = TensorContext(runtime, program, found, units, terms, choose, self._vectors)
        self._steps: dict[int, TensorStep[Any]] = {
            number: _planewise(program, step, found)(context, number)
            if isinstance(step, PlanewiseStep)
            else STEPS[type(step)](context, number)
            for number, step in enumerate(program.steps)
            if not isinstance(step, InnerVectorStep)
        }
        undivided = (number for number, step in self._steps.items() if step.makes_own_pixels)
        self.in_place: Mapping[int, Sequence[int]] = in_place(program, found, frozenset(undivided))
        self.clipped = clipped(program)
        self._pair: TensorPairStep | None = None
        self._edges: TensorEdgesStep | None = None
        last = self._steps.get(len(program.steps) - 1)
        if isinstance(last, TensorConvStep):
            if last.resizes:
                self._edges = TensorEdgesStep(context, last)
            elif scales(units, terms) and trusted == LARGEST and has_pair(program, found):
                self._pair = TensorPairStep(context, last)

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        return self._layouts[value].bytes(box, batch_grid(pictures))

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        pictures = one.batch.source.shape[0]
        at = self._vectors.places(one.vectors, pictures)
        check = RangeCheck(address_of(one.batch.flags), self._beyond)
        grid = batch_grid(pictures)
        task = TensorTask(one.batch, one.work.steps, one.sums, one.places, grid, at, check)
        found: list[LaunchMaker] = []
        for step in self._running(sorted({*one.work.steps, *one.sums})):
            found += step.launches(task)
        if one.ends is not None:
            found += self._vectors.finishing(one.ends, at, check.flags, one.batch.sizes, pictures)
        return found

    def _running(self, numbers: Sequence[int]) -> Iterator[TensorStep[Any]]:
        """Yields the steps of these numbers, in order; one may stand for the last two."""
        for number in numbers:
            if self._pair is not None and number == self._pair.number:
                yield self._pair  # the last two steps in one
                return
            yield self._steps[number]
            if self._edges is not None and number == self._edges.number:
                yield self._edges

    def new_flags(self, pictures: int) -> Flags:
        """Returns flags for pictures with values that 16 bits cannot hold."""
        return CudaFlags(self._runtime, pictures)

    def vector_bytes(self, pictures: int) -> int:
        return self._vectors.bytes(pictures)

    def clearing(self, vectors: Buffer, pictures: int) -> Sequence[LaunchMaker]:
        return self._vectors.clearing(self._vectors.places(vectors, pictures), pictures)

    def step(self, kernel: Kernel) -> int:
        """Returns the number of a kernel's step; sums and vectors count as the first mean."""
        return next(step.number for step in self._all if step.owns(kernel))

    @property
    def _all(self) -> list[KernelStep[Any]]:
        """Returns every object that holds kernels and buffers."""
        ends = (self._pair, self._edges)
        return [*self._steps.values(), self._vectors, *(step for step in ends if step)]

    def peak(self) -> float:
        """Measures the most multiply-adds a second: two terms take three matrix products."""
        return matrix_peak(self._runtime, self._units) / (3 if self._terms == 2 else 1)

    def share(self, number: int) -> float:
        return 1.0

    def close(self) -> None:
        for step in self._all:
            step.close()


def _planewise(
    program: Program, step: PlanewiseStep, found: Sequence[MapLayout | FewLayout]
) -> type[TensorPlanewiseStep | GatherStep]:
    """Returns the class that runs a planewise step."""
    return TensorPlanewiseStep if has_whole_vectors(program, step, found) else GatherStep
