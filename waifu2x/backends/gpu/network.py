"""Networks on a device: pictures go up once, all models run there, results come down once."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import OnRecomputed, Progress, ignore, scaled
from waifu2x.backends.gpu.compiled_model import (
    NOTHING,
    CompiledModel,
    Execution,
    StackShape,
    TooManyError,
    no_room,
    words_for_memory,
)
from waifu2x.backends.gpu.device.flags import NO_FLAGS, FlagPool, Flags
from waifu2x.backends.gpu.device.memory_pool import MemoryPool, ScopedAllocation
from waifu2x.backends.gpu.device.runtime import OutOfMemoryError
from waifu2x.backends.gpu.device.transfer import (
    PixelTransfer,
    Results,
    Transfer,
    device_pixels,
    stack_shape,
)
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.plan.launch_plan import LaunchPlan
from waifu2x.backends.gpu.transformed_mean import Options, TransformedMean
from waifu2x.backends.results import check_out, closed_network, grey, is_grey, result_shape
from waifu2x.errors import DeviceMemoryError

if TYPE_CHECKING:
    from waifu2x.backends.gpu.device.planar import BandConversion, PlaneKernels
    from waifu2x.imaging.planar import PlanarPicture

_Made = TypeVar("_Made")
_BETWEEN = np.dtype(np.float32)
"""The dtype of pictures that one model hands to the next."""
_SHARE = 0.2
"""The share of the free memory that a call may take beside others that send and fetch."""
_SMALL_BYTES = 1 << 20
"""Bytes of a small picture and its result."""
_LONGEST = 65_535
"""Rows of all pictures of a batch, see Batch, and columns of each."""


class _Owner:
    """The models of a network, which outlive it until their memory can be freed."""

    def __init__(self, models: Sequence[CompiledModel]) -> None:
        self._models = models

    def close(self) -> None:
        """Frees their weights."""
        for model in self._models:
            model.close()


class FlaggedError(Exception):
    """A picture is flagged, of a network on trial."""


_PLAIN = Options(None, 1)


class GpuNetwork:
    """Stages on a device; see Network.

    Calls from several threads overlap where their pictures are small for its memory: one sends its
    pictures and another fetches its results while a third computes. Others take turns.

    A picture whose values leave the room of an executor, which flags it, is computed again by
    another network, all of it: so no tile and no stack decides which of them made a pixel.
    """

    def __init__(
        self,
        models: Sequence[CompiledModel],
        pool: MemoryPool,
        wider: Callable[[], GpuNetwork] | None = None,
        on_flagged: Callable[[], None] = lambda: None,
    ) -> None:
        """`wider` makes the network for flagged pictures; without it, they stay as they are. The
        network calls `on_flagged` before it computes those of a call again."""
        self.models = tuple(models)
        self.pool = pool
        self._runtime = pool.runtime
        self._mean = TransformedMean(pool)
        self._calls = threading.Condition()
        self._running = 0
        """Calls under way."""
        self._is_closed = False
        self._owner = _Owner(self.models)
        pool.adopt(self._owner)
        self._abandon = weakref.finalize(self, pool.abandon, self._owner)
        """Where it is given up without `close`."""
        self._abandon.atexit = False
        self._flags = FlagPool(partial(_new_flags, self.models))
        self._make_wider = wider
        self._on_flagged = on_flagged
        self._wider: GpuNetwork | None = None
        self._widening = threading.Lock()
        """Held while the network for flagged pictures is made."""

    @property
    def arithmetic(self) -> str:
        """The arithmetic of its models."""
        return ", ".join(dict.fromkeys(model.executor.arithmetic for model in self.models))

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
        on_recomputed: OnRecomputed = ignore,
    ) -> NDArray[Any]:
        """Runs whole pictures; what fits runs beside other calls, what does not runs alone."""
        options = Options(tile, tta)
        models = [compiled.model for compiled in self.models]
        shape = result_shape(models, pixels.shape)
        check_out(out, shape, out_dtype, pixels)
        if is_grey(models, pixels.shape):
            result = np.empty(shape, out_dtype) if out is None else out
            grey(
                self,
                pixels,
                result,
                tile=tile,
                tta=tta,
                on_progress=on_progress,
                on_recomputed=on_recomputed,
            )
            return result
        with self._call(), self._runtime.current():
            results = Results(self._runtime, shape, np.dtype(out_dtype), out)
            pictures = pixels[np.newaxis] if pixels.ndim == 3 else pixels
            flagged = None
            if options == _PLAIN:
                transfer = PixelTransfer(self._runtime, pictures, results)
                flagged = self._shared(transfer, on_progress)
            if flagged is None:
                with self.pool.working():
                    self._check_open()
                    flagged = self._stack(pictures, results.stack, options, on_progress)
            again = flagged if self._make_wider else []
            if again:
                self._on_flagged()
            for number in again:
                on_progress(0.0)  # it may want to stop
                made = results.stack[number : number + 1]
                self._for_flagged()(
                    pictures[number : number + 1], out_dtype, out=made, tile=tile, tta=tta
                )
            for number in again:
                on_recomputed(number)
        return results.array

    def run_planes(
        self,
        pictures: Sequence[PlanarPicture],
        out: Sequence[PlanarPicture],
        *,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> None:
        """Runs pictures as planes, which become pixels on the device and never elsewhere where
        they fit it undivided."""
        from waifu2x.backends.gpu.device.plane_transfer import PlaneTransfer
        from waifu2x.backends.planar import check_planes

        check_planes([compiled.model for compiled in self.models], pictures, out)
        if not pictures:
            return
        with self._call(), self._runtime.current():
            flagged = None
            if Options(tile, tta) == _PLAIN:
                transfer = PlaneTransfer(self._runtime, self._planes, pictures, out)
                flagged = self._shared(transfer, on_progress)
            if flagged is None:
                pixels = self._converted(lambda bands: bands.pixels(pictures))
                made = self(pixels, _BETWEEN, tile=tile, tta=tta, on_progress=on_progress)
                self._converted(lambda bands: bands.planes(made, out))
                return
            if flagged and self._make_wider:
                self._on_flagged()
                on_progress(0.0)  # it may want to stop
                wider = self._for_flagged()
                wider.run_planes([pictures[n] for n in flagged], [out[n] for n in flagged])

    @cached_property
    def _planes(self) -> PlaneKernels:
        from waifu2x.backends.gpu.device.planar import PlaneKernels

        return PlaneKernels(self._runtime)

    def _converted(self, convert: Callable[[BandConversion], _Made]) -> _Made:
        """Returns the result of a conversion that has the device to itself. Raises BackendError."""
        from waifu2x.backends.gpu.device.planar import BandConversion

        with self.pool.working(), self.pool.taken() as taken:
            self._check_open()
            try:
                return convert(BandConversion(self._runtime, self._planes, taken))
            except OutOfMemoryError as error:
                raise DeviceMemoryError(
                    f"{self._runtime.device.name}: no memory for the planes of a picture: close"
                    " other programs that use this device, or use another backend"
                ) from error

    def close(self) -> None:
        """Frees the weights once the calls under way are done."""
        with self._calls:
            self._is_closed = True
            self._calls.wait_for(lambda: not self._running)
        if self._abandon.detach() is not None:
            self.pool.close_owner(self._owner)
        if self._wider is not None:
            self._wider.close()

    def _for_flagged(self) -> GpuNetwork:
        """Returns the network for flagged pictures, made for the first. Raises BackendError."""
        with self._widening:
            if self._wider is None:
                assert self._make_wider is not None
                self._wider = self._make_wider()
            return self._wider

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Keeps the weights for one call."""
        with self._calls:
            self._running += 1
        try:
            yield
        finally:
            with self._calls:
                self._running -= 1
                self._calls.notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_network()

    def _shared(self, transfer: Transfer, on_progress: Progress) -> list[int] | None:
        """Computes pictures beside other calls; None for those that leave no memory for others.

        Gives the numbers of those that are flagged. Raises BackendError.
        """
        shapes = self._shapes(transfer.shape)
        read, written = transfer.dtypes
        dtypes = [read, *[_BETWEEN] * (len(shapes) - 2), written]
        with self.pool.sharing(), self.pool.taken() as taken:
            self._check_open()
            plans = self._plans(shapes, dtypes, transfer.size, self.pool.free())
            if not plans:
                return None
            try:
                transfer.take(taken, shapes[-1])
                # For one small picture alone, streams that wait take longer than its copies.
                in_order = self._running == 1 and transfer.crossing <= _SMALL_BYTES
                if not in_order:
                    sent = transfer.send()
                with self._flags.taken(transfer.shape[0]) as flags:
                    with self.pool.queueing() as scratch:
                        between = zip(dtypes[1:-1], shapes[1:-1], strict=True)
                        made = [device_pixels(scratch, *kind) for kind in between]
                        if in_order:
                            sent = transfer.send(in_order=True)
                        else:
                            self._runtime.follow()
                        ends = pairwise([transfer.source(scratch), *made, transfer.target(scratch)])
                        last = len(plans) - 1
                        for number, (compiled, plan, (source, target)) in enumerate(
                            zip(self.models, plans, ends, strict=True)
                        ):
                            compiled.queue(
                                plan,
                                source.buffer,
                                target.buffer,
                                flags,
                                scratch,
                                NOTHING if number else transfer.before,
                                transfer.behind if number == last else NOTHING,
                            )
                        transfer.fetch(in_order=in_order)
                    transfer.wait()
                    del sent  # held until then
                    found = flags.take(transfer.shape[0])
            except BaseException as error:
                # The buffers go to others now, an interrupt or not: nothing may still use them.
                self.pool.settle()
                if isinstance(error, OutOfMemoryError):
                    return None  # alone, it may still fit
                raise
            on_progress(1.0)
            return found

    def _plans(
        self, shapes: Sequence[StackShape], dtypes: Sequence[np.dtype[Any]], besides: int, most: int
    ) -> list[LaunchPlan]:
        """Returns the plans of all models for pictures that, with `besides` bytes, take a small
        share of the free memory; none for others, and for those that a model divides."""
        count, height, width, _ = shapes[0]
        if not count * height * width or self._longest(shapes[0]) > _LONGEST:
            return []
        needed = besides + sum(
            math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)
        )
        plans = []
        for compiled, shape, ends in zip(self.models, shapes, pairwise(dtypes), strict=False):
            plan = compiled.undivided(shape, *ends, most)
            if plan is None:
                return []
            needed += plan.maps + compiled.executor.vector_bytes(count)
            plans.append(plan)
        return plans if needed <= _SHARE * most else []

    def _shapes(self, shape: StackShape) -> list[StackShape]:
        """Returns the shapes of the pictures and of each model's results."""
        shapes = [shape]
        for compiled in self.models:
            shapes.append(compiled.result_shape(shapes[-1]))
        return shapes

    def _stack(
        self, pictures: NDArray[Any], results: NDArray[Any], options: Options, on_progress: Progress
    ) -> list[int]:
        """Runs pictures of one size, all at once if they fit, else in two halves. Returns the
        numbers of flagged ones."""
        count = len(pictures)
        if count <= 1 or (options.tile is None and self._longest(pictures.shape) <= _LONGEST):
            try:
                return self._batch(pictures, results, options, on_progress)
            except TooManyError:
                self.pool.release()
        flagged = list[int]()
        for half in (slice(0, count // 2), slice(count // 2, count)):
            share = scaled(on_progress, len(pictures[half]) / count)
            found = self._stack(pictures[half], results[half], options, share)
            flagged += [half.start + number for number in found]
        return flagged

    def _longest(self, shape: tuple[int, ...]) -> int:
        """Returns the rows of all pictures together, with padding, in the transform with most of
        them."""
        count, height, width = shape[:3]
        side = longest = max(height, width)
        for compiled in self.models:
            model = compiled.model
            margin = 2 * model.padding + model.multiple
            longest = max(longest, count * (side + margin) * model.scale)
            side *= model.scale
        return longest

    def _batch(
        self, pictures: NDArray[Any], results: NDArray[Any], options: Options, on_progress: Progress
    ) -> list[int]:
        """Runs pictures through all models; returns the numbers of flagged ones. Raises
        TooManyError if several do not fit undivided."""
        self._check_room(pictures)
        with self._flags.taken(len(pictures)) as flags:
            self._passes(pictures, results, options, on_progress, flags)
            return flags.take(len(pictures))

    def _passes(
        self,
        pictures: NDArray[Any],
        results: NDArray[Any],
        options: Options,
        on_progress: Progress,
        flags: Flags,
    ) -> None:
        """Runs every pass of pictures through all models."""
        reports = [scaled(on_progress, share) for share in self._shares()]
        with self.pool.taken() as taken:
            source = self._uploaded(pictures, taken)
            for compiled, report in zip(self.models[:-1], reports, strict=False):
                if options.tta == 1:
                    execution = Execution(compiled, source, _BETWEEN, options.tile, report, flags)
                    made = execution.to_device(taken)
                else:
                    made = self._mean.on_device(
                        compiled, source, _BETWEEN, options, taken, report, flags
                    )
                taken.drop(source.buffer)
                source = made
            last = self.models[-1]
            if options.tta == 1:
                tile, report = options.tile, reports[-1]
                Execution(last, source, results.dtype, tile, report, flags).to_host(results)
            elif not self._mean.has_room(last.result_shape(source.shape), taken):
                self._mean.on_host(last, source, results, options, reports[-1], flags)
            else:
                made = self._mean.on_device(
                    last, source, results.dtype, options, taken, reports[-1], flags
                )
                self._runtime.synchronize()
                self._runtime.download(made.buffer, results)

    def _check_room(self, pictures: NDArray[Any]) -> None:
        """Checks before the work that there is memory for the pictures that models hand to each
        other, which are never divided. Raises BackendError, TooManyError."""
        shapes = self._shapes(stack_shape(pictures))[:-1]
        sizes = [pictures.nbytes, *(math.prod(shape) * _BETWEEN.itemsize for shape in shapes[1:])]
        together = max(map(sum, pairwise(sizes)), default=sizes[0])
        most = self.pool.free()
        if together > most or max(sizes) > self._runtime.limits.max_buffer:
            raise no_room(self._runtime.device, shapes[-1])

    def _shares(self) -> list[float]:
        """Returns the models' shares of the work."""
        costs, scale = [], 1
        for compiled in self.models:
            scale *= compiled.model.scale
            costs.append(max(compiled.model.multiply_adds, 1) * scale**2)
        return [cost / sum(costs) for cost in costs]

    def _uploaded(self, pictures: NDArray[Any], taken: ScopedAllocation) -> DevicePixels:
        shape = stack_shape(pictures)
        with words_for_memory(self._runtime, shape):
            source = device_pixels(taken, pictures.dtype, shape)
            self._runtime.upload(source.buffer, pictures)
        return source


def _new_flags(models: Sequence[CompiledModel], pictures: int) -> Flags:
    """Returns flags that the executor of any model may set. May raise OutOfMemoryError."""
    for compiled in models:
        flags = compiled.executor.new_flags(pictures)
        if flags is not NO_FLAGS:
            return flags
    return NO_FLAGS
