"""The executor over matrix units: maps of 16-bit terms, see `kernels/tensor.cuh`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from waifu2x.backends import Precision
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.arguments import address_of
from waifu2x.backends.cuda.flags import CudaFlags
from waifu2x.backends.cuda.tensor import choosing
from waifu2x.backends.cuda.tensor.attention import TensorAttentionStep
from waifu2x.backends.cuda.tensor.avg_pool import TensorAvgPoolStep
from waifu2x.backends.cuda.tensor.channel_attention import TensorCrossSumsStep, TensorMixStep
from waifu2x.backends.cuda.tensor.conv import TensorConvStep
from waifu2x.backends.cuda.tensor.depthwise import TensorDepthwiseStep
from waifu2x.backends.cuda.tensor.edges import TensorEdgesStep
from waifu2x.backends.cuda.tensor.gather import GatherStep
from waifu2x.backends.cuda.tensor.in_place import clipped, in_place
from waifu2x.backends.cuda.tensor.layout import batch_grid, layouts
from waifu2x.backends.cuda.tensor.norm import TensorNormStep
from waifu2x.backends.cuda.tensor.pair import TensorPairStep, has_pair
from waifu2x.backends.cuda.tensor.peak import matrix_peak
from waifu2x.backends.cuda.tensor.planewise import TensorPlanewiseStep, has_whole_vectors
from waifu2x.backends.cuda.tensor.runs import runs
from waifu2x.backends.cuda.tensor.step import LARGEST, RangeCheck, Task, TensorStep, beyond
from waifu2x.backends.cuda.tensor.units import Units, is_sm75
from waifu2x.backends.cuda.tensor.vectors import Vectors
from waifu2x.backends.gpu.backend import Decide, Maker, OnTrial
from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel
from waifu2x.backends.gpu.executor import Executor, PassWork
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.ops.attention import (
    AttendWindows,
    ChannelWeights,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import PlanewiseStep
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.passes.attention_maps import joined, separated
from waifu2x.lowering.passes.fusing import fused
from waifu2x.lowering.passes.ordering import ordered
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Model

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime


def makers(runtime: CudaRuntime, units: Units) -> dict[Precision, Sequence[Maker]]:
    """What makes the executors of each precision: the first for all pictures, the others for those
    whose values leave the room of 16 bits. Those of fp16 are then what they are in fp32.

    Programs that matrix units cannot run take fp32 by other units at once.
    """
    fp16, fp32, wide = _in_16_bits(runtime, units), _in_fp32(runtime, units), _wide(runtime)
    return {"auto": [fp16, fp32, wide], "fp16": [fp16, fp32, wide], "fp32": [fp32, wide]}


def decides(runtime: CudaRuntime, units: Units) -> Decide:
    """What decides how `auto` computes a model: in 16 bits where these are exact enough."""
    kind = f"{units} {'sm75' if is_sm75(runtime.capability) else ''}"

    def decide(model: Model, on_trial: OnTrial) -> Maker:
        def maker(trusted: float) -> Maker:
            match trusted:
                case choosing.IN_FLOATS:
                    return _wide(runtime)
                case choosing.IN_FP32:
                    return _in_fp32(runtime, units)
            return _in_16_bits(runtime, units, trusted)

        @contextmanager
        def trial(trusted: float) -> Iterator[choosing.Run]:
            with on_trial(maker(trusted)) as network:
                yield lambda picture: network.run(Call(picture, np.float32))

        return maker(choosing.trusted(model, kind, trial))

    return decide


def _in_16_bits(runtime: CudaRuntime, units: Units, trusted: float = LARGEST) -> Maker:
    return _maker(runtime, units, 1, trusted)


def _in_fp32(runtime: CudaRuntime, units: Units) -> Maker:
    return _maker(runtime, units, 2, LARGEST)


def _wide(runtime: CudaRuntime) -> Maker:
    return partial(Fp32Executor, runtime)


def _maker(runtime: CudaRuntime, units: Units, terms: int, trusted: float) -> Maker:
    def make(program: Program, choose: Choose) -> Executor:
        for found in (arranged(program, units, terms, trusted), program):
            if runs(found, layouts(found, terms)):
                return TensorExecutor(runtime, found, units, terms, choose, trusted)
        return Fp32Executor(runtime, program, choose)

    return make


def arranged(program: Program, units: Units, terms: int, trusted: float = LARGEST) -> Program:
    """The same program in steps that are fast here, and in an order that takes little memory.

    Values are `trusted` up to a size, LARGEST at most. Below that all have to be looked at, and so
    to be stored.
    """
    takes = scales(units, terms)
    gates = takes and trusted == LARGEST
    found = joined(fused(program, scales=takes, resizes=takes, sums=terms == 1, own_gates=gates))
    # Maps of two terms are large; of one, to read what makes them once is worth more.
    return ordered(separated(found) if terms == 2 else found)


def scales(units: Units, terms: int) -> bool:
    """Whether convolutions scale what they read, 16-bit values on their way to the matrix unit, and
    resize what they make."""
    return units == "wgmma" and terms == 1


_MapStep = (
    TensorConvStep
    | TensorPlanewiseStep
    | GatherStep
    | TensorAttentionStep
    | TensorNormStep
    | TensorDepthwiseStep
    | TensorMixStep
)
"""What makes a map."""


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
        """Pictures with values beyond the `trusted` size are flagged, LARGEST at most.

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
        self._steps: dict[int, _MapStep] = {}
        self._averages: dict[int, TensorAvgPoolStep | TensorCrossSumsStep] = {}
        places = self._vectors.vector_places
        for number, step in enumerate(program.steps):
            match step:
                case Conv():
                    self._steps[number] = TensorConvStep(
                        runtime,
                        program,
                        number,
                        found,
                        units,
                        terms,
                        choose,
                        places,
                    )
                case GlobalAvgPool():
                    place = self._vectors.sum_places[number]
                    self._averages[number] = TensorAvgPoolStep(
                        runtime, program, number, found, place
                    )
                case CrossSums():
                    place = self._vectors.sum_places[number]
                    self._averages[number] = TensorCrossSumsStep(
                        runtime, program, number, found, place
                    )
                case Linear() | ChannelWeights():
                    pass
                case AttendWindows():
                    self._steps[number] = TensorAttentionStep(runtime, program, number, found)
                case NormPlanes():
                    self._steps[number] = TensorNormStep(runtime, program, number, found)
                case Depthwise():
                    self._steps[number] = TensorDepthwiseStep(runtime, program, number, found)
                case MixPlanes():
                    self._steps[number] = TensorMixStep(runtime, program, number, found, places)
                case _:
                    assert isinstance(step, PlanewiseStep)
                    by_vectors = has_whole_vectors(program, step, found)
                    make = TensorPlanewiseStep if by_vectors else GatherStep
                    self._steps[number] = make(runtime, program, number, found, terms, places)
        whole = frozenset(
            number
            for number, step in self._steps.items()
            if isinstance(step, TensorConvStep) and step.makes_own_pixels
        )
        self.in_place: Mapping[int, Sequence[int]] = in_place(program, found, whole)
        self.clipped = clipped(program)
        self._pair: TensorPairStep | None = None
        self._edges: TensorEdgesStep | None = None
        last = self._steps.get(len(program.steps) - 1)
        if isinstance(last, TensorConvStep):
            if last.resizes:
                self._edges = TensorEdgesStep(runtime, program, found, last)
            elif scales(units, terms) and trusted == LARGEST and has_pair(program, found):
                self._pair = TensorPairStep(runtime, program, found, last)

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        return self._layouts[value].bytes(box, batch_grid(pictures))

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        pictures = one.batch.source.shape[0]
        at = self._vectors.places(one.vectors, pictures)
        check = RangeCheck(address_of(one.batch.flags), self._beyond)
        task = Task(one.batch, one.work.steps, one.places, batch_grid(pictures), at, check)
        made = [(number, partial(self._steps[number].launch, task)) for number in one.work.steps]
        if self._pair is not None and self._pair.number in one.work.steps:
            # The last step is one with the step before.
            made = [each for each in made if each[0] < self._pair.number]
            made.append((self._pair.number, partial(self._pair.launch, task)))
        if self._edges is not None and self._edges.number in one.work.steps:
            made.append((self._edges.number, partial(self._edges.launch, task)))
        for number, box in one.sums.items():
            if box.height and box.width:
                made.append((number, partial(self._averages[number].launch, task, box)))
        found: list[LaunchMaker] = [maker for _, maker in sorted(made, key=lambda pair: pair[0])]
        if one.ends is not None:
            found += self._vectors.finishing(one.ends, at, check.flags, one.batch.sizes, pictures)
        return found

    def new_flags(self, pictures: int) -> Flags:
        """Flags of pictures with values that 16 bits have no room for."""
        return CudaFlags(self._runtime, pictures)

    def vector_bytes(self, pictures: int) -> int:
        return self._vectors.bytes(pictures)

    def clearing(self, vectors: Buffer, pictures: int) -> Sequence[LaunchMaker]:
        return self._vectors.clearing(self._vectors.places(vectors, pictures), pictures)

    def step(self, kernel: Kernel) -> int:
        """The step that a kernel belongs to; sums and vectors count as the first mean."""
        if self._vectors.owns(kernel):
            return min(self._averages)
        return next(step.number for step in self._all if kernel in step.kernels.values())

    @property
    def _all(self) -> list[TensorStep]:
        """All that has kernels and data."""
        own: list[TensorStep] = [*self._steps.values(), *self._averages.values()]
        return own + [step for step in (self._pair, self._edges) if step is not None]

    def peak(self) -> float:
        """Multiply-adds a second at best: two terms take three matrix products."""
        return matrix_peak(self._runtime, self._units) / (3 if self._terms == 2 else 1)

    def share(self, number: int) -> float:
        return 1.0

    def close(self) -> None:
        for step in self._all:
            step.close()
        self._vectors.close()
