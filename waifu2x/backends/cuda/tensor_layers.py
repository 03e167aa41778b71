"""The layers of the road over matrix units: what they compute, their weights and their launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from waifu2x.backends.cuda.runtime import CudaKernel, CudaRuntime, Launch, pack_arguments
from waifu2x.backends.cuda.tensor_pack import (
    group_of,
    pack_bias,
    pack_first,
    pack_last,
    pack_middle,
    padded,
)
from waifu2x.backends.cuda.tensor_shape import (
    COLUMNS,
    MOST_ROWS,
    Layer,
    Shape,
    candidates,
    macros,
    ranked,
)
from waifu2x.backends.cuda.units import Units, is_old
from waifu2x.backends.gpu.road import DevicePixels, DeviceWindow, whole
from waifu2x.backends.gpu.runtime import Argument, Buffer, Macros
from waifu2x.model import Convolution

Chooser = Callable[[Sequence[Shape], str], Shape]
"""A `tuning.Choose` for one layer."""

VALUE_BYTES = 2
_PITCH_UNIT = 8
"""Columns of a period of the order of pieces: rows begin alike."""
_PIECE_BYTES = 16
_FIRST_ROWS = 8
_FIRST_THREADS = 256
_PIXEL_UNITS = {8: 256 / 255, 16: 65536 / 65535, 32: 1.0}
"""What a pixel value of 1 is worth: integers come as fractions of a power of two."""


class Cells(NamedTuple):
    """See `Cells` in `kernels/tensor.cuh`."""

    rows: int
    columns: int
    across: int
    pictures: int

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Of a kernel."""
        return tuple(map(np.int32, self))


class Work(NamedTuple):
    """What a layer computes."""

    rows: int
    columns: int
    cells: Cells
    picture_rows: int
    """Of each picture of the last layer's result."""
    picture_columns: int

    @property
    def stack(self) -> int:
        """The macro STACK."""
        return int(self.cells.pictures > 1)


def allocated(works: Sequence[Work]) -> tuple[int, int]:
    """Rows and pitch of maps: with what whole tiles write, and read beyond."""
    pitch = whole(works[0].columns, COLUMNS) + COLUMNS + _PITCH_UNIT
    return works[0].rows + 2 * MOST_ROWS, pitch


class Map:
    """A feature map in a buffer."""

    def __init__(self, buffer: Buffer, rows: int, pitch: int, planes: int) -> None:
        self.buffer = buffer
        pieces = rows * pitch * group_of(planes) * VALUE_BYTES // _PIECE_BYTES
        self.arguments = (np.int32(pitch), np.int32(pieces))


