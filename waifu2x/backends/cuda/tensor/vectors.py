"""Runs the steps that make vectors for the tensor executor, by `kernels/tensor_vectors.cu`: means,
linear layers and weights of attention between planes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, address_of, structs
from waifu2x.backends.cuda.runtime import CudaRuntime
from waifu2x.backends.cuda.tensor.activation import numbered_macro
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch, LaunchMaker
from waifu2x.backends.gpu.device.runtime import Buffer, Macros
from waifu2x.backends.gpu.kernel_step import KernelStep
from waifu2x.lowering.ops.attention import ChannelWeights, CrossSums
from waifu2x.lowering.ops.base import PictureSum, Step
from waifu2x.lowering.ops.vector import GlobalAvgPool, Linear
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.phases import Phase
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import LEAKY
from waifu2x.networks.model import Size

UNIT = 1 << 16
"""The scale of the fixed-point integers that are summed for means."""
CROSS_UNIT = 1 << 27
"""The scale of the fixed-point products that `kernels/tensor_cross_sums.cu` sums."""
_LEAST_SQUARE = 2.0**-22
"""A sum of squares over N pixels keeps 107 dB if it is at least N times this: each of N products
errs by at most 2^-28."""
THREADS = 256
_MOST_TASKS = 6
_CLEAR, _MEAN, _WEIGHTS, _LINEAR = range(4)


class VectorTask(NamedTuple):
    """`Task` in `kernels/tensor_vectors.cu`."""

    weight: Buffer | None = None
    epilogue: Buffer | None = None
    scale: float = 0.0
    kind: int = _CLEAR
    inputs: int = 0
    outputs: int = 0
    source: int = 0
    target: int = 0
    unused: int = 0


class VectorPlaces(NamedTuple):
    """The places of the sums and vectors of a batch, and the number of each for a picture."""

    sums: Address
    vectors: Address
    sums_each: int
    vectors_each: int


class Vectors(KernelStep[Any]):
    """Computes the vectors and sums of a program; their kernel counts as the first mean's."""

    def __init__(self, runtime: CudaRuntime, program: Program) -> None:
        means = [n for n, step in enumerate(program.steps) if isinstance(step, PictureSum)]
        super().__init__(runtime, program, min(means, default=0))
        averaged = [_sums(program, step) for step in program.steps]
        *self.sum_places, self._sums_each = accumulate(averaged, initial=0)
        # Convolutions read factors in pairs.
        lengths = [round_up(length, 2) for length in program.vectors]
        *self.vector_places, self._vectors_each = accumulate(lengths, initial=0)
        linear = [step for step in program.steps if isinstance(step, Linear)]
        self._activations = list(dict.fromkeys(step.activation.function for step in linear))
        macros: Macros = {
            "THREADS": THREADS,
            "MOST_TASKS": _MOST_TASKS,
            **numbered_macro(self._activations or [LEAKY]),
        }
        self._spec = KernelSpec("tensor_vectors", macros, THREADS)

    def bytes(self, pictures: int) -> int:
        """Returns the bytes of all vectors and sums of a batch."""
        return pictures * (self._sums_each * 8 + self._vectors_each * 4)

    def places(self, vectors: Buffer, pictures: int) -> VectorPlaces:
        """Returns the places of sums and vectors in that buffer."""
        ends = address_of(vectors, pictures * self._sums_each * 8)
        return VectorPlaces(address_of(vectors), ends, self._sums_each, self._vectors_each)

    def clearing(self, places: VectorPlaces, pictures: int) -> list[LaunchMaker]:
        """Returns the maker of the launch that zeroes all sums."""
        if not self._sums_each:
            return []
        task = VectorTask(outputs=self._sums_each)
        return [lambda: self._launch([task], places, None, pictures)]

    def finishing(
        self,
        phase: Phase,
        places: VectorPlaces,
        flags: Address,
        sizes: Sequence[Size],
        pictures: int,
    ) -> list[LaunchMaker]:
        """Returns the makers of the launches of means and steps on vectors behind a phase; `flags`
        is the address of a word for each picture."""

        def launch(some: Sequence[int]) -> Launch:
            tasks = [self._task(number, sizes) for number in some]
            return self._launch(tasks, places, flags, pictures)

        numbers = (*phase.averages, *phase.dense)
        return [
            partial(launch, numbers[start : start + _MOST_TASKS])
            for start in range(0, len(numbers), _MOST_TASKS)
        ]

    def _launch(
        self,
        tasks: Sequence[VectorTask],
        places: VectorPlaces,
        flags: Address | None,
        pictures: int,
    ) -> Launch:
        missing = [VectorTask()] * (_MOST_TASKS - len(tasks))
        fields = {
            **places._asdict(),
            "count": len(tasks),
            "unused": 0,
            "flags": flags,
            "tasks": (*tasks, *missing),
        }
        return self.launch_of(self._spec, (pictures, 1, 1), structs("tensor_vectors", fields))

    def _task(self, number: int, sizes: Sequence[Size]) -> VectorTask:
        """Returns the task that makes a step's vector, for pictures with values of these sizes."""
        step = self.program.steps[number]
        match step:
            case GlobalAvgPool() | CrossSums():
                rows, columns = sizes[step.source.value]
                is_mean = isinstance(step, GlobalAvgPool)
                return VectorTask(
                    scale=1 / (rows * columns * UNIT) if is_mean else 1 / CROSS_UNIT,
                    kind=_MEAN,
                    outputs=self.program.vectors[step.vector],
                    source=self.sum_places[number],
                    target=self.vector_places[step.vector],
                )
            case ChannelWeights():
                rows, columns = sizes[self._summed(step).source.value]
                return VectorTask(
                    self._sent(number, lambda: step.temperature),
                    scale=rows * columns * _LEAST_SQUARE,
                    kind=_WEIGHTS,
                    inputs=step.planes // len(step.temperature),
                    outputs=step.planes,
                    source=self.vector_places[step.source],
                    target=self.vector_places[step.vector],
                )
        assert isinstance(step, Linear)
        epilogue = [step.bias, step.activation.slopes]
        return VectorTask(
            self._sent(number, lambda: step.weight),
            self._sent((number, "epilogue"), lambda: np.stack(epilogue, axis=1)),
            kind=_LINEAR + self._activations.index(step.activation.function),
            inputs=step.weight.shape[1],
            outputs=step.weight.shape[0],
            source=self.vector_places[step.source],
            target=self.vector_places[step.vector],
        )

    def _sent(self, key: object, make: Callable[[], NDArray[Any]]) -> Buffer:
        return self.uploaded(key, lambda: make().astype(np.float32))

    def _summed(self, step: ChannelWeights) -> CrossSums:
        """Returns the step that makes the sums that `step` reads."""
        sums = (each for each in self.program.steps if isinstance(each, CrossSums))
        return next(each for each in sums if each.vector == step.source)


def _sums(program: Program, step: Step) -> int:
    """Returns the number of sums over the picture that a step makes."""
    if isinstance(step, CrossSums):
        return program.vectors[step.vector]
    return program.values[step.source.value].planes if isinstance(step, GlobalAvgPool) else 0
