"""Planes of films on the device, and their conversion by `kernels/planar.cl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.gpu.device.launch import packed, plain
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, Macros, ReadyLaunch, Runtime
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.fp32.maps import C_TYPES
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat, joined

_GROUP = 128
_EACH = 2
"""Pixels, or cells, of a work-item on a GPU."""


class DevicePlanes(NamedTuple):
    """The planes of pictures in the memory of a device, one behind the other without gaps."""

    format: PlaneFormat
    size: tuple[int, int]
    buffer: Buffer


class PlaneKernels:
    """The kernels, built when they are first asked for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._group = 1 if runtime.limits.is_cpu else runtime.limits.group(_GROUP)
        self._kernels: dict[object, Kernel] = {}

    def to_pixels(
        self, planes: DevicePlanes, target: DevicePixels, rows: range, offset: int
    ) -> ReadyLaunch:
        """Writes some rows of each picture of a stack as RGB: row 0 of the first one would be row
        `offset` of all rows of the target. May raise BackendError."""
        kernel = self._kernel("from_planes", planes.format)
        across = self._across(planes.size[1])
        places = (*planes.size, rows.start, offset, across)
        factors = planes.format.to_rgb()
        arguments = plain(planes.buffer, target.buffer, *places, *factors)
        groups = len(rows), across, target.shape[0]
        return ReadyLaunch(kernel, groups, packed(self._runtime, arguments))

    def to_planes(
        self, source: DevicePixels, planes: DevicePlanes, cells: range, offset: int
    ) -> ReadyLaunch:
        """Writes some rows of cells, of what shares a sample of chroma, of each picture of a stack,
        from RGB: row 0 of the first one would be row `offset` of all rows of the source. May raise
        BackendError."""
        kernel = self._kernel("to_planes", planes.format)
        across = self._across(planes.format.axes[1].samples(planes.size[1]))
        places = (*planes.size, cells.start, offset, across)
        own = planes.format.from_rgb()
        factors = (*own.luma, own.luma_zero, *own.u, *own.v, own.chroma_zero)
        arguments = plain(source.buffer, planes.buffer, *places, *factors)
        groups = len(cells), across, source.shape[0]
        return ReadyLaunch(kernel, groups, packed(self._runtime, arguments))

    def _across(self, columns: int) -> int:
        """Groups for a row."""
        return 1 if self._runtime.limits.is_cpu else -(-columns // (_EACH * self._group))

    def _kernel(self, name: str, plane_format: PlaneFormat) -> Kernel:
        rows, columns = plane_format.axes
        is_grey, is_rgb = plane_format.is_grey, plane_format.is_rgb
        key = name, plane_format.bits, is_grey, is_rgb, rows, columns
        if key not in self._kernels:
            macros: Macros = {
                "GROUP": self._group,
                "SAMPLE": C_TYPES[plane_format.dtype.name],
                "PEAK": (1 << plane_format.bits) - 1,
                "IS_GREY": int(is_grey),
                "IS_RGB": int(is_rgb),
                "ROW_STEP": rows.step,
                "ROW_MIDWAY": int(rows.is_midway),
                "COLUMN_STEP": columns.step,
                "COLUMN_MIDWAY": int(columns.is_midway),
            }
            self._kernels[key] = self._runtime.build("planar", macros).kernel(name, self._group)
        return self._kernels[key]


def sent_planes(runtime: Runtime, pictures: Sequence[PlanarPicture]) -> list[NDArray[Any]]:
    """All samples of pictures as DevicePlanes has them, in few C-contiguous arrays: where they lie,
    but for planes whose rows lie apart."""
    planes = [plane for one in pictures for plane in one.planes]
    return joined(
        plane if plane.flags.c_contiguous else _copied(runtime, plane) for plane in planes
    )


def _copied(runtime: Runtime, plane: NDArray[Any]) -> NDArray[Any]:
    copied = runtime.host_array(plane.shape, plane.dtype)
    np.copyto(copied, plane)
    return copied


class FetchedPlanes:
    """The planes of results on their way from the device."""

    def __init__(self, runtime: Runtime, pictures: Sequence[PlanarPicture]) -> None:
        self._copied: list[tuple[NDArray[Any], NDArray[Any]]] = []
        """Planes whose rows lie apart, and where they are fetched to."""
        planes = []
        for plane in (plane for one in pictures for plane in one.planes):
            if plane.flags.c_contiguous:
                planes.append(plane)
            else:
                planes.append(runtime.host_array(plane.shape, plane.dtype))
                self._copied.append((plane, planes[-1]))
        self.arrays = joined(planes)
        """Where the samples of all pictures are fetched to, as DevicePlanes has them."""

    def finish(self) -> None:
        """Puts what was fetched where it belongs."""
        for plane, copied in self._copied:
            np.copyto(plane, copied)
