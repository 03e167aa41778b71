"""Converts planes of film frames to RGB and back on the device, by `kernels/planar.cl`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.launch import (
    Arguments,
    Groups,
    KernelOwner,
    KernelSpec,
    packed,
    plain,
)
from waifu2x.backends.gpu.device.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.device.runtime import Buffer, Macros, ReadyLaunch, Runtime
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.fp32.maps import C_TYPES
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat, joined
from waifu2x.networks.model import Model

_GROUP = 128
_EACH = 2
"""The pixels, or cells, of a work-item on a GPU."""
_PIXEL_BYTES = 12
_BAND_BYTES = 64 << 20
_HALO = 1
"""Rows beyond a band that its chroma depends on."""


class DevicePlanes(NamedTuple):
    """Planes of pictures in device memory, one after the other without gaps."""

    format: PlaneFormat
    size: tuple[int, int]
    buffer: Buffer


class PlaneKernels(KernelOwner):
    """Makes launches of the kernels that convert planes."""

    def to_pixels(
        self, planes: DevicePlanes, target: DevicePixels, rows: range, offset: int
    ) -> ReadyLaunch:
        """Returns a launch that writes `rows` of each picture of a stack as RGB; row 0 of the first
        picture is row `offset` of the target's rows. May raise BackendError."""
        across = self._across(planes.size[1])
        places = (*planes.size, rows.start, offset, across, 0, 0, *planes.size)
        arguments = plain(planes.buffer, target.buffer, *places, *planes.format.to_rgb())
        groups = len(rows), across, target.shape[0]
        return self._launch("from_planes", planes.format, groups, arguments)

    def to_windows(self, planes: DevicePlanes, target: DevicePixels, model: Model) -> ReadyLaunch:
        """Returns a launch that writes windows of a model's frames as RGB, side by side and with
        the mirrored pixels around them. May raise BackendError."""
        count, rows, columns, _ = target.shape
        across = self._across(columns)
        top, left = _before(model, planes.size)
        places = (*planes.size, 0, 0, across, top, left, rows, columns)
        arguments = plain(planes.buffer, target.buffer, *places, *planes.format.to_rgb())
        groups = rows, across, count * model.frames
        return self._launch("from_planes", planes.format, groups, arguments, model.frames)

    def to_planes(
        self,
        source: DevicePixels,
        planes: DevicePlanes,
        cells: range,
        offset: int,
        model: Model | None = None,
    ) -> ReadyLaunch:
        """Returns a launch that makes rows `cells` of cells (the pixels that share a chroma sample)
        of each picture of a stack from RGB; row 0 of the first picture is row `offset` of the
        source's rows. With a `model`, the source has what it makes of mirrored pixels around. May
        raise BackendError."""
        across = self._across(planes.format.axes[1].samples(planes.size[1]))
        left, rows, columns = 0, *planes.size
        if model is not None:
            size = planes.size[0] // model.scale, planes.size[1] // model.scale
            top, left = (model.scale * pixels for pixels in _before(model, size))
            _, rows, columns, _ = source.shape
            offset += top
        places = (*planes.size, cells.start, offset, across, left, rows, columns)
        own = planes.format.from_rgb()
        factors = (*own.luma, own.luma_zero, *own.u, *own.v, own.chroma_zero)
        arguments = plain(source.buffer, planes.buffer, *places, *factors)
        groups = len(cells), across, source.shape[0]
        return self._launch("to_planes", planes.format, groups, arguments)

    def _across(self, columns: int) -> int:
        """Returns the number of groups for a row."""
        limits = self.runtime.limits
        return 1 if limits.is_cpu else -(-columns // (_EACH * limits.group(_GROUP)))

    def _launch(
        self,
        name: str,
        plane_format: PlaneFormat,
        groups: Groups,
        arguments: Arguments,
        frames: int = 1,
    ) -> ReadyLaunch:
        group = self.runtime.limits.group_on_gpu(_GROUP)
        rows, columns = plane_format.axes
        macros: Macros = {
            "GROUP": group,
            "FRAMES": frames,
            "SAMPLE": C_TYPES[plane_format.dtype.name],
            "PEAK": (1 << plane_format.bits) - 1,
            "IS_GREY": int(plane_format.is_grey),
            "IS_RGB": int(plane_format.is_rgb),
            "ROW_STEP": rows.step,
            "ROW_MIDWAY": int(rows.is_midway),
            "COLUMN_STEP": columns.step,
            "COLUMN_MIDWAY": int(columns.is_midway),
        }
        kernel = self.kernel(KernelSpec("planar", macros, group, name))
        return ReadyLaunch(kernel, groups, packed(self.runtime, arguments))


def _before(model: Model, size: tuple[int, int]) -> tuple[int, int]:
    """Returns the mirrored rows above a picture and columns left of it."""
    if model.surround is None:
        return 0, 0
    return model.surround.before(size[0]), model.surround.before(size[1])


def sent_planes(runtime: Runtime, pictures: Sequence[PlanarPicture]) -> list[NDArray[Any]]:
    """Returns all samples of pictures in the order of DevicePlanes, in few C-contiguous arrays.
    Copies planes with padded rows."""
    planes = [plane for one in pictures for plane in one.planes]
    return joined(
        plane if plane.flags.c_contiguous else _copied(runtime, plane) for plane in planes
    )


def _copied(runtime: Runtime, plane: NDArray[Any]) -> NDArray[Any]:
    copied = runtime.host_array(plane.shape, plane.dtype)
    np.copyto(copied, plane)
    return copied


class FetchedPlanes:
    """Holds the memory into which planes of results are fetched from the device."""

    def __init__(self, runtime: Runtime, pictures: Sequence[PlanarPicture]) -> None:
        self._copied: list[tuple[NDArray[Any], NDArray[Any]]] = []
        """Planes with padded rows, and the arrays that they are fetched into first."""
        planes = []
        for plane in (plane for one in pictures for plane in one.planes):
            if plane.flags.c_contiguous:
                planes.append(plane)
            else:
                planes.append(runtime.host_array(plane.shape, plane.dtype))
                self._copied.append((plane, planes[-1]))
        self.arrays = joined(planes)
        """The arrays that samples are fetched into, in the order of DevicePlanes."""

    def finish(self) -> None:
        """Copies fetched samples into the planes with padded rows."""
        for plane, copied in self._copied:
            np.copyto(plane, copied)


class BandConversion:
    """Converts pixels in host memory on the device, one band of rows at a time, in buffers of
    `taken`. Nothing else may run meanwhile. May raise OutOfMemoryError."""

    def __init__(self, runtime: Runtime, kernels: PlaneKernels, taken: ScopedAllocation) -> None:
        self._runtime, self._kernels, self._taken = runtime, kernels, taken

    def pixels(self, pictures: Sequence[PlanarPicture]) -> NDArray[np.float32]:
        """Returns the RGB (N, H, W, 3) of pictures."""
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
    """Yields the rows of each band; every band but the last has a multiple of `step` rows."""
    rows = max(1, _BAND_BYTES // (_PIXEL_BYTES * width * step)) * step
    for first in range(0, height, rows):
        yield range(first, min(first + rows, height))
