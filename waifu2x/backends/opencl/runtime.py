"""Defines the Runtime on pyopencl."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike, NDArray

from waifu2x import __version__
from waifu2x.backends import Pin
from waifu2x.backends.gpu.device import source
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
from waifu2x.backends.opencl.platforms import OPTIONS, describe, identity, is_gpu, keeps_programs
from waifu2x.errors import BackendError, DeviceError
from waifu2x.system import cache
from waifu2x.system.lazy_dataclass import dataclass

_KIND = "opencl"
_KEPT_BY_DRIVER = b""
"""The cache entry of a program that the driver's own cache holds."""
_NO_MEMORY = {
    cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
    cl.status_code.OUT_OF_RESOURCES,
    cl.status_code.OUT_OF_HOST_MEMORY,
    cl.status_code.INVALID_BUFFER_SIZE,
}
_KINDS: dict[str, Callable[[Any], Any]] = {
    "P": lambda buffer: buffer,
    "i": np.int32,
    "f": np.float32,
}
"""The conversions of arguments, by format character."""
_SHARED_MEMORY_PART = 2
"""The divisor of the memory that a device may use if it shares the machine's."""


class OpenClBuffer(OwnedBuffer):
    """Memory of an OpenCL device."""

    def __init__(self, runtime: OpenClRuntime, size: int) -> None:
        self.handle = cl.Buffer(runtime.context, cl.mem_flags.READ_WRITE, size)
        super().__init__(runtime, size, runtime.free, self.handle, size)


@dataclass(eq=False)
class OpenClKernel:
    """A kernel of a built program."""

    name: str
    group: int
    handle: cl.Kernel
    module: OpenClModule
    """Its module, which stays available to `build` while a kernel of it is referenced."""


class OpenClModule:
    """A built program of kernels."""

    def __init__(self, runtime: OpenClRuntime, handle: cl.Program) -> None:
        self._runtime = runtime
        self._handle = handle

    def kernel(self, name: str, group: int, shared: int = 0) -> OpenClKernel:
        """Returns the entry point of that name; OpenCL kernels declare all their memory."""
        with self._runtime.errors():
            return OpenClKernel(name, group, cl.Kernel(self._handle, name), self)


class _Fetched(NamedTuple):
    """A download to make once its event is complete."""

    event: cl.Event
    buffer: OpenClBuffer
    arrays: Sequence[NDArray[Any]]


