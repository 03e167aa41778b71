"""The road over matrix units: feature maps of 16-bit terms, see `kernels/tensor.cuh`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from waifu2x.backends.chain import Window
from waifu2x.backends.cuda.runtime import (
    CudaKernel,
    CudaRuntime,
    Launch,
    Plan,
    address_of,
    pack_arguments,
)
from waifu2x.backends.cuda.tensor_pack import (
    group_of,
    pack_bias,
    pack_first,
    pack_last,
    pack_middle,
    padded,
)
from waifu2x.backends.cuda.tensor_peak import product_peak
from waifu2x.backends.cuda.tensor_shape import (
    COLUMNS,
    MOST_ROWS,
    Layer,
    Shape,
    candidates,
    layer_of,
    macros,
    ranked,
)
from waifu2x.backends.cuda.units import Units, is_old
from waifu2x.backends.gpu.fp32 import Fp32Road
from waifu2x.backends.gpu.road import DevicePixels, DeviceWindow, Road, Stack, whole
from waifu2x.backends.gpu.runtime import Argument, Buffer, Kernel, Macros
from waifu2x.backends.gpu.tuning import Choose, Kept
from waifu2x.model import Convolution, Model
from waifu2x.tiling import Box

Chooser = Callable[[Sequence[Shape], str], Shape]
"""A `tuning.Choose` for one layer."""

_FIRST_PLANES = 4
_LAST_PLANES = 5
"""The most that the first and the last layer's kernels take."""
_PLANS = 64
"""Plans that are kept: pictures of a folder have few sizes, and a large one few tiles."""
_PITCH_UNIT = 8
"""Columns of a period of the order of pieces: rows begin alike."""
_VALUE_BYTES = 2
_PIECE_BYTES = 16
_FIRST_ROWS = 8
_FIRST_THREADS = 256
_PIXEL_UNITS = {8: 256 / 255, 16: 65536 / 65535, 32: 1.0}
"""What a pixel value of 1 is worth: integers come as fractions of a power of two."""


def road_makers(
    units: Units,
) -> tuple[Callable[..., Road], Callable[..., Road]]:
    """What makes the roads of fp16 and fp32."""

    def make(terms: int) -> Callable[..., Road]:
        def road(runtime: CudaRuntime, model: Model, choose: Choose | None = None) -> Road:
            if _suits(model):
                return TensorRoad(runtime, model, units, terms, choose)
            return Fp32Road(runtime, model, choose)

        return road

    return make(1), make(2)


def _suits(model: Model) -> bool:
    """Whether it has the few planes at its ends that pictures have."""
    return (
        len(model.convolutions) > 1
        and model.in_planes <= _FIRST_PLANES
        and model.out_planes <= _LAST_PLANES
    )


