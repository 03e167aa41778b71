"""Defines the Runtime on NVIDIA's driver."""

from __future__ import annotations

import struct
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Pin
from waifu2x.backends.cuda.compilers.cached import compiled
from waifu2x.backends.cuda.driver import Attribute, Driver, current
from waifu2x.backends.cuda.driver.graph import Graph, capture
from waifu2x.backends.cuda.driver.machine import Machine
from waifu2x.backends.cuda.driver.memory import LOCKED_BYTES, HostMemory, abandon
from waifu2x.backends.engine.open_objects import OpenObjects
from waifu2x.backends.gpu.device.counted_memory import CountedMemory, OwnedBuffer
from waifu2x.backends.gpu.device.launch import packed, plain
from waifu2x.backends.gpu.device.replay import Records
from waifu2x.backends.gpu.device.runtime import (
    Argument,
    Kernel,
    Limits,
    Macros,
    OutOfMemoryError,
    ReadyLaunch,
)
from waifu2x.errors import BackendError, DeviceError
from waifu2x.system.lazy_dataclass import dataclass

_MOST_CLEARED = 1 << 31
"""The most bytes that one call zeroes: pycuda may count them in 32 bits."""
_FETCHERS, _BAND_BYTES = 4, 1 << 22
"""The threads that download a large result, and the bytes of each download."""
_SPIN_SECONDS = 1e-3
"""The longest busy wait."""
_STATIC_SHARED_BYTES = 48 << 10
"""The bytes of shared memory that every kernel may use without `allow_shared`."""


class CudaBuffer(OwnedBuffer):
    """Memory of a CUDA device."""

    def __init__(self, runtime: CudaRuntime, size: int) -> None:
        memory = runtime.driver.allocate(max(size, 1))
        super().__init__(runtime, size, runtime.free, memory, size)
        self.address = int(memory)


@dataclass(eq=False)
class CudaKernel:
    """A kernel of a loaded module."""

    name: str
    group: int
    function: Any
    shared: int
    """The bytes of shared memory of a block beyond those that the kernel declares."""
    module: CudaModule
    """Its module, which stays loaded while a kernel of it is referenced."""


class TimedLaunch(NamedTuple):
    """A timed launch, with the events around it."""

    kernel: Kernel
    before: Any
    after: Any


class Fetched(NamedTuple):
    """A download under way."""

    event: Any
    """The event of its end."""
    rest: Sequence[Callable[[], None]]
    """The work to do after that."""
    is_soon: bool
    """Whether to wait for it busily, since a sleeping thread wakes up late."""


class Record:
    """Repeated launches, which are queued one by one at first, then as a graph."""

    def __init__(self, launches: Sequence[ReadyLaunch]) -> None:
        self.launches = tuple(launches)
        self.is_captured = False
        """Whether a capture was tried; if it failed, `graph` is None."""
        self.graph: Graph | None = None


class _Current(threading.local):
    """The context manager `CudaRuntime.current`, for each thread. Nesting it costs next to nothing,
    since a small picture takes as long as a few dozen calls of the driver."""

    def __init__(self, runtime: CudaRuntime, context: Any) -> None:
        self._runtime = runtime
        self._context = context
        self._depth = 0

    def __enter__(self) -> None:
        if not self._depth:
            try:
                self._runtime.driver.push(self._context)
            except self._runtime.driver.error as error:
                raise self._runtime.fault(error) from error
        self._depth += 1

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._depth -= 1
        driver = self._runtime.driver
        try:
            if not self._depth:
                driver.pop()
        except driver.error as failed:
            error = failed
        if isinstance(error, driver.error):
            raise self._runtime.fault(error) from error


class CudaModule:
    """A loaded module of kernels, unloaded once neither it nor a kernel of it is referenced."""

    def __init__(self, runtime: CudaRuntime, module: Any) -> None:
        self._runtime = runtime
        self._held = [module]
        """The driver's module. It is removed from this list while its context is current, since
        pycuda unloads it with the last reference."""
        self._kernels = OpenObjects[CudaKernel]()
        self._unload = weakref.finalize(self, runtime.unload, self._held)
        self._unload.atexit = False

    def kernel(self, name: str, group: int, shared: int = 0) -> CudaKernel:
        """Returns a kernel with `shared` further bytes of shared memory. Raises BackendError."""
        driver = self._runtime.driver
        with self._runtime.current():
            function = driver.function(self._held[0], name)
            if shared > _STATIC_SHARED_BYTES:
                driver.allow_shared(function, shared)
        kernel = CudaKernel(name, group, function, shared, self)
        self._kernels.add(kernel)
        return kernel

    def release(self) -> None:
        """Unloads the module, which pycuda's functions keep alive. None of its kernels can be used
        after that. Its context must be current."""
        for kernel in self._kernels:
            kernel.function = None
        self._unload()