class _Layer:
    """A layer's weights and bias on the device, and the kernels that were built for it."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime
        self.kernels: dict[object, CudaKernel] = {}
        """By what they are compiled from."""
        self._buffers: dict[object, Buffer] = {}

    def _built(self, stem: str, macros: Macros, threads: int, shared: int) -> CudaKernel:
        key = (stem, *macros.items())
        if key not in self.kernels:
            program = self._runtime.build(stem, macros)
            self.kernels[key] = program.kernel(stem, threads, shared)
        return self.kernels[key]

    def _uploaded(self, key: object, make: Callable[[], np.ndarray]) -> Buffer:
        if key not in self._buffers:
            array = np.ascontiguousarray(make())
            buffer = self._runtime.allocate(array.nbytes)
            self._runtime.upload(buffer, array)
            self._buffers[key] = buffer
        return self._buffers[key]

    def close(self) -> None:
        """Frees them."""
        for buffer in self._buffers.values():
            buffer.release()


class FirstLayer(_Layer):
    """The first layer, by `kernels/tensor_first.cu`."""

    def __init__(self, runtime: CudaRuntime, layer: Convolution, terms: int) -> None:
        super().__init__(runtime)
        self._layer = layer
        self._planes = padded(layer.out_planes)
        self._macros: Macros = {
            "PLANES": layer.in_planes,
            "OUT_PLANES": self._planes,
            "GROUP": group_of(self._planes),
            "TERMS": terms,
            "OLD": int(is_old(runtime.capability)),
        }

    def source(self, work: Work, pixels: np.dtype[Any]) -> tuple[str, Macros]:
        """What its kernel for some work on such pixels is compiled from."""
        more = {"PIXEL": 8 * pixels.itemsize, "STACK": work.stack}
        return "tensor_first", {**self._macros, **more}

    def launch(
        self,
        source: DeviceWindow,
        scale: int,
        corner: tuple[int, int],
        work: Work,
        target: Map,
    ) -> Launch:
        """Some work; the first pixel read is `corner`."""
        kernel = self._built(*self.source(work, source.pixels.dtype), _FIRST_THREADS, 0)
        bits = 8 * source.pixels.dtype.itemsize
        weights = self._uploaded(bits, lambda: pack_first(self._layer, _PIXEL_UNITS[bits]))
        bias = self._uploaded("bias", lambda: pack_bias(self._layer, self._planes))
        pixels = source.pixels
        geometry = (source.top, source.left, *pixels.shape[:2], source.height, source.width, scale)
        arguments: tuple[Argument, ...] = (
            pixels.buffer,
            weights,
            bias,
            target.buffer,
            *map(np.int32, geometry),
            *target.arguments,
            *map(np.int32, corner),
            np.float32(self._layer.slope),
            *work.cells.arguments,
        )
        blocks = (-(-work.columns // COLUMNS), -(-work.rows // _FIRST_ROWS), self._planes // 32)
        return Launch(kernel, blocks, pack_arguments(arguments))


class ProductLayer(_Layer):
    """Any other layer."""

    def __init__(
        self, runtime: CudaRuntime, layer: Convolution, units: Units, job: Layer, choose: Chooser
    ) -> None:
        super().__init__(runtime)
        self._layer = layer
        self._job = job
        self._choose = choose
        self._candidates = candidates(job, units, runtime.capability, runtime.shared_bytes)

    def shape(self, work: Work) -> Shape:
        """How some work is cut."""
        best_first, size_class = ranked(
            self._candidates, work.rows, work.columns, self._runtime.limits.compute_units
        )
        return self._choose(best_first, f"{self._job.terms} {size_class}")

    def source(self, shape: Shape, work: Work, pixels: np.dtype[Any] | None) -> tuple[str, Macros]:
        """What its kernel for some work is compiled from; without pixels it makes a map."""
        chosen = {**macros(self._job, shape), "STACK": work.stack}
        if pixels is not None:
            chosen["PIXEL"] = 8 * pixels.itemsize
        return shape.stem, chosen

    def to_map(self, source: Map, target: Map, work: Work) -> Launch:
        """Some work on maps."""
        return self._launch(source, work, target.buffer, target.arguments, None)

    def to_picture(
        self, source: Map, work: Work, target: DevicePixels, start: tuple[int, int]
    ) -> Launch:
        """Some work whose first result is the pixel at `start`."""
        pitch = target.shape[1]
        place = (np.int32(pitch), np.int32(start[0] * pitch + start[1]))
        return self._launch(source, work, target.buffer, place, target.dtype)

    def _launch(
        self,
        source: Map,
        work: Work,
        target: Buffer,
        place: tuple[Argument, ...],
        pixels: np.dtype[Any] | None,
    ) -> Launch:
        layer, processors = self._job, self._runtime.limits.compute_units
        shape = self.shape(work)
        built_from = self.source(shape, work, pixels)
        kernel = self._built(*built_from, shape.threads, shape.shared(layer))
        width = shape.width(layer)
        deep = 1 if layer.last else layer.outputs // width
        across = -(-work.columns // (COLUMNS - 2 if layer.last else COLUMNS))
        tiles = across * -(-work.rows // shape.rows)
        pack = pack_last if layer.last else pack_middle
        weights = self._uploaded(width, lambda: pack(self._layer, width, layer.terms))
        planes = max(layer.outputs, width)
        arguments: tuple[Argument, ...] = (
            source.buffer,
            weights,
            self._uploaded("bias", lambda: pack_bias(self._layer, planes)),
            target,
            *source.arguments,
            *place,
            *map(np.int32, (across, tiles, deep)),
            np.float32(self._layer.slope),
            *map(np.int32, (work.picture_rows, work.picture_columns)),
            *work.cells.arguments,
        )
        blocks = (shape.grid(tiles, deep, processors), 1, 1)
        return Launch(kernel, blocks, pack_arguments(arguments))
