"""Transfers planes of film frames to the device and back; their pixels exist only there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.call import Call
from waifu2x.backends.gpu.compiled_model import Beside, StackShape
from waifu2x.backends.gpu.device.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.device.planar import (
    DevicePlanes,
    FetchedPlanes,
    PlaneKernels,
    sent_planes,
)
from waifu2x.backends.gpu.device.runtime import Event, ReadyLaunch, Runtime
from waifu2x.backends.gpu.device.transfer import device_pixels
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.imaging.planar import PlanarPicture
from waifu2x.networks.model import Model

_UNIT = np.dtype(np.float32)


class PlaneTransfer:
    """Transfers pictures of one size as planes, which become floats on the device; see Transfer."""

    dtypes = (_UNIT, _UNIT)

    def __init__(
        self,
        runtime: Runtime,
        kernels: PlaneKernels,
        call: Call[Sequence[PlanarPicture]],
        model: Model,
    ) -> None:
        """`model` is the first one that runs: it may take windows of several pictures."""
        self._runtime, self._kernels, self._model = runtime, kernels, model
        pictures, out = self._pictures, self._out = call.source, call.results
        self._bytes = _bytes(pictures), _bytes(out)
        height, width = pictures[0].size
        if model.surround is not None:
            height += model.surround.added(height)
            width += model.surround.added(width)
        self.shape = (len(out), height, width, model.in_planes)
        self.crossing = self.size = sum(self._bytes)
        self._sent: list[NDArray[Any]]
        self._source: DevicePlanes
        self._target: DevicePlanes
        self._read: DevicePixels
        self._made: DevicePixels
        self._fetched: FetchedPlanes
        self._event: Event

    def take(self, taken: ScopedAllocation, made: StackShape) -> None:
        self._result_shape = made
        self._sent = sent_planes(self._runtime, self._pictures)
        one, other = self._pictures[0], self._out[0]
        self._source = DevicePlanes(one.format, one.size, taken.buffer(self._bytes[0]))
        self._target = DevicePlanes(other.format, other.size, taken.buffer(self._bytes[1]))

    def send(self, *, in_order: bool = False) -> object:
        return self._runtime.send(self._source.buffer, self._sent, in_order=in_order)

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        self._read = device_pixels(scratch, _UNIT, self.shape)
        return self._read

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        self._made = device_pixels(scratch, _UNIT, self._result_shape)
        return self._made

    @property
    def before(self) -> Beside:
        return Beside(self._key(self._source), self._reading)

    @property
    def behind(self) -> Beside:
        return Beside(self._key(self._target), self._writing)

    def fetch(self, *, in_order: bool) -> None:
        self._fetched = FetchedPlanes(self._runtime, self._out)
        arrays = self._fetched.arrays
        self._event = self._runtime.fetch(self._target.buffer, arrays, in_order=in_order)

    def wait(self) -> None:
        self._runtime.wait(self._event)
        self._fetched.finish()

    def _reading(self) -> list[ReadyLaunch]:
        if self._model.frames > 1:
            return [self._kernels.to_windows(self._source, self._read, self._model)]
        return [self._kernels.to_pixels(self._source, self._read, range(self.shape[1]), 0)]

    def _writing(self) -> list[ReadyLaunch]:
        cells = range(self._target.format.axes[0].samples(self._target.size[0]))
        model = self._model if self._model.frames > 1 else None
        return [self._kernels.to_planes(self._made, self._target, cells, 0, model)]

    def _key(self, planes: DevicePlanes) -> tuple[object, ...]:
        """Returns everything that a launch depends on except pixels and their shapes."""
        return planes.format, planes.size, self._runtime.handle(planes.buffer)


def _bytes(pictures: Sequence[PlanarPicture]) -> int:
    return len(pictures) * pictures[0].format.nbytes(*pictures[0].size)
