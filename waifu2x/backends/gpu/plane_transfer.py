"""YUV planes that cross to the device and back; pixels are there only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.compiled_model import StackShape
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.planar import (
    DevicePlanes,
    PlaneKernels,
    plane_bytes,
    result_planes,
    source_planes,
)
from waifu2x.backends.gpu.runtime import Event, Runtime
from waifu2x.backends.gpu.transfer import device_pixels
from waifu2x.imaging.planar import PlanarPicture

_UNIT = np.dtype(np.float32)


class PlaneTransfer:
    """Pictures of one size as YUV planes, which become floats on the device; see Transfer."""

    dtypes = (_UNIT, _UNIT)

    def __init__(
        self,
        runtime: Runtime,
        kernels: PlaneKernels,
        pictures: Sequence[PlanarPicture],
        out: Sequence[PlanarPicture],
    ) -> None:
        self._runtime, self._kernels, self._out = runtime, kernels, out
        self._pictures = pictures
        self.shape = (len(pictures), *pictures[0].size, 3)
        self.size = plane_bytes(pictures) + plane_bytes(out)
        self.crossing = self.size
        self._sources: list[DevicePlanes] = []
        self._sent: list[list[NDArray[Any]]] = []
        self._targets: list[DevicePlanes] = []
        self._made: DevicePixels
        self._copies: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def take(self, taken: ScopedAllocation, made: StackShape) -> None:
        self._result_shape = made
        for picture in self._pictures:
            planes, sent = source_planes(picture, taken)
            self._sources.append(planes)
            self._sent.append(sent)
        self._targets = [result_planes(picture, taken) for picture in self._out]

    def send(self, *, in_order: bool = False) -> object:
        return [
            self._runtime.send(buffer, span, in_order=in_order)
            for planes, spans in zip(self._sources, self._sent, strict=True)
            for buffer, span in zip(planes.buffers, spans, strict=True)
        ]

    def source(self, scratch: ScopedAllocation) -> DevicePixels:
        pixels = device_pixels(scratch, _UNIT, self.shape)
        rows = range(self.shape[1])
        for number, planes in enumerate(self._sources):
            self._kernels.to_pixels(planes, pixels, rows, number * len(rows))
        return pixels

    def target(self, scratch: ScopedAllocation) -> DevicePixels:
        self._made = device_pixels(scratch, _UNIT, self._result_shape)
        return self._made

    def fetch(self, *, in_order: bool) -> list[Event]:
        height = self._result_shape[1]
        for number, planes in enumerate(self._targets):
            cells = range(planes.format.axes[0].samples(height))
            self._kernels.to_planes(self._made, planes, cells, number * height)
        fetched = []
        for planes, picture in zip(self._targets, self._out, strict=True):
            for buffer, plane in zip(planes.buffers, picture.planes, strict=True):
                array = plane
                if not plane.flags.c_contiguous:
                    array = self._runtime.host_array(plane.shape, plane.dtype)
                    self._copies.append((plane, array))
                fetched.append(self._runtime.fetch(buffer, array, in_order=in_order))
        return fetched

    def wait(self, fetched: Sequence[Event]) -> None:
        for event in fetched:
            self._runtime.wait(event)
        for plane, array in self._copies:
            np.copyto(plane, array)
