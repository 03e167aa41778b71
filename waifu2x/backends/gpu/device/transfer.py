"""The data that crosses to the device and back in a call that shares it: pixels, or planes of
films."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.call import Call
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

    def send(self, *, in_order: bool = False) -> object:
        """Begins to send the pictures; see Runtime.send."""

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        """Returns the pixels that the first model reads, which `before` makes."""

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        """Returns the pixels that the last model writes, which `behind` reads."""

    @property
    def before(self) -> Beside:
        """Launches before the first model..."""

    @property
    def behind(self) -> Beside:
        """...and behind the last one."""

    def fetch(self, *, in_order: bool) -> None:
        """Begins to fetch what was queued to be written."""

    def wait(self) -> None:
        """Waits until the results are where they belong."""


class PixelTransfer:
    """Arrays of pixels, which models read and write as they are; see Transfer."""

    size = 0
    before = behind = NOTHING

    def __init__(
        self, runtime: Runtime, call: Call[NDArray[Any]], result_shape: tuple[int, ...]
    ) -> None:
        self._runtime, self._call, self._result_shape = runtime, call, result_shape
        self._pictures = _stack(call.source)
        self.shape = stack_shape(self._pictures)
        self.dtypes = call.source.dtype, call.dtype
        self.crossing = call.source.nbytes
        self._ends: tuple[DevicePixels, DevicePixels]
        self._fetched: Event

    @cached_property
    def out(self) -> NDArray[Any]:
        """The call's results. Memory for them is taken while the device works."""
        if self._call.out is not None:
            return self._call.out
        return self._runtime.host_array(self._result_shape, self._call.dtype)

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
        self._fetched = self._runtime.fetch(target, [_stack(self.out)], in_order=in_order)

    def wait(self) -> None:
        self._runtime.wait(self._fetched)


def _stack(pixels: NDArray[Any]) -> NDArray[Any]:
    return pixels if pixels.ndim == 4 else pixels[np.newaxis]


def stack_shape(pictures: NDArray[Any]) -> StackShape:
    """Returns the shape of a stack of pictures."""
    count, height, width, planes = pictures.shape
    return count, height, width, planes


def device_pixels(taken: ScopedAllocation, dtype: np.dtype[Any], shape: StackShape) -> DevicePixels:
    """Returns memory for pictures. May raise OutOfMemoryError."""
    return DevicePixels(taken.buffer(math.prod(shape) * dtype.itemsize), dtype, shape)