class OpenClRuntime(CountedMemory):
    """An OpenCL device and its queue."""

    def __init__(self, device: cl.Device) -> None:
        """Opens a device. Raises DeviceError if that fails."""
        super().__init__()
        self.device = describe(device)
        self._device = device
        try:
            self.context = cl.Context([device])
            self._queue = cl.CommandQueue(self.context)
            self._uploads = cl.CommandQueue(self.context)
            self._downloads = cl.CommandQueue(self.context)
        except cl.Error as error:
            raise DeviceError(
                f"{self.device.name}: cannot be opened ({_first_line(error)})",
                "restart its driver, or use another backend",
            ) from error
        self.identity = identity(device)
        """The device and its compiler; see `platforms.identity`."""
        self.driver_keeps_programs = keeps_programs(device)
        self._building = threading.Lock()
        self._programs: WeakValueDictionary[str, OpenClModule] = WeakValueDictionary()
        self._records = Records[Sequence[ReadyLaunch]]()
        self._launches: list[tuple[Kernel, Any]] | None = None
        self.limits = Limits(
            is_cpu=not is_gpu(device),
            compute_units=device.max_compute_units,
            max_group=device.max_work_group_size,
            local_bytes=device.local_mem_size,
            vector=_in_step(device) if is_gpu(device) else _vector(device),
            max_buffer=device.max_mem_alloc_size,
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the library's errors into OutOfMemoryError, if they say so, or DeviceError."""
        try:
            yield
        except cl.Error as error:
            if error.code in _NO_MEMORY:
                raise OutOfMemoryError(str(error)) from error
            raise DeviceError(
                f"{self.device.name}: its driver stopped the work ({_first_line(error)})",
                "start the program again, or use another backend",
            ) from error

    def free(self, handle: cl.Buffer, size: int) -> None:
        """Frees a buffer of `size` bytes."""
        self.count(-size)
        with suppress(DeviceError, OutOfMemoryError), self.errors():
            handle.release()

    def current(self) -> AbstractContextManager[None]:
        """Does nothing: OpenCL has no current context."""
        return nullcontext()

    def free_memory(self) -> int:
        """Returns the bytes that may be allocated: OpenCL knows the size of the memory, not how
        much of it is free."""
        parts = _SHARED_MEMORY_PART if self._device.host_unified_memory else 1
        return int(self._device.global_mem_size) // parts - self.allocated

    def allocate(self, size: int, *, for_maps: bool = False) -> OpenClBuffer:
        """Returns a buffer with undefined content."""
        with self.errors():
            return OpenClBuffer(self, size)

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        return np.empty(shape, dtype)

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Does nothing: OpenCL cannot page-lock a caller's memory."""
        return Pin()

    def upload(self, buffer: Any, array: NDArray[Any]) -> None:
        self.send(buffer, [array])

    def download(self, buffer: Any, array: NDArray[Any]) -> None:
        self._download(buffer, [array])

    def _download(self, buffer: Any, arrays: Sequence[NDArray[Any]]) -> None:
        begin = 0
        with self.errors():
            for array in arrays:
                cl.enqueue_copy(
                    self._downloads, array, buffer.handle, src_offset=begin, is_blocking=True
                )
                begin += array.nbytes

    def build(self, stem: str, macros: Macros) -> OpenClModule:
        defined, lines = source.definitions(macros)
        text = lines + source.read(f"{stem}.cl")
        options = [*OPTIONS, *defined]
        if self.limits.is_cpu:
            options.append("-DON_CPU")
        key = cache.digest(__version__, cl.VERSION_TEXT, *self.identity, *options, text)
        found = self._programs.get(key)
        if found is not None:
            return found
        with self._building:
            found = self._programs.get(key)
            if found is None:  # no other thread was quicker
                found = OpenClModule(self, self._program(stem, text, options, key))
                self._programs[key] = found
            return found

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Builds programs one after the other, since drivers do not compile in parallel."""

    def _program(self, stem: str, text: str, options: list[str], key: str) -> cl.Program:
        """Loads a program from the cache, or compiles it. Raises BackendError."""
        binary = cache.load(_KIND, key)
        if binary:
            kept = self._from_binary(binary)
            if kept is not None:
                return kept
        if binary != _KEPT_BY_DRIVER:
            source.announce_compiling(self.device.name, _KIND)
        # pyopencl's own class would keep a second cache.
        handle = cl._cl._Program(self.context, text)
        try:
            handle._build(" ".join(options).encode(), [self._device])
        except cl.Error as error:
            raise BackendError(
                f"{self.device.name}: its driver cannot compile {stem}.cl ({_first_line(error)})",
                "update the driver, or use another backend",
            ) from error
        program = cl.Program(handle)
        made = _KEPT_BY_DRIVER
        if not self.driver_keeps_programs:
            (made,) = program.get_info(cl.program_info.BINARIES)
        if made != binary:
            cache.store(_KIND, key, made)
        return program

    def handle(self, buffer: Any) -> cl.Buffer:
        """Returns the library's handle of a buffer."""
        return buffer.handle

    def packer(self, codes: str) -> Callable[..., tuple[Any, ...]]:
        """Returns a function that converts numbers to those of C."""
        kinds = [_KINDS[code] for code in codes]
        return lambda *values: tuple(
            [kind(value) for kind, value in zip(kinds, values, strict=True)]
        )

    def launch(self, kernel: Any, groups: tuple[int, int, int], *arguments: Argument) -> None:
        self.queue([ReadyLaunch(kernel, groups, packed(self, plain(*arguments)))])

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        with self.errors():
            for kernel, groups, arguments in launches:
                size = (groups[0] * kernel.group, groups[1], groups[2])
                kernel.handle.set_args(*arguments)
                event = cl.enqueue_nd_range_kernel(
                    self._queue, kernel.handle, size, (kernel.group, 1, 1)
                )
                if self._launches is not None:
                    self._launches.append((kernel, event))

    def replay(
        self, owner: object, key: Hashable, make: Callable[[], Sequence[ReadyLaunch]]
    ) -> None:
        """Queues the launches of `make`, which are recorded for further calls."""
        record = self._records.find(key)
        if record is None:
            record = make()
            self._records.keep(owner, key, record)
        self.queue(record)

    def forget(self, owner: object) -> None:
        """Drops the launches of an owner's kernels."""
        self._records.drop(owner)

    def send(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        """Copies arrays to the device, and waits for that."""
        begin = 0
        with self.errors():
            for array in arrays:
                cl.enqueue_copy(
                    self._uploads, buffer.handle, array, dst_offset=begin, is_blocking=True
                )
                begin += array.nbytes
        return None

    def follow(self) -> None:
        """Does nothing: everything sent has arrived."""

    def fetch(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> _Fetched:
        """Marks the end of the work on results; `wait` copies them."""
        with self.errors():
            event = cl.enqueue_marker(self._queue)
            self._queue.flush()
            return _Fetched(event, buffer, arrays)

    def wait(self, event: _Fetched) -> None:
        with self.errors():
            event.event.wait()
        self._download(event.buffer, event.arrays)

    def synchronize(self) -> None:
        with self.errors():
            self._queue.finish()

    @contextmanager
    def timed(self) -> Iterator[list[tuple[Kernel, float]]]:
        times: list[tuple[Kernel, float]] = []
        plain = self._queue
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self.context, properties=profiling)
        launches: list[tuple[Kernel, Any]] = []
        self._launches = launches
        try:
            yield times
            self.synchronize()
        finally:
            self._queue, self._launches = plain, None
        for kernel, event in launches:
            times.append((kernel, (event.profile.end - event.profile.start) * 1e-9))

    def close(self) -> None:
        """Ends the work; pyopencl's objects are freed with their last references."""
        with suppress(DeviceError, OutOfMemoryError):
            self.synchronize()
        self._records.clear()

    def _from_binary(self, binary: bytes) -> cl.Program | None:
        """Builds a program from a cached binary; None if the driver rejects it for any reason."""
        try:
            return cl.Program(self.context, [self._device], [binary]).build()
        except cl.Error:
            return None


def _in_step(device: cl.Device) -> int:
    """Returns the work-items of a GPU that run in lockstep, as extensions report, or else 32."""
    for attribute in ("warp_size_nv", "wavefront_width_amd"):
        try:
            return int(getattr(device, attribute))
        except (AttributeError, cl.Error):
            continue
    return 32


def _vector(device: cl.Device) -> int:
    """Returns the floats of a processor's vectors; PoCL 3 says 16 where its library supports 8."""
    return min(int(device.native_vector_width_float), 8)


def _first_line(error: cl.Error) -> str:
    return str(error).partition("\n")[0].strip()