class CudaRuntime(CountedMemory):
    """A CUDA device and its streams."""

    def __init__(self, machine: Machine, device: Any) -> None:
        """Opens one of the machine's devices. Raises DeviceError if that fails."""
        super().__init__()
        self.driver: Driver = machine.driver
        self.device = machine.describe(device)
        self.capability = machine.capability(device)
        """The compute capability: (9, 0) for sm_90."""
        attribute = partial(self.driver.attribute, device)
        self.shared_bytes = attribute(Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        """The most bytes of shared memory of a block."""
        self.limits = Limits(
            is_cpu=False,
            compute_units=attribute(Attribute.MULTIPROCESSOR_COUNT),
            max_group=attribute(Attribute.MAX_THREADS_PER_BLOCK),
            local_bytes=attribute(Attribute.MAX_SHARED_MEMORY_PER_BLOCK),
            vector=attribute(Attribute.WARP_SIZE),
            max_buffer=self.driver.total_memory(device),
        )
        self._compile = partial(compiled, capability=self.capability, cuda=machine.cuda)
        self._is_broken = False
        self._has_cleared = False
        """Whether buffers are being zeroed for which the kernels' stream does not wait yet."""
        self._building = threading.Lock()
        try:
            self._context = self.driver.retain_context(device)
            with current(self.driver, self._context):
                self._stream = self.driver.create_stream()
                self._uploads = self.driver.create_stream()
                self._downloads = self.driver.create_stream()
        except self.driver.error as error:
            raise DeviceError(
                f"{self.device.name}: cannot be opened ({error})",
                "close other programs that use it, or use another backend",
            ) from error
        self._current = _Current(self, self._context)
        self._host = HostMemory(self.driver, self._context)
        self._modules: WeakValueDictionary[object, CudaModule] = WeakValueDictionary()
        self._records = Records[Record](self._forget)
        self._timed: list[TimedLaunch] | None = None
        self._events = list[Any]()
        """Events for reuse."""

    @property
    def stream(self) -> Any:
        """The stream of the kernels."""
        return self._stream

    def current(self) -> AbstractContextManager[None]:
        """Makes the device's context current, and turns the driver's errors into ours.

        Raises OutOfMemoryError, DeviceError.
        """
        return self._current

    def fault(self, error: Exception) -> Exception:
        """Returns our exception for an error of the driver."""
        if isinstance(error, self.driver.memory_error):
            return OutOfMemoryError(str(error))
        self._is_broken = self._is_broken or not self._answers()
        return DeviceError(
            f"{self.device.name}: its driver stopped the work ({error})",
            "start the program again, or use another backend",
        )

    def free(self, memory: Any, size: int) -> None:
        """Frees device memory of `size` bytes."""
        self.count(-size)
        if self._is_broken:
            abandon(memory)
            return
        with suppress(DeviceError), self.current():
            try:
                self.driver.free(memory)
            except self.driver.error:
                abandon(memory)
                raise

    def _answers(self) -> bool:
        """Returns whether the context works: after an illegal access, for one, no call does."""
        try:
            with current(self.driver, self._context):
                self.driver.synchronize()
        except self.driver.error:
            return False
        return True

    def free_memory(self) -> int:
        with self.current():
            return self.driver.free_memory()

    def allocate(self, size: int, *, for_maps: bool = False) -> CudaBuffer:
        """Returns a buffer; one for maps is zeroed before any kernel queued from now on."""
        with self.current():
            buffer = CudaBuffer(self, size)
            for start in range(0, size, _MOST_CLEARED) if for_maps else ():
                part = min(size - start, _MOST_CLEARED)
                # Not on the stream of kernels: another thread may be capturing it.
                self.driver.clear(buffer.address + start, part, self._uploads)
                self._has_cleared = True
        return buffer

    def _follow_clearing(self) -> None:
        """Makes kernels queued from now on wait for the zeroing under way."""
        if self._has_cleared:
            self._has_cleared = False
            self._follow(self._stream, self._uploads)

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised host array, page-locked unless it is very large."""
        with self.current():
            return self._host.array(shape, dtype)

    def is_locked(self, array: NDArray[Any]) -> bool:
        """Returns whether all of a C-contiguous array is page-locked."""
        return self._host.is_locked(array)

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory by registering it with the driver."""
        with self.current():
            return Pin(self._host.pin(memory))

    def upload(self, buffer: Any, array: NDArray[Any]) -> None:
        with self.current():
            staged = self._host.staged(array)
            self.driver.upload(buffer.address, staged, self._uploads)
            # The pages may be reused only once they are read.
            self.driver.wait(self._uploads)

    def download(self, buffer: Any, array: NDArray[Any]) -> None:
        self._download(array, buffer.address)

    def _download(self, array: NDArray[Any], address: int) -> None:
        if array.nbytes <= LOCKED_BYTES or self._host.is_locked(array):
            self._fetch(array, address)
            return
        # Page faults take the most time: several threads touch the pages, after a locked copy.
        flat = array.reshape(-1).view(np.uint8)

        def fetch(start: int) -> None:
            part = flat[start : start + _BAND_BYTES]
            staged = self.host_array(part.shape, np.uint8)
            self._fetch(staged, address + start)
            np.copyto(part, staged)

        with ThreadPoolExecutor(_FETCHERS, thread_name_prefix="waifu2x-download") as pool:
            for fetched in [
                pool.submit(fetch, start) for start in range(0, flat.size, _BAND_BYTES)
            ]:
                fetched.result()

    def _fetch(self, array: NDArray[Any], address: int) -> None:
        with self.current():
            self.driver.download(array, address, self._downloads)
            self.driver.wait(self._downloads)

    def build(self, stem: str, macros: Macros) -> CudaModule:
        key = _key(stem, macros)
        found = self._modules.get(key)
        if found is not None:
            return found
        with self._building:
            found = self._modules.get(key)
            if found is not None:  # another thread was quicker
                return found
            with self.current():
                try:
                    module = self.driver.load_module(self._compile(stem, macros))
                except self.driver.memory_error:
                    raise
                except self.driver.error:
                    if not self._answers():
                        raise
                    module = self._rebuilt(stem, macros)
            found = self._modules[key] = CudaModule(self, module)
        return found

    def unload(self, held: list[Any]) -> None:
        """Unloads the unused module that the list holds."""
        module = held.pop()
        if self._is_broken:
            abandon(module)
            return
        with suppress(DeviceError, OutOfMemoryError), self.current():
            try:
                self.driver.unload_module(module)
            except self.driver.error:
                abandon(module)
                raise
            del module

    def _rebuilt(self, stem: str, macros: Macros) -> Any:
        """Compiles a file again whose cached code the driver rejects, and returns its module."""
        code = self._compile(stem, macros, afresh=True)
        try:
            return self.driver.load_module(code)
        except self.driver.memory_error:
            raise
        except self.driver.error as error:
            raise BackendError(
                f"{self.device.name}: its driver does not take the code of {stem} ({error})",
                "update the driver, or use another backend",
            ) from error

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Compiles modules in parallel, each on one core."""
        by_key = {_key(*source): source for source in wanted}
        missing = [source for key, source in by_key.items() if key not in self._modules]
        with ThreadPoolExecutor(thread_name_prefix="waifu2x-compile") as pool:
            for future in [pool.submit(self._compile, *source) for source in missing]:
                future.result()

    def handle(self, buffer: Any) -> int:
        """Returns the address of a buffer."""
        return int(buffer.address)

    def packer(self, codes: str) -> Callable[..., bytes]:
        """Returns a function that packs arguments in C layout, each at a multiple of its size."""
        return _struct(codes).pack

    def launch(self, kernel: Any, groups: tuple[int, int, int], *arguments: Argument) -> None:
        self.queue([ReadyLaunch(kernel, groups, packed(self, plain(*arguments)))])

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        with self.current():
            self._follow_clearing()
            self._queue_all(launches)

    def _queue_all(self, launches: Sequence[ReadyLaunch]) -> None:
        driver, stream = self.driver, self._stream
        for kernel, blocks, arguments in launches:
            if self._timed is not None:
                before = self._now()
            driver.launch(kernel.function, blocks, kernel.group, arguments, kernel.shared, stream)
            if self._timed is not None:
                self._timed.append(TimedLaunch(kernel, before, self._now()))

    def replay(
        self, owner: object, key: Hashable, make: Callable[[], Sequence[ReadyLaunch]]
    ) -> None:
        """Queues the launches of `make`; repeated ones become a CUDA graph."""
        record = self._records.find(key)
        if record is None:
            record = Record(make())
            self.queue(record.launches)
            self._records.keep(owner, key, record)
            return
        if self._timed is None:
            stream = self.driver.stream_handle(self._stream)
            with self.current():
                self._follow_clearing()
                if not record.is_captured:
                    record.is_captured = True
                    # Launches that cannot be captured are queued below, which raises any error.
                    with suppress(self.driver.error):
                        queue_all = partial(self._queue_all, record.launches)
                        record.graph = capture(stream, queue_all)
                if record.graph is not None and record.graph.launch(stream):
                    return
        self.queue(record.launches)

    def forget(self, owner: object) -> None:
        """Frees the graphs of an owner's kernels."""
        self._records.drop(owner)

    def _forget(self, record: Record) -> None:
        if record.graph is not None:
            with self.current():
                record.graph.close()

    def send(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        address, held = buffer.address, []
        with self.current():
            stream = self._uploads
            if in_order:
                # The buffer may be new, and its zeroing under way in the other stream.
                self._follow_clearing()
                stream = self._stream
            for array in arrays:
                staged = self._host.staged(array)
                self.driver.upload(address, staged, stream)
                address += array.nbytes
                held.append(staged)
        return held

    def follow(self) -> None:
        with self.current():
            self._follow(self._stream, self._uploads)

    def fetch(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> Fetched:
        address = buffer.address
        rest: list[Callable[[], None]] = []
        with self.current():
            stream = self._stream if in_order else self._downloads
            if not in_order:
                self._follow(stream, self._stream)
            for array in arrays:
                if self._host.is_locked(array):
                    self.driver.download(array, address, stream)
                elif array.nbytes > LOCKED_BYTES:
                    rest.append(partial(self._download, array, address))
                else:
                    # The driver would block here for a copy into pages that are not locked.
                    target = self._host.array(array.shape, array.dtype)
                    self.driver.download(target, address, stream)
                    rest.append(partial(np.copyto, array, target))
                address += array.nbytes
            return Fetched(self._event_of(stream), rest, in_order)

    def wait(self, event: Fetched) -> None:
        with self.current():
            if not event.is_soon or not self._comes_soon(event.event):
                self.driver.wait_event(event.event)
        self._events.append(event.event)
        for finish in event.rest:
            finish()

    def _comes_soon(self, event: Any) -> bool:
        """Waits busily for an event, for a short time; returns whether it is complete."""
        end = time.perf_counter() + _SPIN_SECONDS
        while not self.driver.is_over(event):
            if time.perf_counter() > end:
                return False
        return True

    def _follow(self, stream: Any, other: Any) -> None:
        """Makes work queued on a stream from now on wait for the work queued on another."""
        event = self._event_of(other)
        self.driver.follow(stream, event)
        self._events.append(event)

    def _event_of(self, stream: Any) -> Any:
        """Returns an event for the end of the work queued on a stream; the caller puts it in
        `_events` for reuse."""
        try:
            event = self._events.pop()
        except IndexError:
            event = self.driver.create_event(blocking=True)
        self.driver.record_event(event, stream)
        return event

    def synchronize(self) -> None:
        with self.current():
            for stream in (self._uploads, self._stream, self._downloads):
                self.driver.wait(stream)

    @contextmanager
    def timed(self) -> Iterator[list[tuple[Kernel, float]]]:
        times: list[tuple[Kernel, float]] = []
        timed: list[TimedLaunch] = []
        self._timed = timed
        try:
            yield times
            self.synchronize()
        finally:
            self._timed = None
        with self.current():
            for kernel, before, after in timed:
                times.append((kernel, self._seconds(before, after)))

    def _now(self) -> Any:
        """Returns an event recorded now. The device's context must be current."""
        event = self.driver.create_event()
        self.driver.record_event(event, self._stream)
        return event

    def _seconds(self, before: Any, after: Any) -> float:
        """Returns the seconds between two events, which it destroys."""
        seconds = self.driver.seconds(before, after)
        for event in (before, after):
            self.driver.destroy_event(event)
        return seconds

    def close(self) -> None:
        if self._stream is None:
            return
        with suppress(DeviceError, OutOfMemoryError), self.current():
            self.driver.wait(self._stream)
            self._records.clear()
            self._host.close()
            while self._events:
                self.driver.destroy_event(self._events.pop())
            # All that must be freed in this context: networks may outlive it, and the garbage
            # collector runs in any thread.
            for module in list(self._modules.values()):
                module.release()
            streams = [self._stream, self._uploads, self._downloads]
            self._stream = self._uploads = self._downloads = None
            while streams:
                self.driver.destroy_stream(streams.pop())
        if self._is_broken:
            self._host.abandon()
            for part in (self._context, self._stream, self._uploads, self._downloads):
                abandon(part)
            for module in list(self._modules.values()):
                abandon(module)


def _key(stem: str, macros: Macros) -> object:
    """Returns the key of a module."""
    return (stem, *macros.items())


@cache
def _struct(codes: str) -> struct.Struct:
    return struct.Struct(codes)
