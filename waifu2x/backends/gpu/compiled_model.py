"""Runs one model on pictures in device memory, pass after pass, within the memory that is free."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Device, Progress
from waifu2x.backends.gpu.device import launch
from waifu2x.backends.gpu.device.flags import Flags
from waifu2x.backends.gpu.device.memory_pool import MemoryPool, ScopedAllocation
from waifu2x.backends.gpu.device.runtime import Buffer, OutOfMemoryError, ReadyLaunch, Runtime
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels, Executor, PassWork
from waifu2x.backends.gpu.plan import tile_plan
from waifu2x.backends.gpu.plan.launch_plan import Buffers, Ends, LaunchPlan, LaunchPlans
from waifu2x.backends.gpu.plan.tile_plan import MapMemory, MapMemoryError, Schedule, pass_cost
from waifu2x.errors import DeviceMemoryError
from waifu2x.lowering.plan.box import Box
from waifu2x.networks.model import Model

_KEPT_SCHEDULES = 16
_FEWEST_BAND_ROWS = 64
_USUAL_SIDES = (1024, 256, 64)
"""Rows and columns of the picture that kernels are built for in advance: the first of these whose
maps kernels can index."""
_MUCH_MORE = 1.25
"""The growth of free memory from which a search for a better schedule is worthwhile."""

StackShape = tuple[int, int, int, int]
"""The shape of a stack of pictures (number, rows, columns, planes)."""


class Beside(NamedTuple):
    """Launches queued before or behind those of a model."""

    key: Hashable
    """Everything that they depend on except the model's buffers."""
    make: Callable[[], Sequence[ReadyLaunch]]
    """Makes the launches. May raise BackendError."""


NOTHING = Beside((), lambda: ())


class TooManyError(Exception):
    """Says that several pictures do not fit into memory together."""


class CompiledModel:
    """A model with its executor, and the schedules and plans of its launches."""

    def __init__(
        self,
        model: Model,
        executor: Executor,
        pool: MemoryPool,
        divided: Callable[[], Executor | None] = lambda: None,
    ) -> None:
        """`divided` makes an executor of the same program with cuts, if it has any. It may raise
        OutOfMemoryError."""
        self.model = model
        self.executor = executor
        self.pool = pool
        self._divided = divided
        self._is_divided = False
        self._other: Executor | None = None
        self._plans = LaunchPlans(pool.runtime, executor)
        self._schedules: OrderedDict[object, tuple[Schedule, float]] = OrderedDict()
        """Schedules with the free memory from which a better one may be found."""

    def build(self, source: np.dtype[Any], target: np.dtype[Any]) -> None:
        """Builds the kernels for a picture of the usual size and these dtypes, and uploads their
        weights. Raises BackendError, OutOfMemoryError."""
        for side in _USUAL_SIDES:
            if self._plans.build(Ends(1, source, target), (side, side)):
                return

    def close(self) -> None:
        """Frees the weights."""
        self.pool.runtime.forget(self)
        self.executor.close()
        if self._other is not None:
            self._other.close()

    def _with_cuts(self) -> Executor | None:
        """Returns the executor of the program with cuts, made once there is memory for it; None if
        there is none."""
        if not self._is_divided:
            try:
                self._other = self._divided()
            except OutOfMemoryError:
                return None
            self._is_divided = True
        return self._other

    def result_shape(self, shape: StackShape) -> StackShape:
        """Returns the shape of the results for pictures of that shape."""
        pictures, height, width, _ = shape
        scale = self.model.scale
        return pictures, height * scale, width * scale, self.model.out_planes

    def schedule(self, shape: StackShape, tile: int | None, bands: int, most: int) -> Schedule:
        """Returns a schedule for pictures of that shape in at most `most` bytes. Raises
        MapMemoryError.

        The schedule is cached for further such pictures until there is much more memory.
        """
        key = (shape, tile, bands)
        found = self._known(key, most)
        if found is None:
            found = tile_plan.find(
                self.executor,
                shape[1:3],
                shape[0],
                self._map_memory(most),
                tile,
                bands,
                self._with_cuts,
            )
            self._keep(key, found, most)
        return found

    def undivided(
        self, shape: StackShape, source: np.dtype[Any], target: np.dtype[Any], most: int
    ) -> LaunchPlan | None:
        """Returns the launches for undivided pictures of that shape, with those dtypes of pictures
        and results; None if they need more than `most` bytes."""
        pictures, rows, columns, _ = shape
        plan = self._plans.plan(Ends(pictures, source, target), (rows, columns))
        if plan is None:
            return None
        memory = self._map_memory(most)
        most = min(memory.total, memory.scratch, memory.buffer)
        return plan if plan.maps <= most else None

    def queue(
        self,
        plan: LaunchPlan,
        source: Buffer,
        target: Buffer,
        flags: Flags,
        taken: ScopedAllocation,
        before: Beside = NOTHING,
        behind: Beside = NOTHING,
    ) -> None:
        """Queues the launches of a plan, in buffers of `taken`, between those of `before` and
        `behind`. May raise OutOfMemoryError."""
        runtime = self.pool.runtime
        maps = taken.buffer(plan.maps)
        count = self.executor.vector_bytes(plan.pictures)
        vectors = taken.buffer(count) if count else maps
        buffers = Buffers(source, target, maps, vectors)
        key = (plan, *map(runtime.handle, buffers), flags.address, before.key, behind.key)

        def launches() -> Sequence[ReadyLaunch]:
            return [*before.make(), *plan.launches(buffers, flags), *behind.make()]

        runtime.replay(self, key, launches)

    def _map_memory(self, most: int) -> MapMemory:
        return MapMemory(most, self.pool.scratch_limit, self.pool.runtime.limits.max_buffer)

    def _known(self, key: object, most: int) -> Schedule | None:
        found, enough = self._schedules.get(key, (None, 0.0))
        if found is None or not found.scratch + found.kept <= most <= enough:
            return None
        self._schedules.move_to_end(key)
        return found

    def _keep(self, key: object, found: Schedule, most: int) -> None:
        while len(self._schedules) >= _KEPT_SCHEDULES:
            self._schedules.popitem(last=False)
        needs_more = not found.is_single and 4 * (found.scratch + found.kept) > most
        self._schedules[key] = (found, most * _MUCH_MORE if needs_more else math.inf)


