"""YUV planes on the device, and their conversion by `kernels/planar.cl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.maps import C_TYPES
from waifu2x.backends.gpu.memory_pool import ScopedAllocation
from waifu2x.backends.gpu.runtime import Buffer, Kernel, Macros, Runtime
from waifu2x.imaging.planar import PlanarPicture, PlaneFormat

_GROUP = 128
_MOST_GAPS = 2
"""Times the bytes of a plane that may be sent with what lies between its rows."""


class DevicePlanes(NamedTuple):
    """The planes of a picture in the memory of a device."""

    format: PlaneFormat
    size: tuple[int, int]
    buffers: tuple[Buffer, ...]
    pitches: tuple[int, ...]
    """Samples from row to row of each."""


class PlaneKernels:
    """The kernels, built when they are first asked for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._group = 1 if runtime.limits.is_cpu else runtime.limits.group(_GROUP)
        self._kernels: dict[object, Kernel] = {}

    def to_pixels(
        self, planes: DevicePlanes, target: DevicePixels, rows: range, offset: int
    ) -> None:
        """Queues that some rows of a picture are written as RGB, its first one at row `offset` of
        all rows of the target."""
        kernel = self._kernel("from_planes", planes.format)
        groups = (len(rows), 1, 1)
        places = (*planes.pitches, *planes.size, rows.start, offset)
        factors = planes.format.to_rgb()
        self._runtime.launch(kernel, groups, *planes.buffers, target.buffer, *places, *factors)

    def to_planes(
        self, source: DevicePixels, planes: DevicePlanes, cells: range, offset: int
    ) -> None:
        """Queues that some rows of cells, of what shares a sample of chroma, are written from RGB,
        whose first row is row `offset` of all rows of the source."""
        kernel = self._kernel("to_planes", planes.format)
        groups = (len(cells), 1, 1)
        places = (*planes.size, cells.start, offset)
        own = planes.format.from_rgb()
        factors = (*own.luma, own.luma_zero, *own.u, *own.v, own.chroma_zero)
        self._runtime.launch(kernel, groups, source.buffer, *planes.buffers, *places, *factors)

    def _kernel(self, name: str, plane_format: PlaneFormat) -> Kernel:
        rows, columns = plane_format.axes
        key = name, plane_format.bits, rows, columns
        if key not in self._kernels:
            macros: Macros = {
                "GROUP": self._group,
                "SAMPLE": C_TYPES[plane_format.dtype.name],
                "PEAK": (1 << plane_format.bits) - 1,
                "ROW_STEP": rows.step,
                "ROW_MIDWAY": int(rows.is_midway),
                "COLUMN_STEP": columns.step,
                "COLUMN_MIDWAY": int(columns.is_midway),
            }
            self._kernels[key] = self._runtime.build("planar", macros).kernel(name, self._group)
        return self._kernels[key]


def source_planes(
    picture: PlanarPicture, taken: ScopedAllocation
) -> tuple[DevicePlanes, list[NDArray[Any]]]:
    """Memory for the planes of a picture, and what is to be sent into each. May raise
    OutOfMemoryError."""
    spans, pitches = zip(*map(_span, picture.planes), strict=True)
    buffers = tuple(taken.buffer(span.nbytes) for span in spans)
    return DevicePlanes(picture.format, picture.size, buffers, pitches), list(spans)


def result_planes(picture: PlanarPicture, taken: ScopedAllocation) -> DevicePlanes:
    """Memory for the planes of a result, without gaps. May raise OutOfMemoryError."""
    buffers = tuple(taken.buffer(plane.nbytes) for plane in picture.planes)
    pitches = tuple(plane.shape[1] for plane in picture.planes)
    return DevicePlanes(picture.format, picture.size, buffers, pitches)


def plane_bytes(pictures: Sequence[PlanarPicture]) -> int:
    """Bytes on the device, at most."""
    return sum(_MOST_GAPS * plane.nbytes for one in pictures for plane in one.planes)


def _span(plane: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The memory of a plane from its first sample to its last, and the samples from row to row.

    What lies between rows goes with them: that is a few bytes, where a copy would take a while.
    """
    rows, columns = plane.shape
    pitch = plane.strides[0] // plane.itemsize if rows > 1 else columns
    samples = (rows - 1) * pitch + columns
    if not columns <= pitch or samples > _MOST_GAPS * plane.size:
        return np.ascontiguousarray(plane).reshape(-1), columns
    return as_strided(plane, (samples,), (plane.itemsize,), writeable=False), pitch
