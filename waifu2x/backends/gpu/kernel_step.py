"""Defines the base of the steps of every GPU executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.launch import KernelOwner
from waifu2x.backends.gpu.device.runtime import Buffer, Runtime
from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.program import Program

Kind = TypeVar("Kind", bound=Step)


class KernelStep(KernelOwner, Generic[Kind]):
    """Holds a step's kernels and its data on the device."""

    share = 1.0
    """The multiply-adds done, divided by those of its definition."""

    def __init__(self, runtime: Runtime, program: Program, number: int) -> None:
        super().__init__(runtime)
        self.program = program
        self.number = number
        self.step = cast("Kind", program.steps[number])
        self._buffers: dict[object, Buffer] = {}

    def uploaded(self, key: object, make: Callable[[], NDArray[Any]]) -> Buffer:
        """Returns a buffer with the array that `make` returns, uploaded at the first call with
        `key`. May raise OutOfMemoryError."""
        if key not in self._buffers:
            array = np.ascontiguousarray(make())
            buffer = self.runtime.allocate(array.nbytes)
            self.runtime.upload(buffer, array)
            self._buffers[key] = buffer
        return self._buffers[key]

    def close(self) -> None:
        """Frees its buffers."""
        for buffer in self._buffers.values():
            buffer.release()
