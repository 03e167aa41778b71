"""Means, linear layers and weights of attention between planes of the tensor executor: tasks of
`kernels/tensor_vectors.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, address_of, structs
from waifu2x.backends.cuda.tensor.activation import numbered_macro
from waifu2x.backends.gpu.device.launch import Launch, LaunchMaker
from waifu2x.backends.gpu.device.runtime import Buffer, Macros
from waifu2x.lowering.ops.attention import ChannelWeights, CrossSums
from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import LEAKY
from waifu2x.networks.model import Size

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaKernel, CudaRuntime

UNIT = 1 << 16
"""The scale of the integers that are summed for means."""
CROSS_UNIT = 1 << 27
"""The same of products, as `kernels/tensor_cross_sums.cu` has it."""
_LEAST_SQUARE = 2.0**-22
"""A sum of squares over N pixels keeps 107 dB where its own square is N times that: of N products,
each is off by 2^-28 at most."""
THREADS = 256
_MOST_TASKS = 6
_CLEAR, _MEAN, _WEIGHTS, _LINEAR = range(4)


class VectorTask(NamedTuple):
    """`Task` in `kernels/tensor_vectors.cu`."""

    weight: Address = Address(0)
    epilogue: Address = Address(0)
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


class Tasks(NamedTuple):
    """`Tasks` in `kernels/tensor_vectors.cu`."""

    places: VectorPlaces
    number: int
    unused: int
    flags: Address
    tasks: tuple[VectorTask, ...]


class Vectors:
    """The vectors and sums of a program, and what is computed of them."""

    def __init__(self, runtime: CudaRuntime, program: Program) -> None:
        """Raises OutOfMemoryError."""
        self._runtime = runtime
        self._program = program
        averaged = [_sums(program, step) for step in program.steps]
        *self.sum_places, self._sums_each = accumulate(averaged, initial=0)
        # Convolutions read factors in pairs.
        lengths = [round_up(length, 2) for length in program.vectors]
        *self.vector_places, self._vectors_each = accumulate(lengths, initial=0)
        linear = [step for step in program.steps if isinstance(step, Linear)]
        self._activations = list(dict.fromkeys(step.activation.function for step in linear))
        self._buffers: list[Buffer] = []
        self._kernel: CudaKernel | None = None
        self._weights: dict[int, tuple[Buffer, Buffer]] = {}
        self._temperatures: dict[int, Buffer] = {}
        try:
            for number, step in enumerate(program.steps):
                if isinstance(step, Linear):
                    epilogue = np.stack([step.bias, step.activation.slopes], axis=1)
                    self._weights[number] = self._uploaded(step.weight), self._uploaded(epilogue)
                elif isinstance(step, ChannelWeights):
                    self._temperatures[number] = self._uploaded(step.temperature)
        except BaseException:
            self.close()
            raise

    def bytes(self, pictures: int) -> int:
        """Memory for all vectors and sums."""
        return pictures * (self._sums_each * 8 + self._vectors_each * 4)

    def places(self, vectors: Buffer, pictures: int) -> VectorPlaces:
        """In that memory."""
        ends = address_of(vectors, pictures * self._sums_each * 8)
        return VectorPlaces(address_of(vectors), ends, self._sums_each, self._vectors_each)

    def clearing(self, places: VectorPlaces, pictures: int) -> list[LaunchMaker]:
        """What makes all sums zero."""
        if not self._sums_each:
            return []
        task = VectorTask(outputs=self._sums_each)
        return [lambda: self._launch([task], places, Address(0), pictures)]

    def finishing(
        self,
        phase: Phase,
        places: VectorPlaces,
        flags: Address,
        sizes: Sequence[Size],
        pictures: int,
    ) -> list[LaunchMaker]:
        """The means and the steps on vectors that follow a phase; `flags` are a word for each
        picture."""

        def launch(some: Sequence[int]) -> Launch:
            tasks = [
                self._mean(number, sizes)
                if number in phase.averages
                else self._dense(number, sizes)
                for number in some
            ]
            return self._launch(tasks, places, flags, pictures)

        numbers = (*phase.averages, *phase.dense)
        return [
            partial(launch, numbers[start : start + _MOST_TASKS])
            for start in range(0, len(numbers), _MOST_TASKS)
        ]

    def owns(self, kernel: object) -> bool:
        """Whether it launches a kernel."""
        return kernel is self._kernel

    def close(self) -> None:
        """Frees the weights."""
        for buffer in self._buffers:
            buffer.release()

    def _uploaded(self, values: NDArray[np.float32]) -> Buffer:
        array = np.ascontiguousarray(values, np.float32)
        self._buffers.append(self._runtime.allocate(array.nbytes))
        self._runtime.upload(self._buffers[-1], array)
        return self._buffers[-1]

    def _source(self) -> tuple[str, Macros]:
        macros: Macros = {"THREADS": THREADS, "MOST_TASKS": _MOST_TASKS}
        return "tensor_vectors", {**macros, **numbered_macro(self._activations or [LEAKY])}

    def _built(self) -> CudaKernel:
        """Its kernel, built the first time. Raises BackendError."""
        if self._kernel is None:
            program = self._runtime.build(*self._source())
            self._kernel = program.kernel("tensor_vectors", THREADS)
        return self._kernel

    def _launch(
        self, tasks: Sequence[VectorTask], places: VectorPlaces, flags: Address, pictures: int
    ) -> Launch:
        missing = [VectorTask()] * (_MOST_TASKS - len(tasks))
        arguments = Tasks(places, len(tasks), 0, flags, (*tasks, *missing))
        return Launch(self._source, self._built, (pictures, 1, 1), lambda: structs(arguments))

    def _mean(self, number: int, sizes: Sequence[Size]) -> VectorTask:
        step = self._program.steps[number]
        assert isinstance(step, GlobalAvgPool | CrossSums)
        rows, columns = sizes[step.source.value]
        is_mean = isinstance(step, GlobalAvgPool)
        return VectorTask(
            scale=1 / (rows * columns * UNIT) if is_mean else 1 / CROSS_UNIT,
            kind=_MEAN,
            outputs=self._program.vectors[step.vector],
            source=self.sum_places[number],
            target=self.vector_places[step.vector],
        )

    def _dense(self, number: int, sizes: Sequence[Size]) -> VectorTask:
        step = self._program.steps[number]
        if isinstance(step, ChannelWeights):
            summed = next(
                each
                for each in self._program.steps
                if isinstance(each, CrossSums) and each.vector == step.source
            )
            rows, columns = sizes[summed.source.value]
            return VectorTask(
                address_of(self._temperatures[number]),
                scale=rows * columns * _LEAST_SQUARE,
                kind=_WEIGHTS,
                inputs=step.planes // len(step.temperature),
                outputs=step.planes,
                source=self.vector_places[step.source],
                target=self.vector_places[step.vector],
            )
        assert isinstance(step, Linear)
        weight, epilogue = (address_of(buffer) for buffer in self._weights[number])
        return VectorTask(
            weight,
            epilogue,
            kind=_LINEAR + self._activations.index(step.activation.function),
            inputs=step.weight.shape[1],
            outputs=step.weight.shape[0],
            source=self.vector_places[step.source],
            target=self.vector_places[step.vector],
        )


def _sums(program: Program, step: Step) -> int:
    """How many sums over the picture a step has."""
    if isinstance(step, CrossSums):
        return program.vectors[step.vector]
    return program.values[step.source.value].planes if isinstance(step, GlobalAvgPool) else 0
