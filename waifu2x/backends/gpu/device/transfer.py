"""The data that crosses to the device and back in a call that shares it: pixels, or planes of
films."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.compiled_model import NOTHING, Beside, StackShape
from waifu2x.backends.gpu.device.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.device.runtime import Event, Runtime
from waifu2x.backends.gpu.executor import DevicePixels


class Transfer(Protocol):
    """The pictures and results of a call.

    Its methods are called in the order in which they stand here; `send` once, at either place.
    """

    shape: StackShape
    """The shape of the pictures as pixels."""
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    """The dtypes that the first model reads and the last one writes."""
    size: int
    """Bytes that it takes on the device beside those pixels."""
    crossing: int
    """Bytes that cross, both ways."""

    def take(self, taken: ScopedAllocation, made: StackShape) -> None:
        """Takes memory for what crosses; `made` is the shape of the results."""
        ...

    def send(self, *, in_order: bool = False) -> object:
        """Begins to send the pictures; see Runtime.send."""
        ...

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        """Returns the pixels that the first model reads, which `before` makes."""
        ...

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        """Returns the pixels that the last model writes, which `behind` reads."""
        ...

    @property
    def before(self) -> Beside:
        """Launches before the first model..."""
        ...

    @property
    def behind(self) -> Beside:
        """...and behind the last one."""
        ...

    def fetch(self, *, in_order: bool) -> None:
        """Begins to fetch what was queued to be written."""
        ...

    def wait(self) -> None:
        """Waits until the results are where they belong."""
        ...


class Results:
    """The memory of a call's results, taken when it is first asked for: the device works then."""

    def __init__(
        self,
        runtime: Runtime,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        out: NDArray[Any] | None,
    ) -> None:
        self._runtime = runtime
        self._shape = shape
        self._out = out
        self.dtype = dtype

    @property
    def array(self) -> NDArray[Any]:
        """The array that the call gives."""
        if self._out is None:
            self._out = self._runtime.host_array(self._shape, self.dtype)
        return self._out

    @property
    def stack(self) -> NDArray[Any]:
        """The array as (N, H, W, C)."""
        return self.array if len(self._shape) == 4 else self.array[np.newaxis]


class PixelTransfer:
    """Arrays of pixels, which models read and write as they are; see Transfer."""

    size = 0
    before = behind = NOTHING

    def __init__(self, runtime: Runtime, pictures: NDArray[Any], results: Results) -> None:
        self._runtime, self._pictures, self._results = runtime, pictures, results
        self.shape = stack_shape(pictures)
        self.dtypes = pictures.dtype, results.dtype
        self.crossing = pictures.nbytes
        self._ends: tuple[DevicePixels, DevicePixels]
        self._fetched: Event

    def take(self, taken: ScopedAllocation, made: StackShape) -> None:
        source, target = self.dtypes
        self._ends = device_pixels(taken, source, self.shape), device_pixels(taken, target, made)
        self.crossing = self._ends[0].size + self._ends[1].size

    def send(self, *, in_order: bool = False) -> object:
        return self._runtime.send(self._ends[0].buffer, [self._pictures], in_order=in_order)

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        return self._ends[0]

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        return self._ends[1]

    def fetch(self, *, in_order: bool) -> None:
        target = self._ends[1].buffer
        self._fetched = self._runtime.fetch(target, [self._results.stack], in_order=in_order)

    def wait(self) -> None:
        self._runtime.wait(self._fetched)


def stack_shape(pictures: NDArray[Any]) -> StackShape:
    """Returns the shape of a stack of pictures."""
    count, height, width, planes = pictures.shape
    return count, height, width, planes


def device_pixels(taken: ScopedAllocation, dtype: np.dtype[Any], shape: StackShape) -> DevicePixels:
    """Returns memory for pictures. May raise OutOfMemoryError."""
    return DevicePixels(taken.buffer(math.prod(shape) * dtype.itemsize), dtype, shape)
