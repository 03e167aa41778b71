"""Means and dense layers of the tensor executor: tasks on vectors, see `kernels/vectors.cuh`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, address_of, packed
from waifu2x.backends.gpu.runtime import Buffer
from waifu2x.lowering.phases import Phase
from waifu2x.lowering.steps import Average, DenseStep, Program
from waifu2x.model import Size

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaKernel, CudaRuntime

UNIT = 1 << 16
"""Of the integers that are summed for means."""
THREADS = 256
_CLEAR, _MEAN, _DENSE = range(3)
_MOST = 6


class VectorTask(NamedTuple):
    """`Task` in `kernels/vectors.cuh`."""

    weight: Address = Address(0)
    follows: Address = Address(0)
    scale: float = 0.0
    kind: int = _CLEAR
    inputs: int = 0
    outputs: int = 0
    source: int = 0
    target: int = 0
    unused: int = 0


class VectorPlaces(NamedTuple):
    """Where the sums and vectors of a batch lie, and how many of each a picture has."""

    sums: Address
    vectors: Address
    sums_each: int
    vectors_each: int

    @property
    def done(self) -> Address:
        """Of the counter behind a picture's sums: blocks of a launch that are done."""
        return Address(self.sums + 8 * (self.sums_each - 1))


class Tasks(NamedTuple):
    """`Tasks` in `kernels/vectors.cuh`."""

    places: VectorPlaces
    number: int
    unused: int
    tasks: tuple[VectorTask, ...]


class Vectors:
    """The vectors and sums of a program, and what is computed of them."""

    def __init__(self, runtime: CudaRuntime, program: Program) -> None:
        """Raises OutOfMemoryError."""
        self._runtime = runtime
        self._program = program
        averaged = [
            program.values[step.source.value].planes if isinstance(step, Average) else 0
            for step in program.steps
        ]
        *self.sum_places, sums = accumulate(averaged, initial=0)
        self._sums_each = sums + 1
        *self.vector_places, self._vectors_each = accumulate(program.vectors, initial=0)
        self._weights: dict[int, tuple[Buffer, Buffer]] = {}
        for number, step in enumerate(program.steps):
            if isinstance(step, DenseStep):
                follows = np.stack([step.bias, step.activation.slopes], axis=1)
                self._weights[number] = self._uploaded(step.weight), self._uploaded(follows)

    def bytes(self, pictures: int) -> int:
        """Memory for all vectors and sums."""
        return pictures * (self._sums_each * 8 + self._vectors_each * 4)

    def places(self, vectors: Buffer, pictures: int) -> VectorPlaces:
        """In that memory."""
        ends = address_of(vectors, pictures * self._sums_each * 8)
        return VectorPlaces(address_of(vectors), ends, self._sums_each, self._vectors_each)

    def clear(self, places: VectorPlaces, pictures: int) -> None:
        """Queues that all sums are zero."""
        if any(isinstance(step, Average) for step in self._program.steps):
            self.queue([self._tasks(places, [VectorTask(outputs=self._sums_each)])], pictures)

    def ends(self, phase: Phase | None, places: VectorPlaces, sizes: Sequence[Size]) -> list[Tasks]:
        """What follows a phase, for one launch after the other: at least one, of no tasks if
        nothing does."""
        tasks: list[VectorTask] = []
        if phase is not None:
            tasks += [self._mean(number, sizes) for number in phase.averages]
            tasks += [self._dense(number) for number in phase.dense]
        starts = range(0, max(len(tasks), 1), _MOST)
        return [self._tasks(places, tasks[start : start + _MOST]) for start in starts]

    def queue(self, launches: Sequence[Tasks], pictures: int) -> None:
        """Queues tasks by themselves; their time is that of the first mean."""
        for tasks in launches:
            if tasks.number:
                self._runtime.launch(self._kernel, (pictures, 1, 1), packed(tasks))

    def owns(self, kernel: object) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def close(self) -> None:
        """Frees the weights."""
        for buffers in self._weights.values():
            for buffer in buffers:
                buffer.release()

    @cached_property
    def _kernel(self) -> CudaKernel:
        return self._runtime.build("tensor_vectors", {}).kernel("tensor_vectors", THREADS)

    def _uploaded(self, values: NDArray[np.float32]) -> Buffer:
        array = np.ascontiguousarray(values, np.float32)
        buffer = self._runtime.allocate(array.nbytes)
        self._runtime.upload(buffer, array)
        return buffer

    def _tasks(self, places: VectorPlaces, tasks: Sequence[VectorTask]) -> Tasks:
        missing = [VectorTask()] * (_MOST - len(tasks))
        return Tasks(places, len(tasks), 0, (*tasks, *missing))

    def _mean(self, number: int, sizes: Sequence[Size]) -> VectorTask:
        step = self._program.steps[number]
        assert isinstance(step, Average)
        rows, columns = sizes[step.source.value]
        return VectorTask(
            scale=1 / (rows * columns * UNIT),
            kind=_MEAN,
            outputs=self._program.vectors[step.vector],
            source=self.sum_places[number],
            target=self.vector_places[step.vector],
        )

    def _dense(self, number: int) -> VectorTask:
        step = self._program.steps[number]
        assert isinstance(step, DenseStep)
        weight, follows = (address_of(buffer) for buffer in self._weights[number])
        return VectorTask(
            weight,
            follows,
            kind=_DENSE + step.activation.code,
            inputs=step.weight.shape[1],
            outputs=step.weight.shape[0],
            source=self.vector_places[step.source],
            target=self.vector_places[step.vector],
        )