class Execution:
    """Runs a compiled model on some pictures."""

    def __init__(
        self,
        compiled: CompiledModel,
        source: DevicePixels,
        dtype: np.dtype[Any],
        tile: int | None,
        on_progress: Progress,
        flags: Flags,
    ) -> None:
        """The kernels set `flags` for pictures with values too large for the executor."""
        self._compiled = compiled
        self._source = source
        self._dtype = dtype
        self._tile = tile
        self._on_progress = on_progress
        self._flags = flags
        self._reported = 0.0
        self._pool = compiled.pool
        self._runtime = compiled.pool.runtime
        self._shape = compiled.result_shape(source.shape)

    def to_device(self, taken: ScopedAllocation) -> DevicePixels:
        """Computes the results into a buffer of `taken`, and returns it. Raises BackendError,
        TooManyError."""
        with words_for_memory(self._runtime, self._shape):
            target = self._target(taken, self._shape)
        try:
            self._all(target)
        except MapMemoryError as error:
            raise self._failure(error) from error
        return target

    def to_host(self, results: NDArray[Any]) -> None:
        """Computes and fetches the results, in bands if they do not fit. Raises BackendError,
        TooManyError."""
        rows = self._shape[1]
        bands = 1
        while True:
            try:
                self._fetch(results, bands)
                return
            except (MapMemoryError, OutOfMemoryError) as error:
                self._pool.release()
                bands *= 2
                if self._shape[0] > 1 or rows // bands < _FEWEST_BAND_ROWS:
                    raise self._failure(error) from error

    def _fetch(self, results: NDArray[Any], bands: int) -> None:
        """Computes and fetches the results in at least `bands` bands. Raises MapMemoryError,
        OutOfMemoryError."""
        _, rows, columns, planes = self._shape
        with self._pool.taken() as taken:
            if bands == 1:
                target = self._target(taken, self._shape)
                self._all(target)
                self._runtime.download(target.buffer, results)
                return
            # Tiles are cut at multiples of some pixels, so a band may be a little higher.
            most = min(-(-rows // bands) + _FEWEST_BAND_ROWS, rows)
            target = self._target(taken, (1, most, columns, planes))
            self._all(target, bands, results)

    def _target(self, taken: ScopedAllocation, shape: StackShape) -> DevicePixels:
        size = int(np.prod(shape, dtype=np.int64)) * self._dtype.itemsize
        return DevicePixels(taken.buffer(size), self._dtype, shape)

    def _all(
        self, target: DevicePixels, bands: int = 1, result: NDArray[Any] | None = None
    ) -> None:
        """Runs every pass. With a `result`, `target` holds one band at a time, which is fetched
        into it.

        When memory runs out, it starts again with a schedule for less. Raises MapMemoryError.
        """
        most = self._pool.free()
        if result is None and not self._is_tiled():
            plan = self._compiled.undivided(
                self._source.shape, self._source.dtype, self._dtype, self._room(most)
            )
            if plan is not None:
                if self._undivided(plan, target):
                    return
                most = plan.maps * 3 // 4
        while True:
            found = self._schedule(bands, most)
            with self._pool.taken() as taken:
                try:
                    self._run(found, target, taken, result)
                    return
                except OutOfMemoryError:
                    pass
            self._pool.release()
            most = min(most, found.scratch + found.kept) * 3 // 4

    def _is_tiled(self) -> bool:
        return self._tile is not None and max(self._shape[1:3]) > self._tile

    def _undivided(self, plan: LaunchPlan, target: DevicePixels) -> bool:
        """Runs a plan; returns False if there is too little memory for it."""
        with self._pool.taken() as taken:
            try:
                self._compiled.queue(plan, self._source.buffer, target.buffer, self._flags, taken)
            except OutOfMemoryError:
                self._pool.release()
                return False
            self._runtime.synchronize()
        self._report(1.0)
        return True

    def _room(self, most: int) -> int:
        """Returns the bytes that maps may take of `most` bytes."""
        return most - self._compiled.executor.vector_bytes(self._source.shape[0])

    def _schedule(self, bands: int, most: int) -> Schedule:
        return self._compiled.schedule(self._source.shape, self._tile, bands, self._room(most))

    def _run(
        self,
        found: Schedule,
        target: DevicePixels,
        taken: ScopedAllocation,
        result: NDArray[Any] | None,
    ) -> None:
        """Runs every pass of a schedule and waits for it. With a `result`, fetches each row of
        tiles into it. May raise OutOfMemoryError."""
        executor, runtime = found.executor, self._runtime
        scratch = taken.buffer(found.scratch)
        maps = scratch, taken.buffer(found.kept) if found.kept else scratch
        vectors = taken.buffer(executor.vector_bytes(found.pictures))
        done = 0.0
        runtime.queue(launch.ready(runtime, executor.clearing(vectors, found.pictures)))
        for number, rows in enumerate(found.passes):
            for row in rows:
                band, held = target, Box(0, 0, *self._shape[1:3])
                if result is not None:
                    tile, (count, _, columns, planes) = row[0].tile, target.shape
                    band = replace(target, shape=(count, tile.height, columns, planes))
                    held = Box(tile.top, 0, tile.height, columns)
                for one in row:
                    batch = Batch(self._source, band, held, one.tile, found.sizes, self._flags)
                    places = {
                        value: BufferPlace(maps[place.is_kept], place.offset, place.box)
                        for value, place in one.places.items()
                    }
                    ends = found.phases[number] if one is rows[-1][-1] else None
                    work = PassWork(batch, one.work, places, one.sums, vectors, ends)
                    runtime.queue(launch.ready(runtime, executor.launches(work)))
                    runtime.synchronize()
                    done += pass_cost(executor.program, one)
                    self._report(min(done / found.cost, 1.0))
                if result is not None and number == len(found.passes) - 1:
                    runtime.download(band.buffer, result[0, held.top : held.bottom])
        self._report(1.0)

    def _report(self, part: float) -> None:
        """Reports the progress of an attempt beyond that of earlier attempts."""
        if part > self._reported:
            part, self._reported = part - self._reported, part
            self._on_progress(part)

    def _failure(self, error: Exception) -> Exception:
        if self._shape[0] == 1 and isinstance(error, MapMemoryError):
            return DeviceMemoryError(
                f"{self._runtime.device.name}: no memory for even a small tile of the network's"
                " maps",
                "close other programs that use this device, or use another backend or -m upconv_7",
            )
        return no_room(self._runtime.device, self._shape)


def no_room(device: Device, shape: StackShape) -> Exception:
    """Returns the error for pictures of that shape that do not fit into memory."""
    pictures, rows, columns, _ = shape
    if pictures > 1:
        return TooManyError()
    return DeviceMemoryError(
        f"{device.name}: no memory for a picture of {columns}x{rows} pixels",
        "close other programs that use this device, or use another backend or -m upconv_7",
    )


@contextmanager
def words_for_memory(runtime: Runtime, shape: StackShape) -> Iterator[None]:
    """Turns OutOfMemoryError into TooManyError, or for a single picture DeviceMemoryError."""
    try:
        yield
    except OutOfMemoryError as error:
        raise no_room(runtime.device, shape) from error
