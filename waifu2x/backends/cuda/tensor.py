"""The executor over matrix units: maps of 16-bit terms, see `kernels/tensor.cuh`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from waifu2x.backends import Precision
from waifu2x.backends.cuda import value_range
from waifu2x.backends.cuda.arguments import address_of
from waifu2x.backends.cuda.flags import CudaFlags
from waifu2x.backends.cuda.tensor_avg_pool import TensorAvgPoolStep
from waifu2x.backends.cuda.tensor_conv import TensorConvStep
from waifu2x.backends.cuda.tensor_gather import GatherStep
from waifu2x.backends.cuda.tensor_layout import batch_grid, layouts
from waifu2x.backends.cuda.tensor_peak import matrix_peak
from waifu2x.backends.cuda.tensor_planewise import TensorPlanewiseStep, has_whole_vectors
from waifu2x.backends.cuda.tensor_runs import runs
from waifu2x.backends.cuda.tensor_step import LARGEST, Room, Task, beyond
from waifu2x.backends.cuda.tensor_vectors import Vectors
from waifu2x.backends.cuda.units import Units
from waifu2x.backends.gpu.backend import Maker
from waifu2x.backends.gpu.executor import Executor, PassWork
from waifu2x.backends.gpu.flags import Flags
from waifu2x.backends.gpu.fp32 import Fp32Executor
from waifu2x.backends.gpu.launch import LaunchMaker
from waifu2x.backends.gpu.runtime import Buffer, Kernel
from waifu2x.backends.gpu.tuning import Choose
from waifu2x.errors import printable
from waifu2x.lowering.box import Box
from waifu2x.lowering.steps import Conv, GatedAdd, GlobalAvgPool, Linear, Program

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

_LOG = logging.getLogger(__name__)


def makers(runtime: CudaRuntime, units: Units) -> dict[Precision, Sequence[Maker]]:
    """What makes the executors of each precision: the first for all pictures, the others for those
    whose values leave the room of 16 bits. Those of fp16 are then what they are in fp32.

    Programs that matrix units cannot run, or not within the range of 16 bits, take others. `auto`
    is fp16, but where there are gates: what they multiply with each other is rounded before (SPAN
    keeps 79 dB of a photo so, and 32 dB of a drawing with hard edges).
    """

    def maker(terms: int) -> Maker:
        def make(program: Program, choose: Choose) -> Executor:
            if not runs(program, layouts(program, terms)):
                return Fp32Executor(runtime, program, choose)
            largest = value_range.largest(program)
            if not largest <= value_range.MOST:
                _warn(
                    program,
                    "%s: has values of %.2g, for which 16 bits have no room: computed in 32 bits,"
                    " which takes longer",
                    largest,
                )
                return Fp32Executor(runtime, program, choose)
            return TensorExecutor(runtime, program, units, terms, choose)

        return make

    fp16, fp32 = maker(1), maker(2)

    def auto(program: Program, choose: Choose) -> Executor:
        if not any(isinstance(step, GatedAdd) for step in program.steps):
            return fp16(program, choose)
        _warn(
            program,
            "%s: multiplies maps with each other, for which fp16 is not exact enough: computed in"
            " fp32, which takes longer",
        )
        return fp32(program, choose)

    wide = partial(Fp32Executor, runtime)
    return {"auto": [auto, fp32, wide], "fp16": [fp16, fp32, wide], "fp32": [fp32, wide]}


def _warn(program: Program, message: str, *values: float) -> None:
    """Logs a warning about a model once: not again for the same one, cut."""
    if not program.cuts:
        _LOG.warning(message, printable(program.model.name), *values)


class TensorExecutor:
    """Runs programs on tensor cores."""

    unit = (1, 1)
    alignment = 256
    map_limit = 1 << 34

    def __init__(
        self, runtime: CudaRuntime, program: Program, units: Units, terms: int, choose: Choose
    ) -> None:
        """Raises BackendError for kernels that cannot be built, OutOfMemoryError."""
        self.program = program
        self._runtime = runtime
        self._units = units
        self._terms = terms
        self._beyond = beyond(LARGEST)
        self._layouts = found = layouts(program, terms)
        self._vectors = Vectors(runtime, program)
        self._steps: dict[int, TensorConvStep | TensorPlanewiseStep | GatherStep] = {}
        self._averages: dict[int, TensorAvgPoolStep] = {}
        for number, step in enumerate(program.steps):
            match step:
                case Conv():
                    self._steps[number] = TensorConvStep(
                        runtime, program, number, found, units, terms, choose
                    )
                case GlobalAvgPool():
                    place = self._vectors.sum_places[number]
                    self._averages[number] = TensorAvgPoolStep(
                        runtime, program, number, found, place
                    )
                case Linear():
                    pass
                case _:
                    by_vectors = has_whole_vectors(program, step, found)
                    make = TensorPlanewiseStep if by_vectors else GatherStep
                    self._steps[number] = make(
                        runtime, program, number, found, terms, self._vectors.vector_places
                    )

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        return self._layouts[value].bytes(box, batch_grid(pictures))

    def launches(self, one: PassWork) -> Sequence[LaunchMaker]:
        pictures = one.batch.source.shape[0]
        at = self._vectors.places(one.vectors, pictures)
        room = Room(address_of(one.batch.flags), self._beyond)
        task = Task(one.batch, one.work.steps, one.places, batch_grid(pictures), at, room)
        made = [(number, partial(self._steps[number].launch, task)) for number in one.work.steps]
        for number, box in one.sums.items():
            if box.height and box.width:
                made.append((number, partial(self._averages[number].launch, task, box)))
        found: list[LaunchMaker] = [maker for _, maker in sorted(made, key=lambda pair: pair[0])]
        if one.ends is not None:
            found += self._vectors.finishing(one.ends, at, one.batch.sizes, pictures)
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
        own = (*self._steps.items(), *self._averages.items())
        return next(number for number, step in own if kernel in step.kernels.values())

    def peak(self) -> float:
        """Multiply-adds a second at best: two terms take three matrix products."""
        return matrix_peak(self._runtime, self._units) / (3 if self._terms == 2 else 1)

    def close(self) -> None:
        for step in (*self._steps.values(), *self._averages.values()):
            step.close()
        self._vectors.close()