class TensorRoad:
    """See Road. Maps go from one of two scratch buffers to the other, all with the same pitch."""

    def __init__(
        self,
        runtime: CudaRuntime,
        model: Model,
        units: Units,
        terms: int,
        choose: Choose | None = None,
    ) -> None:
        """Raises BackendError for kernels that cannot be built, OutOfMemoryError."""
        self.precision = "fp32" if terms == 2 else "fp16"
        self._scale = model.scale
        self._terms = terms
        self._units = units
        first, *rest = model.convolutions
        self._planes = [padded(layer.out_planes) for layer in model.convolutions[:-1]]
        self._runtime = runtime
        self._plans: dict[object, Plan] = {}
        self._first = _First(runtime, first, terms)
        self._rest = [
            _Product(
                runtime,
                layer,
                units,
                layer_of(layer, terms, last=index == len(rest)),
                partial(choose or Kept(runtime.device, model), index),
            )
            for index, layer in enumerate(rest, start=1)
        ]

    def reads(self, tile: Box) -> Box:
        """See Road."""
        reach = len(self._rest) + 1
        top, left = (tile.top - reach) // self._scale, (tile.left - reach) // self._scale
        bottom = -(-(tile.bottom + reach) // self._scale)
        right = -(-(tile.right + reach) // self._scale)
        return Box(top, left, bottom - top, right - left)

    def scratch(self, tile: Box) -> Sequence[int]:
        """See Road."""
        return self._bytes(self._alone(tile))

    def run(
        self, source: DeviceWindow, tile: Box, target: DeviceWindow, scratch: Sequence[Buffer]
    ) -> None:
        """See Road."""
        key = (*_where(source), tile, *_where(target), *map(address_of, scratch))
        self._queue(key, lambda: self._plan(source, self._alone(tile), tile, target, scratch))

    def stack_scratch(self, stack: Stack) -> Sequence[int]:
        """See StackingRoad."""
        return self._bytes(self._side_by_side(stack))

    def run_stack(
        self, source: DevicePixels, target: DevicePixels, stack: Stack, scratch: Sequence[Buffer]
    ) -> None:
        """See StackingRoad."""
        shape = (stack.height, stack.width, source.shape[2])
        one = Window(DevicePixels(source.buffer, source.dtype, shape), 0, 0, *shape[:2])
        whole_target = Window(target, 0, 0, *target.shape[:2])
        work, corner = self._side_by_side(stack), Box(0, 0, 1, 1)
        key = (*_where(one), *_where(whole_target), *map(address_of, scratch), stack)
        self._queue(key, lambda: self._plan(one, work, corner, whole_target, scratch))

    def _alone(self, tile: Box) -> list[_Work]:
        """What each layer computes for a tile of one picture."""
        lost = range(2 * len(self._rest), -1, -2)
        alone = _Cells(0, 0, 0, 1)
        return [
            _Work(tile.height + more, tile.width + more, alone, tile.height, tile.width)
            for more in lost
        ]

    def _side_by_side(self, stack: Stack) -> list[_Work]:
        """What each layer computes for pictures in a square of cells."""
        rows, columns = stack.height * self._scale, stack.width * self._scale
        across = math.isqrt(stack.count - 1) + 1
        down = -(-stack.count // across)
        works = []
        for margin in range(2 * len(self._rest) + 2, 0, -2):
            cells = _Cells(rows + margin, columns + margin, across, stack.count)
            size = (down * cells.rows - 2, across * cells.columns - 2)
            works.append(_Work(*size, cells, rows, columns))
        return works

    def _bytes(self, works: Sequence[_Work]) -> Sequence[int]:
        """Of each scratch buffer."""
        rows, pitch = _allocated(works)
        pixels = rows * pitch * _VALUE_BYTES * self._terms
        return [pixels * max(self._planes[index::2], default=0) for index in range(2)]

    def _queue(self, key: object, plan: Callable[[], list[Launch]]) -> None:
        """Queues a plan, kept: to make one takes longer than a small picture takes the device."""
        if key not in self._plans:
            while len(self._plans) >= _PLANS:
                self._runtime.forget(self._plans.pop(next(iter(self._plans))))
            self._plans[key] = Plan(plan())
        self._runtime.run(self._plans[key])

    def _plan(
        self,
        source: DeviceWindow,
        works: Sequence[_Work],
        tile: Box,
        target: DeviceWindow,
        scratch: Sequence[Buffer],
    ) -> list[Launch]:
        """The launches of some work, whose first result is that of `tile`."""
        self._prepare(works, source.pixels.dtype, target.pixels.dtype)
        rows, pitch = _allocated(works)
        reach = len(works)
        corner = (tile.top - reach, tile.left - reach)
        before = _Map(scratch[0], rows, pitch, self._planes[0])
        plan = [self._first.launch(source, self._scale, corner, works[0], before)]
        for index, layer in enumerate(self._rest[:-1]):
            after = _Map(scratch[1 - index % 2], rows, pitch, self._planes[index + 1])
            plan.append(layer.to_map(before, after, works[index + 1]))
            before = after
        start = (tile.top - target.top, tile.left - target.left)
        return [*plan, self._rest[-1].to_picture(before, works[-1], target.pixels, start)]

    def layer(self, kernel: Kernel) -> int:
        """See Road."""
        layers = [self._first, *self._rest]
        return next(i for i, layer in enumerate(layers) if kernel in layer.kernels.values())

    def peak(self) -> float:
        """See Road. Two terms take three products."""
        return product_peak(self._runtime, self._units) / (3 if self._terms == 2 else 1)

    def close(self) -> None:
        """See Road."""
        while self._plans:
            self._runtime.forget(self._plans.popitem()[1])
        for layer in (self._first, *self._rest):
            layer.close()

    def _prepare(
        self, works: Sequence[_Work], source: np.dtype[Any], target: np.dtype[Any]
    ) -> None:
        """Has all kernels that the work needs compiled at once."""
        wanted = [self._first.source(works[0], source)]
        for layer, work in zip(self._rest, works[1:], strict=True):
            pixels = target if layer is self._rest[-1] else None
            wanted.append(layer.source(layer.shape(work), work, pixels))
        self._runtime.prepare(wanted)


def _where(window: DeviceWindow) -> tuple[object, ...]:
    """What tells windows apart: buffers come and go, at the same few addresses."""
    pixels = window.pixels
    place = (window.top, window.left, window.height, window.width)
    return (address_of(pixels.buffer), pixels.dtype, pixels.shape, *place)


class _Cells(NamedTuple):
    """See `Cells` in `kernels/tensor.cuh`."""

    rows: int
    columns: int
    across: int
    pictures: int

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Of a kernel."""
        return tuple(map(np.int32, self))


class _Work(NamedTuple):
    """What a layer computes."""

    rows: int
    columns: int
    cells: _Cells
    picture_rows: int
    """Of each picture of the last layer's result."""
    picture_columns: int

    @property
    def stack(self) -> int:
        """The macro STACK."""
        return int(self.cells.pictures > 1)


def _allocated(works: Sequence[_Work]) -> tuple[int, int]:
    """Rows and pitch of maps: with what whole tiles write, and read beyond."""
    pitch = whole(works[0].columns, COLUMNS) + COLUMNS + _PITCH_UNIT
    return works[0].rows + 2 * MOST_ROWS, pitch


class _Map:
    """A feature map in a buffer."""

    def __init__(self, buffer: Buffer, rows: int, pitch: int, planes: int) -> None:
        self.buffer = buffer
        pieces = rows * pitch * group_of(planes) * _VALUE_BYTES // _PIECE_BYTES
        self.arguments = (np.int32(pitch), np.int32(pieces))


class _Weights:
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


class _First(_Weights):
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

    def source(self, work: _Work, pixels: np.dtype[Any]) -> tuple[str, Macros]:
        """What its kernel for some work on such pixels is compiled from."""
        more = {"PIXEL": 8 * pixels.itemsize, "STACK": work.stack}
        return "tensor_first", {**self._macros, **more}

    def launch(
        self,
        source: DeviceWindow,
        scale: int,
        corner: tuple[int, int],
        work: _Work,
        target: _Map,
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


class _Product(_Weights):
    """Any other layer."""

    def __init__(
        self, runtime: CudaRuntime, layer: Convolution, units: Units, job: Layer, choose: Chooser
    ) -> None:
        super().__init__(runtime)
        self._layer = layer
        self._job = job
        self._choose = choose
        self._candidates = candidates(job, units, runtime.capability, runtime.shared_bytes)

    def shape(self, work: _Work) -> Shape:
        """How some work is cut."""
        best_first, size_class = ranked(
            self._candidates, work.rows, work.columns, self._runtime.limits.compute_units
        )
        return self._choose(best_first, f"{self._job.terms} {size_class}")

    def source(self, shape: Shape, work: _Work, pixels: np.dtype[Any] | None) -> tuple[str, Macros]:
        """What its kernel for some work is compiled from; without pixels it makes a map."""
        chosen = {**macros(self._job, shape), "STACK": work.stack}
        if pixels is not None:
            chosen["PIXEL"] = 8 * pixels.itemsize
        return shape.stem, chosen

    def to_map(self, source: _Map, target: _Map, work: _Work) -> Launch:
        """Some work on maps."""
        return self._launch(source, work, target.buffer, target.arguments, None)

    def to_picture(
        self, source: _Map, work: _Work, target: DevicePixels, start: tuple[int, int]
    ) -> Launch:
        """Some work whose first result is the pixel at `start`."""
        pitch = target.shape[1]
        place = (np.int32(pitch), np.int32(start[0] * pitch + start[1]))
        return self._launch(source, work, target.buffer, place, target.dtype)

    def _launch(
        self,
        source: _Map,
        work: _Work,
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
