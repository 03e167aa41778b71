"""Planes of films that cross to the device and back; pixels are there only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.compiled_model import Beside, StackShape
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.planar import DevicePlanes, FetchedPlanes, PlaneKernels, sent_block
from waifu2x.backends.gpu.runtime import Event, ReadyLaunch, Runtime
from waifu2x.backends.gpu.transfer import device_pixels
from waifu2x.imaging.planar import PlanarPicture

_UNIT = np.dtype(np.float32)


class PlaneTransfer:
    """Pictures of one size as planes, which become floats on the device; see Transfer."""

    dtypes = (_UNIT, _UNIT)

    def __init__(
        self,
        runtime: Runtime,
        kernels: PlaneKernels,
        pictures: Sequence[PlanarPicture],
        out: Sequence[PlanarPicture],
    ) -> None:
        self._runtime, self._kernels = runtime, kernels
        self._pictures, self._out = pictures, out
        self.shape = (len(pictures), *pictures[0].size, 3)
        self.crossing = self.size = sum(_bytes(picture) for picture in (*pictures, *out))
        self._blocks: list[NDArray[Any]] = []
        self._fetched: list[FetchedPlanes] = []
        self._sources: list[DevicePlanes] = []
        self._targets: list[DevicePlanes] = []
        self._read: DevicePixels
        self._made: DevicePixels

    def take(self, taken: ScopedAllocation, made: StackShape) -> None:
        self._result_shape = made
        self._blocks = [sent_block(self._runtime, picture) for picture in self._pictures]
        self._sources, self._targets = (
            [DevicePlanes(one.format, one.size, taken.buffer(_bytes(one))) for one in some]
            for some in (self._pictures, self._out)
        )

    def send(self, *, in_order: bool = False) -> object:
        return [
            self._runtime.send(planes.buffer, block, in_order=in_order)
            for planes, block in zip(self._sources, self._blocks, strict=True)
        ]

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        self._read = device_pixels(scratch, _UNIT, self.shape)
        return self._read

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        self._made = device_pixels(scratch, _UNIT, self._result_shape)
        return self._made

    @property
    def before(self) -> Beside:
        return Beside(self._key(self._sources), self._reading)

    @property
    def behind(self) -> Beside:
        return Beside(self._key(self._targets), self._writing)

    def fetch(self, *, in_order: bool) -> list[Event]:
        self._fetched = [FetchedPlanes(self._runtime, picture) for picture in self._out]
        return [
            self._runtime.fetch(planes.buffer, one.block, in_order=in_order)
            for planes, one in zip(self._targets, self._fetched, strict=True)
        ]

    def wait(self, fetched: Sequence[Event]) -> None:
        for event in fetched:
            self._runtime.wait(event)
        for one in self._fetched:
            one.finish()

    def _reading(self) -> list[ReadyLaunch]:
        height = self.shape[1]
        return [
            self._kernels.to_pixels(planes, self._read, range(height), number * height)
            for number, planes in enumerate(self._sources)
        ]

    def _writing(self) -> list[ReadyLaunch]:
        height = self._result_shape[1]
        return [
            self._kernels.to_planes(
                self._made,
                planes,
                range(planes.format.axes[0].samples(height)),
                number * height,
            )
            for number, planes in enumerate(self._targets)
        ]

    def _key(self, planes: Sequence[DevicePlanes]) -> tuple[object, ...]:
        """All that launches depend on beside pixels and their shapes."""
        return (planes[0].format, *(self._runtime.handle(one.buffer) for one in planes))


def _bytes(picture: PlanarPicture) -> int:
    return picture.format.nbytes(*picture.size)
