"""Planes of films converted by the device for pixels in the machine's memory, a band of rows at a
time: for pictures that do not stay on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.device.planar import (
    DevicePlanes,
    FetchedPlanes,
    PlaneKernels,
    sent_planes,
)
from waifu2x.backends.gpu.device.runtime import Runtime
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.imaging.planar import PlanarPicture

_PIXEL_BYTES = 12
_BAND_BYTES = 64 << 20
_HALO = 1
"""Rows beyond a band that its chroma is made of."""


class BandConversion:
    """Conversions in buffers of `taken`; nothing else may run meanwhile. May raise
    OutOfMemoryError."""

    def __init__(self, runtime: Runtime, kernels: PlaneKernels, taken: ScopedAllocation) -> None:
        self._runtime, self._kernels, self._taken = runtime, kernels, taken

    def pixels(self, pictures: Sequence[PlanarPicture]) -> NDArray[np.float32]:
        """The RGB (N, H, W, 3) of pictures."""
        height, width = pictures[0].size
        made = self._runtime.host_array((len(pictures), height, width, 3), np.float32)
        for picture, pixels in zip(pictures, made, strict=True):
            planes = self._planes(picture)
            sent = self._runtime.send(planes.buffer, sent_planes(self._runtime, [picture]))
            self._runtime.follow()
            for rows in _bands(height, width, 1):
                target = self._band(pixels[rows.start : rows.stop])
                self._runtime.queue([self._kernels.to_pixels(planes, target, rows, -rows.start)])
                self._runtime.synchronize()
                self._runtime.download(target.buffer, pixels[rows.start : rows.stop])
                self._taken.drop(target.buffer)
            del sent  # held until then
            self._taken.drop(planes.buffer)
        return made

    def planes(self, pixels: NDArray[np.float32], out: Sequence[PlanarPicture]) -> None:
        """Writes RGB (N, H, W, 3) into planes."""
        for rgb, picture in zip(pixels, out, strict=True):
            height, width = picture.size
            step = picture.format.axes[0].step
            planes = self._planes(picture)
            for rows in _bands(height, width, step):
                first = max(0, rows.start - _HALO)
                read = rgb[first : rows.stop + _HALO]
                source = self._band(read)
                self._runtime.upload(source.buffer, read)
                cells = range(rows.start // step, -(-rows.stop // step))
                self._runtime.queue([self._kernels.to_planes(source, planes, cells, -first)])
                self._runtime.synchronize()
                self._taken.drop(source.buffer)
            fetched = FetchedPlanes(self._runtime, [picture])
            self._runtime.wait(self._runtime.fetch(planes.buffer, fetched.arrays))
            fetched.finish()
            self._taken.drop(planes.buffer)

    def _planes(self, picture: PlanarPicture) -> DevicePlanes:
        size = picture.format.nbytes(*picture.size)
        return DevicePlanes(picture.format, picture.size, self._taken.buffer(size))

    def _band(self, rows: NDArray[Any]) -> DevicePixels:
        height, width, planes = rows.shape
        return DevicePixels(self._taken.buffer(rows.nbytes), rows.dtype, (1, height, width, planes))


def _bands(height: int, width: int, step: int) -> Iterator[range]:
    """Rows of bands, each a multiple of `step` but for the last one."""
    rows = max(1, _BAND_BYTES // (_PIXEL_BYTES * width * step)) * step
    for first in range(0, height, rows):
        yield range(first, min(first + rows, height))
