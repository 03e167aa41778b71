"""The road over matrix units: feature maps of 16-bit terms, see `kernels/tensor.cuh`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from waifu2x.backends.chain import Window
from waifu2x.backends.cuda.runtime import CudaRuntime, Launch, Plan, address_of
from waifu2x.backends.cuda.tensor_layers import (
    VALUE_BYTES,
    Cells,
    FirstLayer,
    Map,
    ProductLayer,
    Work,
    allocated,
)
from waifu2x.backends.cuda.tensor_pack import padded
from waifu2x.backends.cuda.tensor_peak import product_peak
from waifu2x.backends.cuda.tensor_shape import layer_of
from waifu2x.backends.cuda.units import Units
from waifu2x.backends.gpu.fp32 import Fp32Road
from waifu2x.backends.gpu.road import DevicePixels, DeviceWindow, Road, Stack
from waifu2x.backends.gpu.runtime import Buffer, Kernel
from waifu2x.backends.gpu.tuning import Choose, Kept
from waifu2x.model import Model
from waifu2x.tiling import Box

_FIRST_PLANES = 4
_LAST_PLANES = 5
"""The most that the first and the last layer's kernels take."""
_PLANS = 64
"""Plans that are kept: pictures of a folder have few sizes, and a large one few tiles."""


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
        self._scale = model.scale
        self._terms = terms
        self._units = units
        first, *rest = model.convolutions
        self._planes = [padded(layer.out_planes) for layer in model.convolutions[:-1]]
        self._runtime = runtime
        self._plans: dict[object, Plan] = {}
        self._first = FirstLayer(runtime, first, terms)
        self._rest = [
            ProductLayer(
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

    def _alone(self, tile: Box) -> list[Work]:
        """What each layer computes for a tile of one picture."""
        lost = range(2 * len(self._rest), -1, -2)
        alone = Cells(0, 0, 0, 1)
        return [
            Work(tile.height + more, tile.width + more, alone, tile.height, tile.width)
            for more in lost
        ]

    def _side_by_side(self, stack: Stack) -> list[Work]:
        """What each layer computes for pictures in a square of cells."""
        rows, columns = stack.height * self._scale, stack.width * self._scale
        across = math.isqrt(stack.count - 1) + 1
        down = -(-stack.count // across)
        works = []
        for margin in range(2 * len(self._rest) + 2, 0, -2):
            cells = Cells(rows + margin, columns + margin, across, stack.count)
            size = (down * cells.rows - 2, across * cells.columns - 2)
            works.append(Work(*size, cells, rows, columns))
        return works

    def _bytes(self, works: Sequence[Work]) -> Sequence[int]:
        """Of each scratch buffer."""
        rows, pitch = allocated(works)
        pixels = rows * pitch * VALUE_BYTES * self._terms
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
        works: Sequence[Work],
        tile: Box,
        target: DeviceWindow,
        scratch: Sequence[Buffer],
    ) -> list[Launch]:
        """The launches of some work, whose first result is that of `tile`."""
        self._prepare(works, source.pixels.dtype, target.pixels.dtype)
        rows, pitch = allocated(works)
        reach = len(works)
        corner = (tile.top - reach, tile.left - reach)
        before = Map(scratch[0], rows, pitch, self._planes[0])
        plan = [self._first.launch(source, self._scale, corner, works[0], before)]
        for index, layer in enumerate(self._rest[:-1]):
            after = Map(scratch[1 - index % 2], rows, pitch, self._planes[index + 1])
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

    def _prepare(self, works: Sequence[Work], source: np.dtype[Any], target: np.dtype[Any]) -> None:
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
