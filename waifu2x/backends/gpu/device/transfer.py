"""Transfers the pictures and results of a call that shares the device: pixels, or planes of film
frames."""

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
    """Transfers the pictures and results of a call.

    Callers call its methods in the order in which they stand here.
    """

    shape: StackShape
    """The shape of the pictures as pixels."""
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    """The dtypes that the first model reads and the last one writes."""
    size: int
    """The bytes that it takes on the device beside those pixels."""
    crossing: int
    """The bytes that it transfers, in both directions together."""

    def take(self, taken: ScopedAllocation, made: StackShape) -> None:
        """Takes device memory for the transfers; `made` is the shape of the results."""

    def send(self, *, in_order: bool = False) -> object:
        """Starts the upload of the pictures; see Runtime.send."""

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        """Returns the pixels that the first model reads, which the launches of `before` write."""

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        """Returns the pixels that the last model writes, which the launches of `behind` read."""

    @property
    def before(self) -> Beside:
        """The launches before the first model."""

    @property
    def behind(self) -> Beside:
        """The launches behind the last model."""

    def fetch(self, *, in_order: bool) -> None:
        """Starts the download of the results that queued kernels write."""

    def wait(self) -> None:
        """Waits until the results are in the call's memory."""


class PixelTransfer:
    """Transfers arrays of pixels, which models read and write as they are; see Transfer."""

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
        """The call's results, whose memory is allocated while the device works."""
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
    """Returns device memory for pictures of that shape. May raise OutOfMemoryError."""
    return DevicePixels(taken.buffer(math.prod(shape) * dtype.itemsize), dtype, shape)
