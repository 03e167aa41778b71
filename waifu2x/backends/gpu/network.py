"""Networks on a device: pictures go up once, all models run there, results come down once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.runtime import OutOfMemoryError
from waifu2x.backends.gpu.stage import Run, Shape, Stage, TooManyError, no_room
from waifu2x.backends.gpu.workspace import Taken, Workspace

_FLOAT_BYTES = 4
_LONGEST = 65_535
"""Rows of all pictures of a batch, see Batch, and columns of each."""


class GpuNetwork:
    """Stages on a device; see Network. Calls from several threads take turns."""

    def __init__(self, stages: Sequence[Stage], workspace: Workspace) -> None:
        self._stages = tuple(stages)
        self._workspace = workspace
        self._runtime = workspace.runtime

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        tile: int | None = None,
        on_progress: Progress = ignore,
    ) -> NDArray[Any]:
        """See Network."""
        pictures = pixels[np.newaxis] if pixels.ndim == 3 else pixels
        with self._workspace.working():
            results = self._stack(pictures, np.dtype(out_dtype), tile, on_progress)
        return results[0] if pixels.ndim == 3 else results

    @contextmanager
    def on_device(self, pixels: NDArray[Any], out_dtype: DTypeLike) -> Iterator[Callable[[], None]]:
        """For measurements: what queues all work on pixels that are on the device already.

        Pixels as of a call, which must fit the memory undivided; results stay where they are.
        Raises BackendError.
        """
        pictures = pixels[np.newaxis] if pixels.ndim == 3 else pixels
        dtypes = [*[np.dtype(np.float32)] * (len(self._stages) - 1), np.dtype(out_dtype)]
        with self._workspace.working(), self._workspace.taken() as taken:
            source = self._uploaded(pictures, taken)
            work = []
            for stage, dtype in zip(self._stages, dtypes, strict=True):
                run = Run(stage, source, dtype, None, ignore)
                source = run.to_device(taken)
                work.append(run.bound(source, taken))

            def queue() -> None:
                for bound in work:
                    bound.queue()

            yield queue
            self._runtime.synchronize()

    def _stack(
        self, pictures: NDArray[Any], dtype: np.dtype[Any], tile: int | None, on_progress: Progress
    ) -> NDArray[Any]:
        """Pictures of one size: all at once if they fit so, else in two halves."""
        count = len(pictures)
        if count <= 1 or (tile is None and self._longest(pictures.shape) <= _LONGEST):
            try:
                return self._batch(pictures, dtype, tile, on_progress)
            except TooManyError:
                self._workspace.release()
        halves = pictures[: count // 2], pictures[count // 2 :]
        return np.concatenate(
            [
                self._stack(half, dtype, tile, scaled(on_progress, len(half) / count))
                for half in halves
            ]
        )

    def _longest(self, shape: tuple[int, ...]) -> int:
        """Rows of all pictures together or columns of one, with padding, where they are most."""
        count, height, width = shape[:3]
        longest = 0
        for stage in self._stages:
            model = stage.model
            margin = 2 * model.padding + model.multiple
            longest = max(longest, max(count * (height + margin), width + margin) * model.scale)
            height, width = height * model.scale, width * model.scale
        return longest

    def _batch(
        self, pictures: NDArray[Any], dtype: np.dtype[Any], tile: int | None, on_progress: Progress
    ) -> NDArray[Any]:
        """Pictures through all models. Raises TooManyError if several do not fit undivided."""
        shares = self._shares()
        self._check_room(pictures)
        with self._workspace.taken() as taken:
            source = self._uploaded(pictures, taken)
            for stage, share in zip(self._stages[:-1], shares, strict=False):
                dtype_between = np.dtype(np.float32)
                run = Run(stage, source, dtype_between, tile, scaled(on_progress, share))
                made = run.to_device(taken)
                taken.drop(source.buffer)
                source = made
            last = Run(self._stages[-1], source, dtype, tile, scaled(on_progress, shares[-1]))
            return last.to_host()

    def _check_room(self, pictures: NDArray[Any]) -> None:
        """Whether there is memory for what models hand to each other, which is never divided.

        Better known before the work. Raises BackendError, TooManyError.
        """
        shapes: list[Shape] = [_shape(pictures)]
        for stage in self._stages[:-1]:
            shapes.append(stage.result_shape(shapes[-1]))
        sizes = [pictures.nbytes, *(math.prod(shape) * _FLOAT_BYTES for shape in shapes[1:])]
        together = max(map(sum, pairwise(sizes)), default=sizes[0])
        most = self._workspace.free()
        if together > most or max(sizes) > self._runtime.limits.max_buffer:
            raise no_room(self._runtime.device, shapes[-1])

    def _shares(self) -> list[float]:
        """Of the stages in the work."""
        costs, scale = [], 1
        for stage in self._stages:
            scale *= stage.model.scale
            costs.append(max(stage.model.multiply_adds, 1) * scale**2)
        return [cost / sum(costs) for cost in costs]

    def _uploaded(self, pictures: NDArray[Any], taken: Taken) -> DevicePixels:
        shape = _shape(pictures)
        try:
            source = DevicePixels(taken.buffer(pictures.nbytes), pictures.dtype, shape)
            self._runtime.upload(source.buffer, pictures)
        except OutOfMemoryError as error:
            raise no_room(self._runtime.device, shape) from error
        return source


def _shape(pictures: NDArray[Any]) -> Shape:
    count, height, width, planes = pictures.shape
    return count, height, width, planes
