"""Networks on a device: pictures go up once, all models run there, results come down once."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.runtime import OutOfMemoryError, Runtime
from waifu2x.backends.gpu.schedule import NoRoomError
from waifu2x.backends.gpu.stage import Run, Shape, Stage, TooManyError, no_room
from waifu2x.backends.gpu.transforms import Transforms, transformed_shape
from waifu2x.backends.gpu.workspace import Taken, Workspace
from waifu2x.backends.results import check_out, closed_network, result_shape
from waifu2x.backends.tta import IDENTITY, TRANSFORMS, Transform, inverse, write_mean
from waifu2x.errors import BackendError

_FLOAT_BYTES = 4
_SHARE = 0.2
"""Of the free memory, that a call may take which lets others send and fetch meanwhile."""
_KEPT_NEEDS = 256
"""Sizes of pictures whose need of memory is known."""
_LONGEST = 65_535
"""Rows of all pictures of a batch, see Batch, and columns of each."""


class Way(NamedTuple):
    """How a network is to be run; see Network."""

    tile: int | None
    tta: int


_PLAIN = Way(None, 1)


class GpuNetwork:
    """Stages on a device; see Network.

    Calls from several threads overlap where their pictures are small for its memory: one sends its
    pictures and another fetches its results while a third computes. Others take turns.
    """

    def __init__(self, stages: Sequence[Stage], workspace: Workspace) -> None:
        self._stages = tuple(stages)
        self._workspace = workspace
        self._runtime = workspace.runtime
        self._transforms = Transforms(workspace.runtime)
        self._is_closed = False
        self._discard = weakref.finalize(self, workspace.discard, self._stages)
        """Where it is given up without `close`: stages are freed when the device's turn allows."""
        self._discard.atexit = False
        self._needed: dict[object, int] = {}
        """Bytes that pictures take, by their shapes and dtypes through the stages."""

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> NDArray[Any]:
        """Runs whole pictures; what fits runs beside other calls, what does not runs alone."""
        way = Way(tile, tta)
        shape = result_shape([stage.model for stage in self._stages], pixels.shape)
        check_out(out, shape, out_dtype, pixels)
        with self._runtime.current():
            result = self._runtime.host_array(shape, out_dtype) if out is None else out
            pictures, results = pixels, result
            if pixels.ndim == 3:
                pictures, results = pixels[np.newaxis], result[np.newaxis]
            if way != _PLAIN or not self._shared(pictures, results, on_progress):
                with self._workspace.working():
                    self._check_open()
                    self._stack(pictures, results, way, on_progress)
        return result

    def close(self) -> None:
        """Frees the weights once the calls under way are done."""
        self._is_closed = True
        if self._discard.detach() is not None:
            self._workspace.discard(self._stages)
            with suppress(BackendError), self._workspace.working():
                pass

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_network()

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
                work.append(run.bound(source, taken, self._workspace.free()))

            def queue() -> None:
                for bound in work:
                    bound.queue()

            yield queue
            self._runtime.synchronize()

    def _shared(self, pictures: NDArray[Any], results: NDArray[Any], on_progress: Progress) -> bool:
        """Computes pictures beside other calls; False for those that leave no room for others.

        Raises BackendError.
        """
        dtype = results.dtype
        shapes = self._shapes(_shape(pictures))
        dtypes = [pictures.dtype, *[np.dtype(np.float32)] * (len(shapes) - 2), dtype]
        with self._workspace.sharing(), self._workspace.taken() as taken:
            self._check_open()
            most = self._workspace.free()
            if not self._leaves_room(shapes, dtypes, most):
                return False
            try:
                source = _pixels(taken, pictures.dtype, shapes[0])
                target = _pixels(taken, dtype, shapes[-1])
                sent = self._runtime.send(source.buffer, pictures)
                with self._workspace.queueing() as scratch:
                    between = zip(dtypes[1:-1], shapes[1:-1], strict=True)
                    made = [_pixels(scratch, *kind) for kind in between]
                    ends = pairwise([source, *made, target])
                    self._runtime.follow()
                    for stage, (read, written) in zip(self._stages, ends, strict=True):
                        run = Run(stage, read, written.dtype, None, ignore)
                        run.bound(written, scratch, most).queue()
                    fetched = self._runtime.fetch(target.buffer, results)
                self._runtime.wait(fetched)
                del sent  # held until then
            except BaseException as error:
                # The buffers go to others now, an interrupt or not: nothing may still use them.
                with suppress(Exception):
                    self._runtime.synchronize()
                if isinstance(error, OutOfMemoryError | NoRoomError):
                    return False  # alone, it may still fit
                raise
            on_progress(1.0)
            return True

    def _leaves_room(
        self, shapes: Sequence[Shape], dtypes: Sequence[np.dtype[Any]], most: int
    ) -> bool:
        """Whether pictures take a small share of the memory that is free, and a single pass through
        each stage."""
        count, height, width, _ = shapes[0]
        if not count * height * width or self._longest(shapes[0]) > _LONGEST:
            return False
        key = tuple(zip(shapes, dtypes, strict=True))
        needed = self._needed.get(key)
        if needed is None:
            needed = self._bytes_of_one_pass(shapes, most)
            if needed is None:
                return False
            needed += sum(math.prod(shape) * dtype.itemsize for shape, dtype in key)
            if len(self._needed) >= _KEPT_NEEDS:
                self._needed.clear()
            self._needed[key] = needed
        return needed <= _SHARE * most

    def _bytes_of_one_pass(self, shapes: Sequence[Shape], most: int) -> int | None:
        """Of all stages together; None if there is one that takes several passes."""
        needed = 0
        with self._workspace.queueing():  # schedules are for one thread at a time
            for stage, shape in zip(self._stages, shapes[:-1], strict=True):
                found = stage.single_schedule(shape, most)
                if found is None:
                    return None
                needed += found.scratch + found.kept + stage.executor.vector_bytes(shape[0])
        return needed

    def _shapes(self, shape: Shape) -> list[Shape]:
        """Of pictures, and of what each stage makes of them."""
        shapes = [shape]
        for stage in self._stages:
            shapes.append(stage.result_shape(shapes[-1]))
        return shapes

    def _stack(
        self, pictures: NDArray[Any], results: NDArray[Any], way: Way, on_progress: Progress
    ) -> None:
        """Pictures of one size: all at once if they fit so, else in two halves."""
        count = len(pictures)
        if count <= 1 or (way.tile is None and self._longest(pictures.shape) <= _LONGEST):
            try:
                self._batch(pictures, results, way, on_progress)
                return
            except TooManyError:
                self._workspace.release()
        for half in (slice(0, count // 2), slice(count // 2, count)):
            share = scaled(on_progress, len(pictures[half]) / count)
            self._stack(pictures[half], results[half], way, share)

    def _longest(self, shape: tuple[int, ...]) -> int:
        """Rows of all pictures together, with padding, where they are most, however turned."""
        count, height, width = shape[:3]
        side = longest = max(height, width)
        for stage in self._stages:
            model = stage.model
            margin = 2 * model.padding + model.multiple
            longest = max(longest, count * (side + margin) * model.scale)
            side *= model.scale
        return longest

    def _batch(
        self, pictures: NDArray[Any], results: NDArray[Any], way: Way, on_progress: Progress
    ) -> None:
        """Pictures through all models. Raises TooManyError if several do not fit undivided."""
        reports = [scaled(on_progress, share) for share in self._shares()]
        between = np.dtype(np.float32)
        self._check_room(pictures)
        with self._workspace.taken() as taken:
            source = self._uploaded(pictures, taken)
            for stage, report in zip(self._stages[:-1], reports, strict=False):
                if way.tta == 1:
                    made = Run(stage, source, between, way.tile, report).to_device(taken)
                else:
                    made = self._mean(stage, source, between, way, taken, report)
                taken.drop(source.buffer)
                source = made
            last = self._stages[-1]
            if way.tta == 1:
                Run(last, source, results.dtype, way.tile, reports[-1]).to_host(results)
            elif not self._has_room(last.result_shape(source.shape), taken):
                self._mean_on_host(last, source, results, way, reports[-1])
            else:
                made = self._mean(last, source, results.dtype, way, taken, reports[-1])
                self._runtime.synchronize()
                self._runtime.download(made.buffer, results)

    def _mean(
        self,
        stage: Stage,
        source: DevicePixels,
        dtype: np.dtype[Any],
        way: Way,
        taken: Taken,
        on_progress: Progress,
    ) -> DevicePixels:
        """The mean of a stage's work on pictures turned, on the device.

        Raises BackendError, TooManyError.
        """
        report = scaled(on_progress, 1 / way.tta)
        shape = stage.result_shape(source.shape)
        with _words_for_memory(self._runtime, shape):
            total = _pixels(taken, np.dtype(np.float32), shape)
            for number, transform in enumerate(TRANSFORMS[way.tta]):
                laid = self._transformed(source, transform, taken) if number else source
                made = Run(stage, laid, total.dtype, way.tile, report).to_device(taken)
                self._transforms.add(made, transform, total, first=number == 0)
                taken.drop(made.buffer)
                if number:
                    taken.drop(laid.buffer)
            result = _pixels(taken, dtype, shape)
            self._transforms.finish(total, way.tta, result)
            taken.drop(total.buffer)
        return result

    def _mean_on_host(
        self,
        stage: Stage,
        source: DevicePixels,
        results: NDArray[Any],
        way: Way,
        on_progress: Progress,
    ) -> None:
        """The same where results do not fit the device: to the bit, as sums are of floats in one
        order."""
        report = scaled(on_progress, 1 / way.tta)
        total = np.empty(results.shape, np.float32)
        for transform in TRANSFORMS[way.tta]:
            with self._workspace.taken() as taken:
                laid = source
                if transform != IDENTITY:
                    with _words_for_memory(self._runtime, source.shape):
                        laid = self._transformed(source, transform, taken)
                shape = stage.result_shape(laid.shape)
                made = total
                if transform != IDENTITY:
                    made = self._runtime.host_array(shape, np.float32)
                Run(stage, laid, np.dtype(np.float32), way.tile, report).to_host(made)
            if transform != IDENTITY:
                np.add(total, inverse(made, transform), out=total)
        write_mean(total, way.tta, results)

    def _transformed(
        self, source: DevicePixels, transform: Transform, taken: Taken
    ) -> DevicePixels:
        """Pictures transformed. May raise OutOfMemoryError."""
        target = _pixels(taken, source.dtype, transformed_shape(source.shape, transform))
        self._transforms.transform(source, transform, target)
        return target

    def _has_room(self, shape: Shape, taken: Taken) -> bool:
        """Whether the device holds a sum, what is to be added and the result. Raises TooManyError
        if it does not, and there are several pictures."""
        buffers = []
        try:
            for _ in range(3):
                buffers.append(_pixels(taken, np.dtype(np.float32), shape).buffer)
        except OutOfMemoryError as error:
            if shape[0] > 1:
                raise TooManyError from error
            return False
        finally:
            for buffer in buffers:
                taken.drop(buffer)
        return True

    def _check_room(self, pictures: NDArray[Any]) -> None:
        """Whether there is memory for what models hand to each other, which is never divided.

        Better known before the work. Raises BackendError, TooManyError.
        """
        shapes = self._shapes(_shape(pictures))[:-1]
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
        with _words_for_memory(self._runtime, shape):
            source = _pixels(taken, pictures.dtype, shape)
            self._runtime.upload(source.buffer, pictures)
        return source


def _shape(pictures: NDArray[Any]) -> Shape:
    count, height, width, planes = pictures.shape
    return count, height, width, planes


def _pixels(taken: Taken, dtype: np.dtype[Any], shape: Shape) -> DevicePixels:
    """Room for pictures. May raise OutOfMemoryError."""
    return DevicePixels(taken.buffer(math.prod(shape) * dtype.itemsize), dtype, shape)


@contextmanager
def _words_for_memory(runtime: Runtime, shape: Shape) -> Iterator[None]:
    """Says of which pictures there are too many, or that there is no memory for one."""
    try:
        yield
    except OutOfMemoryError as error:
        raise no_room(runtime.device, shape) from error
