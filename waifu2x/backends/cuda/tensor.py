"""The executor over matrix units: maps of 16-bit terms, see `kernels/tensor.cuh`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, address_of, packed
from waifu2x.backends.cuda.tensor_layout import batch_grid, layouts
from waifu2x.backends.cuda.tensor_peak import product_peak
from waifu2x.backends.cuda.tensor_steps import (
    UNIT,
    AverageStep,
    Launch,
    MoveStep,
    ProductStep,
    Task,
    runs,
)
from waifu2x.backends.cuda.units import Units
from waifu2x.backends.gpu.backend import Maker
from waifu2x.backends.gpu.executor import Batch, Executor, Place
from waifu2x.backends.gpu.fp32 import Fp32Executor
from waifu2x.backends.gpu.runtime import Buffer, Kernel
from waifu2x.backends.gpu.tuning import Choose
from waifu2x.lowering.geometry import Work
from waifu2x.lowering.steps import Average, DenseStep, Move, Product, Program
from waifu2x.tiling import Box

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaKernel, CudaRuntime

_VECTOR_THREADS = 256
_CLEAR, _MEAN, _DENSE = range(3)
_MOST_TASKS = 6


class VectorTask(NamedTuple):
    """`Task` in `kernels/tensor_vectors.cu`."""

    weight: Address = Address(0)
    follows: Address = Address(0)
    scale: float = 0.0
    kind: int = _CLEAR
    inputs: int = 0
    outputs: int = 0
    source: int = 0
    target: int = 0
    unused: int = 0


def makers(runtime: CudaRuntime, units: Units) -> tuple[Maker, Maker]:
    """What makes the executors of fp16 and fp32."""

    def maker(terms: int) -> Maker:
        def make(program: Program, choose: Choose) -> Executor:
            if runs(program, layouts(program, terms)):
                return TensorExecutor(runtime, program, units, terms, choose)
            return Fp32Executor(runtime, program, choose)

        return make

    return maker(1), maker(2)


class TensorExecutor:
    """See Executor."""

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
        self._layouts = found = layouts(program, terms)
        averaged = [
            program.values[step.source.value].planes if isinstance(step, Average) else 0
            for step in program.steps
        ]
        *self._sum_places, self._sums_each = accumulate(averaged, initial=0)
        *self._vector_places, self._vectors_each = accumulate(program.vectors, initial=0)
        self._steps: dict[int, ProductStep | MoveStep] = {}
        self._averages: dict[int, AverageStep] = {}
        self._dense: dict[int, tuple[Buffer, Buffer]] = {}
        self._vector_kernels: dict[int, CudaKernel] = {}
        for number, step in enumerate(program.steps):
            match step:
                case Product():
                    self._steps[number] = ProductStep(
                        runtime, program, number, found, units, terms, choose
                    )
                case Move():
                    self._steps[number] = MoveStep(
                        runtime, program, number, found, terms, self._vector_places
                    )
                case Average():
                    place = self._sum_places[number]
                    self._averages[number] = AverageStep(runtime, program, number, found, place)
                case DenseStep():
                    follows = np.stack([step.bias, step.activation.slopes], axis=1)
                    self._dense[number] = self._uploaded(step.weight), self._uploaded(follows)

    def map_bytes(self, value: int, box: Box, pictures: int) -> int:
        """See Executor."""
        return self._layouts[value].bytes(box, batch_grid(pictures))

    def run(
        self,
        batch: Batch,
        work: Work,
        places: Mapping[int, Place],
        sums: Mapping[int, Box],
        vectors: Buffer,
    ) -> None:
        """See Executor."""
        pictures = batch.source.shape[0]
        task = Task(
            batch,
            work.steps,
            places,
            batch_grid(pictures),
            *self._vectors_at(vectors, pictures),
            self._sums_each,
            self._vectors_each,
        )
        queued: list[tuple[int, ProductStep | MoveStep | AverageStep, Launch]] = []
        for number in work.steps:
            queued.append((number, self._steps[number], self._steps[number].launch(task)))
        for number, box in sums.items():
            if box.height and box.width:
                average = self._averages[number]
                queued.append((number, average, average.launch(task, box)))
        self._runtime.prepare([(launch.stem, launch.macros) for _, _, launch in queued])
        for _, step, launch in sorted(queued, key=lambda one: one[0]):
            step.queue(launch)

    def vector_bytes(self, pictures: int) -> int:
        """See Executor."""
        return pictures * (self._sums_each * 8 + self._vectors_each * 4)

    def clear(self, vectors: Buffer, pictures: int) -> None:
        """See Executor."""
        if self._averages:
            task = VectorTask(outputs=self._sums_each)
            self._queue_tasks(min(self._averages), [task], vectors, pictures)

    def finish(
        self, dense: Sequence[int], averages: Sequence[int], batch: Batch, vectors: Buffer
    ) -> None:
        """See Executor."""
        tasks = [self._mean(number, batch) for number in averages]
        tasks += [self._dense_task(number) for number in dense]
        owner = min((*averages, *dense))
        for start in range(0, len(tasks), _MOST_TASKS):
            part = tasks[start : start + _MOST_TASKS]
            self._queue_tasks(owner, part, vectors, batch.source.shape[0])

    def step(self, kernel: Kernel) -> int:
        """See Executor."""
        for number, step in (*self._steps.items(), *self._averages.items()):
            if kernel in step.kernels.values():
                return number
        return next(number for number, own in self._vector_kernels.items() if own is kernel)

    def peak(self) -> float:
        """See Executor. Two terms take three products."""
        return product_peak(self._runtime, self._units) / (3 if self._terms == 2 else 1)

    def close(self) -> None:
        """See Executor."""
        for step in (*self._steps.values(), *self._averages.values()):
            step.close()
        for buffers in self._dense.values():
            for buffer in buffers:
                buffer.release()

    def _uploaded(self, values: NDArray[np.float32]) -> Buffer:
        array = np.ascontiguousarray(values, np.float32)
        buffer = self._runtime.allocate(array.nbytes)
        self._runtime.upload(buffer, array)
        return buffer

    def _vectors_at(self, vectors: Buffer, pictures: int) -> tuple[Address, Address]:
        """Where sums and vectors begin."""
        return address_of(vectors), address_of(vectors, pictures * self._sums_each * 8)

    def _mean(self, number: int, batch: Batch) -> VectorTask:
        step = self.program.steps[number]
        assert isinstance(step, Average)
        rows, columns = batch.sizes[step.source.value]
        return VectorTask(
            scale=1 / (rows * columns * UNIT),
            kind=_MEAN,
            outputs=self.program.vectors[step.vector],
            source=self._sum_places[number],
            target=self._vector_places[step.vector],
        )

    def _dense_task(self, number: int) -> VectorTask:
        step = self.program.steps[number]
        assert isinstance(step, DenseStep)
        weight, follows = (address_of(buffer) for buffer in self._dense[number])
        return VectorTask(
            weight,
            follows,
            kind=_DENSE + step.activation.code,
            inputs=step.weight.shape[1],
            outputs=step.weight.shape[0],
            source=self._vector_places[step.source],
            target=self._vector_places[step.vector],
        )

    def _queue_tasks(
        self, owner: int, tasks: Sequence[VectorTask], vectors: Buffer, pictures: int
    ) -> None:
        """Queues tasks on vectors; their time is that of step `owner`."""
        if owner not in self._vector_kernels:
            program = self._runtime.build("tensor_vectors", {})
            kernel = program.kernel("tensor_vectors", _VECTOR_THREADS)
            self._vector_kernels[owner] = kernel
        missing = [VectorTask()] * (_MOST_TASKS - len(tasks))
        arguments = packed(
            (
                *self._vectors_at(vectors, pictures),
                self._sums_each,
                self._vectors_each,
                len(tasks),
                0,
                *tasks,
                *missing,
            )
        )
        self._runtime.launch(self._vector_kernels[owner], (pictures, 1, 1), arguments)
