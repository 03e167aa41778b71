"""Networks on a device: the picture goes up once, all models run there, the result comes down once.

A model's work is cut into tiles whose feature maps fit the memory that is free. The library's word
on that is only an estimate: where memory runs out all the same, tiles are halved and tried again.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Progress
from waifu2x.backends.chain import Chain, Window
from waifu2x.backends.gpu.road import (
    CELL,
    DevicePixels,
    DeviceWindow,
    Road,
    Stack,
    StackingRoad,
    whole,
)
from waifu2x.backends.gpu.runtime import Buffer, OutOfMemoryError, Runtime
from waifu2x.errors import BackendError
from waifu2x.model import Model
from waifu2x.tiling import Box

_FREE_SHARE = 0.9
"""Of the memory that is free: the library needs some of it for itself."""
_CPU_SCRATCH_BYTES = 32 << 20
"""On a processor, feature maps are to stay in its caches."""
_LARGEST_BUFFER = (1 << 32) - 1
"""Bytes; kernels count the elements of maps in 32 bits."""
_SMALLEST_TILE = 64


class Workspace:
    """A device's memory for one picture at a time, and the lock that sees to that."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.lock = threading.Lock()
        self._pictures: list[Buffer] = []
        self._scratch: list[Buffer] = []
        limits = runtime.limits
        self._most_scratch = _CPU_SCRATCH_BYTES if limits.is_cpu else _LARGEST_BUFFER * 4
        self._largest_buffer = min(limits.max_buffer, _LARGEST_BUFFER)

    def picture(self, shape: tuple[int, int, int], dtype: DTypeLike) -> DevicePixels:
        """An uninitialised picture, until `release_pictures`. Raises BackendError."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        try:
            try:
                buffer = self.runtime.allocate(size)
            except OutOfMemoryError:
                self.release_scratch()
                buffer = self.runtime.allocate(size)
        except OutOfMemoryError as error:
            raise BackendError(
                f"{self.runtime.device.name}: no memory for a picture of {shape[1]}x{shape[0]}"
                " pixels: use --tile with a smaller number, or another backend"
            ) from error
        self._pictures.append(buffer)
        return DevicePixels(buffer, np.dtype(dtype), shape)

    def release_pictures(self) -> None:
        """Frees all pictures."""
        while self._pictures:
            self._pictures.pop().release()

    def fits(self, sizes: Sequence[int]) -> bool:
        """Whether scratch buffers of so many bytes should be possible."""
        owned = sum(buffer.size for buffer in self._scratch)
        free = int(self.runtime.free_memory() * _FREE_SHARE) + owned
        return max(sizes) <= self._largest_buffer and sum(sizes) <= min(free, self._most_scratch)

    def scratch(self, sizes: Sequence[int]) -> Sequence[Buffer]:
        """Buffers of at least so many bytes, kept for the next time. Raises OutOfMemoryError."""
        owned = [buffer.size for buffer in self._scratch]
        if len(owned) < len(sizes) or any(map(operator.lt, owned, sizes)):
            self.release_scratch()
            for size in sizes:
                self._scratch.append(self.runtime.allocate(max(size, 1)))
        return self._scratch

    def release_scratch(self) -> None:
        """Frees the scratch buffers."""
        while self._scratch:
            self._scratch.pop().release()

    def forbid(self, size: int) -> None:
        """Remembers that so many bytes of scratch were too many."""
        self.release_scratch()
        self._most_scratch = min(self._most_scratch, size - 1)


class GpuStage:
    """A model on a road; see Stage."""

    def __init__(self, model: Model, road: Road, workspace: Workspace) -> None:
        self.scale = model.scale
        self.cost = float(model.multiply_adds)
        self.road = road
        self.planes = model.out_planes
        self.layers = len(model.convolutions)
        self._workspace = workspace

    def reads(self, box: Box) -> Box:
        """See Stage."""
        return self.road.reads(box)

    def __call__(
        self, window: DeviceWindow, box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> DevicePixels:
        """See Stage."""
        workspace = self._workspace
        result = workspace.picture((box.height, box.width, self.planes), out_dtype)
        target = Window(result, box.top, box.left, box.bottom, box.right)
        waiting = [box]
        while waiting:
            tile = waiting.pop()
            sizes = self.road.scratch(tile)
            if not workspace.fits(sizes):
                waiting += self._halves(tile)
                continue
            try:
                self.road.run(window, tile, target, workspace.scratch(sizes))
                workspace.runtime.synchronize()
            except OutOfMemoryError:
                workspace.forbid(sum(sizes))
                waiting += self._halves(tile)
                continue
            on_progress(tile.height * tile.width / (box.height * box.width))
        return result

    def _halves(self, tile: Box) -> list[Box]:
        """A tile in two, cut between cells across its longer side; the upper or left one last."""
        top, left, height, width = tile
        if max(height, width) <= _SMALLEST_TILE:
            raise BackendError(
                f"{self._workspace.runtime.device.name}: no memory for a tile of {width}x{height}"
                " pixels: close other programs that use this device, or use another backend"
            )
        if height >= width:
            part = whole(top + height // 2, CELL) - top
            return [Box(top + part, left, height - part, width), Box(top, left, part, width)]
        part = whole(left + width // 2, CELL) - left
        return [Box(top, left + part, height, width - part), Box(top, left, height, part)]


class GpuNetwork:
    """Stages on a device; see Network. Calls from several threads take turns."""

    def __init__(self, stages: Sequence[GpuStage], workspace: Workspace) -> None:
        self.stages = tuple(stages)
        self._chain = Chain(stages)
        self._workspace = workspace

    def __call__(
        self, pixels: NDArray[Any], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """See Network. Raises BackendError where the device has not enough memory."""
        workspace = self._workspace
        height, width, planes = pixels.shape
        with workspace.lock:
            try:
                source = workspace.picture((height, width, planes), pixels.dtype)
                workspace.runtime.upload(source.buffer, pixels)
                target = self._chain(source, box, out_dtype, on_progress)
                result = workspace.runtime.host_array(target.shape, target.dtype)
                workspace.runtime.download(target.buffer, result)
            finally:
                workspace.release_pictures()
        return result

    def many(self, pictures: NDArray[Any], out_dtype: DTypeLike) -> NDArray[Any]:
        """Whole pictures of one size: (count, height, width, planes) in and out, as `__call__`.

        The same bits as one by one, and sooner where the road can compute them together.
        """
        count, height, width, planes = pictures.shape
        stage, workspace = self.stages[0], self._workspace
        stack = Stack(count, height, width)
        if count == 1 or len(self.stages) > 1 or not isinstance(stage.road, StackingRoad):
            return np.stack([self._whole(picture, out_dtype) for picture in pictures])
        rows, columns = height * stage.scale, width * stage.scale
        with workspace.lock:
            sizes = stage.road.stack_scratch(stack)
            if workspace.fits(sizes):
                try:
                    source = workspace.picture((count * height, width, planes), pictures.dtype)
                    workspace.runtime.upload(source.buffer, np.ascontiguousarray(pictures))
                    shape = (count * rows, columns, stage.planes)
                    target = workspace.picture(shape, out_dtype)
                    stage.road.run_stack(source, target, stack, workspace.scratch(sizes))
                    result = workspace.runtime.host_array(target.shape, target.dtype)
                    workspace.runtime.download(target.buffer, result)
                    return result.reshape(count, rows, columns, stage.planes)
                except OutOfMemoryError:
                    workspace.forbid(sum(sizes))
                finally:
                    workspace.release_pictures()
        halves = pictures[: count // 2], pictures[count // 2 :]
        return np.concatenate([self.many(half, out_dtype) for half in halves])

    def _whole(self, picture: NDArray[Any], out_dtype: DTypeLike) -> NDArray[Any]:
        scale = int(np.prod([stage.scale for stage in self.stages]))
        box = Box(0, 0, picture.shape[0] * scale, picture.shape[1] * scale)
        return self(np.ascontiguousarray(picture), box, out_dtype, lambda part: None)

    @contextmanager
    def resident(self, pixels: NDArray[Any], out_dtype: DTypeLike) -> Iterator[Callable[[], None]]:
        """For measurements: what a call queues for pixels that are on the device already.

        For one model; a whole picture that is one tile, or several as `many` takes them.
        """
        (stage,), workspace = self.stages, self._workspace
        *count, height, width, planes = pixels.shape
        rows, columns = height * stage.scale, width * stage.scale
        stack, box = Stack(math.prod(count), height, width), Box(0, 0, rows, columns)
        road = stage.road
        with workspace.lock:
            try:
                source = workspace.picture((stack.count * height, width, planes), pixels.dtype)
                target = workspace.picture((stack.count * rows, columns, stage.planes), out_dtype)
                workspace.runtime.upload(source.buffer, pixels)
                if count and isinstance(road, StackingRoad):
                    scratch = workspace.scratch(road.stack_scratch(stack))
                    yield partial(road.run_stack, source, target, stack, scratch)
                else:
                    scratch = workspace.scratch(road.scratch(box))
                    windows = Window(source, 0, 0, height, width), Window(target, *box)
                    yield partial(road.run, windows[0], box, windows[1], scratch)
            finally:
                workspace.release_pictures()
