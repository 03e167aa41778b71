"""Runs networks on a device: uploads pictures once, runs all models, fetches results once."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.backends.call import (
    Call,
    Pictures,
    check,
    closed_network,
    is_grey,
    result_shape,
    run_grey,
    run_windows,
    with_out,
)
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
    Transfer,
    device_pixels,
    stack_shape,
)
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.plan.launch_plan import LaunchPlan
from waifu2x.backends.gpu.transformed_mean import TransformedMean
from waifu2x.errors import DeviceMemoryError

if TYPE_CHECKING:
    from waifu2x.backends.gpu.device.planar import BandConversion, PlaneKernels
    from waifu2x.imaging.planar import PlanarPicture
    from waifu2x.lowering.plan.support import Support

_Made = TypeVar("_Made")
_BETWEEN = np.dtype(np.float32)
"""The dtype of the pictures between models."""
_SHARE = 0.2
"""The share of the free memory that a call may take to run beside others."""
_SMALL_BYTES = 1 << 20
"""The most bytes of a small picture and its result."""
_PLAIN = None, 1
"""The tile and `tta` of calls that may run beside others."""
_LONGEST = 65_535
"""The most rows of all pictures of a batch, see Batch, and columns of each."""


class _Owner:
    """Owns the models of a network, which outlive it until their memory can be freed."""

    def __init__(self, models: Sequence[CompiledModel]) -> None:
        self._models = models

    def close(self) -> None:
        """Frees their weights."""
        for model in self._models:
            model.close()


class FlaggedError(Exception):
    """Says that a picture of a network on trial is flagged."""


class GpuNetwork:
    """The network of a GPU backend.

    Calls from several threads overlap if their pictures are small for its memory: one sends its
    pictures and another fetches its results while a third computes. Other calls take turns.

    An executor flags a picture whose values leave its range, and another network computes all of it
    again: so neither tiles nor stacks decide which network makes a pixel.
    """

    def __init__(
        self,
        models: Sequence[CompiledModel],
        pool: MemoryPool,
        wider: Callable[[], GpuNetwork] | None = None,
        on_flagged: Callable[[], None] = lambda: None,
    ) -> None:
        """`wider` makes the network for flagged pictures; without it, they stay as they are.
        `on_flagged` is called before those of a call are computed again."""
        self.models = tuple(models)
        self.pool = pool
        self._runtime = pool.runtime
        self._mean = TransformedMean(pool)
        self._calls = threading.Condition()
        self._running = 0
        """The number of calls under way."""
        self._is_closed = False
        self._owner = _Owner(self.models)
        pool.adopt(self._owner)
        self._abandon = weakref.finalize(self, pool.abandon, self._owner)
        """Frees the models if it is garbage-collected without `close`."""
        self._abandon.atexit = False
        self._flags = FlagPool(partial(_new_flags, self.models))
        self._make_wider = wider
        self._on_flagged = on_flagged
        self._wider: GpuNetwork | None = None
        self._widening = threading.Lock()
        """Held while the network for flagged pictures is made."""

    @property
    def arithmetic(self) -> str:
        """The arithmetic of its models, without repetitions."""
        return ", ".join(dict.fromkeys(model.executor.arithmetic for model in self.models))

    @property
    def support(self) -> Support | None:
        """How far results depend on pixels; None for networks that need the whole picture."""
        from waifu2x.lowering.plan.support import chained, support_of

        executors = [model.executor for model in self.models]
        found = [support_of(executor.program, executor.unit) for executor in executors]
        return chained(found, [model.model.scale for model in self.models])

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs whole pictures: beside other calls if they fit so, else alone."""
        models = [compiled.model for compiled in self.models]
        if not isinstance(call.source, np.ndarray):
            check(call, models)
            if call.source:
                self._run_planes(call)
            return call.results
        if is_grey(models, call.source.shape):
            return run_grey(self, with_out(call, models))
        check(call, models)
        transfer = PixelTransfer(self._runtime, call, result_shape(models, call.source.shape))
        with self._call(), self._runtime.current():
            flagged = None
            if (call.tile, call.tta) == _PLAIN:
                flagged = self._shared(transfer, call.on_progress)
            if flagged is None:
                with self.pool.working():
                    self._check_open()
                    flagged = self._stack(replace(call, out=transfer.out).stacked())
            if flagged:
                self._run_flagged(replace(call, out=transfer.out), flagged)
        return transfer.out

    def _run_planes(self, call: Call[Sequence[PlanarPicture]]) -> None:
        """Runs pictures as planes; if they fit undivided, their pixels exist only on the device."""
        from waifu2x.backends.gpu.device.plane_transfer import PlaneTransfer

        with self._call(), self._runtime.current():
            flagged = None
            if (call.tile, call.tta) == _PLAIN:
                transfer = PlaneTransfer(self._runtime, self._planes, call, self.models[0].model)
                flagged = self._shared(transfer, call.on_progress)
            if flagged is None:
                self._divided(call)
            elif flagged:
                self._run_flagged(call, flagged)

    def _divided(self, call: Call[Sequence[PlanarPicture]]) -> None:
        """Runs pictures as planes through pixels in the memory of the host."""
        model = self.models[0].model
        if model.frames > 1:

            def read(picture: PlanarPicture) -> NDArray[np.float32]:
                made = self._converted(lambda bands: bands.pixels([picture]))
                return made.reshape(made.shape[1:])

            def write(pixels: NDArray[np.float32], out: PlanarPicture) -> None:
                made = np.ascontiguousarray(pixels)[np.newaxis]
                self._converted(lambda bands: bands.planes(made, [out]))

            run_windows(self, call, model, read, write)
            return
        pixels = self._converted(lambda bands: bands.pixels(call.source))
        made = self.run(call.with_pixels(pixels))
        self._converted(lambda bands: bands.planes(made, call.results))

    def _run_flagged(self, call: Call[Pictures], flagged: Sequence[int]) -> None:
        """Computes flagged pictures of a call again with wider numbers, if the device has any."""
        if not self._make_wider:
            return
        self._on_flagged()
        stack = call.stacked()
        for number in flagged:
            call.on_progress(0.0)  # lets the caller stop the work
            one = stack.part(number, number + 1)
            self._for_flagged().run(replace(one, on_progress=ignore, on_recomputed=ignore))
        for number in flagged:
            call.on_recomputed(number)

    @cached_property
    def _planes(self) -> PlaneKernels:
        from waifu2x.backends.gpu.device.planar import PlaneKernels

        return PlaneKernels(self._runtime)

    def _converted(self, convert: Callable[[BandConversion], _Made]) -> _Made:
        """Runs a conversion that has the device to itself, and returns its result. Raises
        BackendError."""
        from waifu2x.backends.gpu.device.planar import BandConversion

        with self.pool.working(), self.pool.taken() as taken:
            self._check_open()
            try:
                return convert(BandConversion(self._runtime, self._planes, taken))
            except OutOfMemoryError as error:
                raise DeviceMemoryError(
                    f"{self._runtime.device.name}: no memory for the planes of a picture",
                    "close other programs that use this device, or use another backend",
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
        """Keeps the weights alive for the call within."""
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
        """Computes pictures beside other calls; returns the numbers of those that are flagged, or
        None for pictures that leave no memory for others. Raises BackendError."""
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
                # Other calls take the buffers next, also after an interrupt: nothing may still use
                # them.
                self.pool.settle()
                if isinstance(error, OutOfMemoryError):
                    return None  # alone, it may still fit
                raise
            on_progress(1.0)
            return found

    def _plans(
        self, shapes: Sequence[StackShape], dtypes: Sequence[np.dtype[Any]], besides: int, most: int
    ) -> list[LaunchPlan]:
        """Returns the plans of all models, if these and `besides` bytes take only a small share of
        the free memory; none otherwise, and for pictures that a model divides."""
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

    def _stack(self, call: Call[NDArray[Any]]) -> list[int]:
        """Runs a stack at once if it fits so, else its two halves. Returns the indices of flagged
        pictures."""
        count = call.count
        if count <= 1 or (call.tile is None and self._longest(call.source.shape) <= _LONGEST):
            try:
                return self._batch(call)
            except TooManyError:
                self.pool.release()
        half = count // 2
        flagged = self._stack(call.part(0, half))
        return flagged + [half + number for number in self._stack(call.part(half, count))]

    def _longest(self, shape: tuple[int, ...]) -> int:
        """Returns the padded rows of all pictures together, in the transform with the most."""
        count, height, width = shape[:3]
        side = longest = max(height, width)
        for compiled in self.models:
            model = compiled.model
            margin = 2 * model.padding + model.multiple
            longest = max(longest, count * (side + margin) * model.scale)
            side *= model.scale
        return longest

    def _batch(self, call: Call[NDArray[Any]]) -> list[int]:
        """Runs pictures through all models; returns the indices of flagged ones.

        Raises TooManyError if several do not fit undivided.
        """
        self._check_room(call.source)
        with self._flags.taken(call.count) as flags:
            self._passes(call, flags)
            return flags.take(call.count)

    def _passes(self, call: Call[NDArray[Any]], flags: Flags) -> None:
        """Runs every pass of pictures through all models."""
        *firsts, last = [
            replace(call, on_progress=scaled(call.on_progress, share)) for share in self._shares()
        ]
        compiled = self.models[-1]
        with self.pool.taken() as taken:
            source = self._uploaded(call.source, taken)
            for earlier, part in zip(self.models, firsts, strict=False):
                if call.tta == 1:
                    execution = Execution(
                        earlier, source, _BETWEEN, call.tile, part.on_progress, flags
                    )
                    made = execution.to_device(taken)
                else:
                    made = self._mean.on_device(earlier, source, _BETWEEN, part, taken, flags)
                taken.drop(source.buffer)
                source = made
            if call.tta == 1:
                execution = Execution(
                    compiled, source, call.dtype, call.tile, last.on_progress, flags
                )
                execution.to_host(call.results)
            elif not self._mean.has_room(compiled.result_shape(source.shape), taken):
                self._mean.on_host(compiled, source, last, flags)
            else:
                made = self._mean.on_device(compiled, source, call.dtype, last, taken, flags)
                self._runtime.synchronize()
                self._runtime.download(made.buffer, call.results)

    def _check_room(self, pictures: NDArray[Any]) -> None:
        """Checks in advance that there is memory for the pictures between models, which are never
        divided. Raises BackendError, TooManyError."""
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
    """Returns flags that all models' executors can share. May raise OutOfMemoryError."""
    for compiled in models:
        flags = compiled.executor.new_flags(pictures)
        if flags is not NO_FLAGS:
            return flags
    return NO_FLAGS
