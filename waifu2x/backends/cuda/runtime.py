"""A Runtime on pycuda."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pycuda.driver as cuda
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends.cuda.compiler import compiled
from waifu2x.backends.cuda.graph import Graph, capture
from waifu2x.backends.cuda.machine import describe
from waifu2x.backends.cuda.memory import HostMemory, abandon
from waifu2x.backends.gpu.replay import Records
from waifu2x.backends.gpu.runtime import Argument, Kernel, Limits, Macros, OutOfMemoryError
from waifu2x.errors import BackendError, DeviceError

_ATTRIBUTE = cuda.device_attribute
_MOST_CLEARED = 1 << 31
"""Bytes at a time: the library may count them in 32 bits."""
_STATIC_SHARED_BYTES = 48 << 10
"""Of a block, without asking."""


class CudaBuffer:
    """See Buffer."""

    def __init__(self, runtime: CudaRuntime, size: int) -> None:
        self.size = size
        self._runtime = runtime
        self._memory = cuda.mem_alloc(max(size, 1))
        self.address = int(self._memory)

    def release(self) -> None:
        """See Buffer."""
        if self.size:
            self._runtime.free(self._memory)
            self.size = 0


@dataclass(eq=False)
class CudaKernel:
    """See Kernel."""

    name: str
    group: int
    function: Any
    shared: int
    """Bytes of shared memory of a block, beyond what the kernel declares."""


class Launch(NamedTuple):
    """A kernel with its arguments, ready to be queued any number of times."""

    kernel: CudaKernel
    blocks: tuple[int, int, int]
    packed: bytes
    """The arguments as the kernel finds them."""


class Record:
    """Launches that come again: queued one by one the first times, then as a graph."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = tuple(launches)
        self.is_captured = False
        """Be it in vain: then `graph` is None."""
        self.graph: Graph | None = None


class CudaProgram:
    """See Program."""

    def __init__(self, runtime: CudaRuntime, module: Any) -> None:
        self._runtime = runtime
        self._module = module
        self._kernels: list[CudaKernel] = []

    def kernel(self, name: str, group: int, shared: int = 0) -> CudaKernel:
        """See Program. `shared` is that of CudaKernel. Raises BackendError."""
        with self._runtime.current():
            function = self._module.get_function(name)
            if shared > _STATIC_SHARED_BYTES:
                attribute = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                function.set_attribute(attribute, shared)
        kernel = CudaKernel(name, group, function, shared)
        self._kernels.append(kernel)
        return kernel

    def release(self) -> None:
        """Frees the module, which each function keeps."""
        for kernel in self._kernels:
            kernel.function = None
        self._module = None


class CudaRuntime:
    """See Runtime."""

    def __init__(self, device: cuda.Device) -> None:
        """Raises DeviceError for one that cannot be opened."""
        self.device = describe(device)
        self.capability: tuple[int, int] = device.compute_capability()
        """As in sm_90: (9, 0)."""
        self.shared_bytes = int(device.get_attribute(_ATTRIBUTE.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))
        """Shared memory that a block may have."""
        self.limits = Limits(
            is_cpu=False,
            compute_units=device.get_attribute(_ATTRIBUTE.MULTIPROCESSOR_COUNT),
            max_group=device.get_attribute(_ATTRIBUTE.MAX_THREADS_PER_BLOCK),
            local_bytes=device.get_attribute(_ATTRIBUTE.MAX_SHARED_MEMORY_PER_BLOCK),
            vector=device.get_attribute(_ATTRIBUTE.WARP_SIZE),
            max_buffer=device.total_memory(),
        )
        self._is_broken = False
        try:
            self._context = device.retain_primary_context()
            self._context.push()
            try:
                self._stream = cuda.Stream()
            finally:
                self._context.pop()
        except cuda.Error as error:
            raise DeviceError(
                f"{self.device.name}: cannot be opened ({error})",
                "close other programs that use it, or use another backend",
            ) from error
        self._host = HostMemory(self._context)
        self._modules: dict[object, CudaProgram] = {}
        self._records = Records[Record](self._forget)
        self._recording: list[Launch] | None = None
        self._marks: list[tuple[Kernel, Any, Any]] | None = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes this device the thread's own for a while, and turns its errors into ours.

        Raises OutOfMemoryError, DeviceError.
        """
        try:
            self._context.push()
            try:
                yield
            finally:
                self._context.pop()
        except cuda.MemoryError as error:
            raise OutOfMemoryError(str(error)) from error
        except cuda.Error as error:
            self._is_broken = self._is_broken or not self._answers()
            raise DeviceError(
                f"{self.device.name}: its driver stopped the work ({error})",
                "start the program again, or use another backend",
            ) from error

    def free(self, memory: Any) -> None:
        """Frees what was allocated."""
        if self._is_broken:
            abandon(memory)
            return
        with suppress(DeviceError), self.current():
            memory.free()

    def _answers(self) -> bool:
        """Whether the context still works: after an illegal access, say, every call fails."""
        try:
            self._context.push()
            try:
                cuda.Context.synchronize()
            finally:
                self._context.pop()
        except cuda.Error:
            return False
        return True

    def free_memory(self) -> int:
        """See Runtime."""
        with self.current():
            return int(cuda.mem_get_info()[0])

    def allocate(self, size: int) -> CudaBuffer:
        """See Runtime: all zeros, though nobody counts on it.

        Tiles read on beyond what has been written, to no effect (see `kernels/tensor.cuh`); so that
        even this is never memory that nobody has written, it is once, when it is allocated.
        """
        with self.current():
            buffer = CudaBuffer(self, size)
            for start in range(0, size, _MOST_CLEARED):
                part = min(size - start, _MOST_CLEARED)
                cuda.memset_d8_async(buffer.address + start, 0, part, self._stream)
        return buffer

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """See Runtime: page-locked."""
        with self.current():
            return self._host.array(shape, dtype)

    def upload(self, buffer: Any, array: NDArray[Any]) -> None:
        """See Runtime."""
        with self.current():
            staged = self._host.array(array.shape, array.dtype)
            np.copyto(staged, array)
            cuda.memcpy_htod_async(buffer.address, staged, self._stream)
            # The pages may be taken again only when they are read.
            self._stream.synchronize()

    def download(self, buffer: Any, array: NDArray[Any]) -> None:
        """See Runtime."""
        with self.current():
            cuda.memcpy_dtoh_async(array, buffer.address, self._stream)
            self._stream.synchronize()

    def build(self, stem: str, macros: Macros) -> CudaProgram:
        """See Runtime."""
        key = _key(stem, macros)
        if key not in self._modules:
            with self.current():
                try:
                    module = cuda.module_from_buffer(compiled(stem, macros, self.capability))
                except (cuda.LogicError, cuda.RuntimeError):
                    module = self._rebuilt(stem, macros)
            self._modules[key] = CudaProgram(self, module)
        return self._modules[key]

    def _rebuilt(self, stem: str, macros: Macros) -> Any:
        """The module of a file whose code in the cache the driver does not take."""
        code = compiled(stem, macros, self.capability, afresh=True)
        try:
            return cuda.module_from_buffer(code)
        except (cuda.LogicError, cuda.RuntimeError) as error:
            raise BackendError(
                f"{self.device.name}: its driver does not take the code of {stem} ({error}):"
                " update the driver, or use another backend"
            ) from error

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Compiles what `build` will be asked for, all at once: nvcc runs on one core."""
        missing = [source for source in wanted if _key(*source) not in self._modules]
        with ThreadPoolExecutor(thread_name_prefix="waifu2x-nvcc") as pool:
            for future in [pool.submit(compiled, *source, self.capability) for source in missing]:
                future.result()

    def launch(
        self, kernel: Any, groups: tuple[int, int, int], *arguments: Argument | bytes
    ) -> None:
        """See Runtime; bytes are arguments that are packed already."""
        self.queue([Launch(kernel, groups, pack_arguments(arguments))])

    def queue(self, launches: Sequence[Launch]) -> None:
        """Queues kernels, one after the other. May raise OutOfMemoryError."""
        if self._recording is not None:
            self._recording.extend(launches)
        with self.current():
            self._queue_all(launches)

    def _queue_all(self, launches: Sequence[Launch]) -> None:
        for kernel, blocks, packed in launches:
            if self._marks is not None:
                before, after = cuda.Event(), cuda.Event()
                before.record(self._stream)
            # What pycuda's prepared calls do, with arguments that are packed already.
            kernel.function._launch_kernel(
                blocks, (kernel.group, 1, 1), packed, kernel.shared, self._stream
            )
            if self._marks is not None:
                after.record(self._stream)
                self._marks.append((kernel, before, after))

    def replay(self, key: Hashable, queue: Callable[[], None]) -> None:
        """See Runtime: from the second time on, what is kept is a graph."""
        record = self._records.find(key)
        if record is None:
            recording: list[Launch] = []
            self._recording = recording
            try:
                queue()
            finally:
                self._recording = None
            self._records.keep(key, Record(recording))
            return
        if self._marks is None:
            with self.current():
                if not record.is_captured:
                    record.is_captured = True
                    # What cannot be captured can still be queued, or says why not.
                    with suppress(cuda.Error):
                        queue_all = partial(self._queue_all, record.launches)
                        record.graph = capture(self._stream, queue_all)
                if record.graph is not None and record.graph.launch(self._stream):
                    return
        self.queue(record.launches)

    def _forget(self, record: Record) -> None:
        if record.graph is not None:
            with self.current():
                record.graph.close()

    def synchronize(self) -> None:
        """See Runtime."""
        with self.current():
            self._stream.synchronize()

    @contextmanager
    def span(self) -> Iterator[list[float]]:
        """The seconds from what is queued first inside to what is queued last, by the device."""
        seconds: list[float] = []
        with self.current():
            before, after = cuda.Event(), cuda.Event()
            before.record(self._stream)
        yield seconds
        with self.current():
            after.record(self._stream)
            after.synchronize()
            seconds.append(after.time_since(before) * 1e-3)

    @contextmanager
    def timed(self) -> Iterator[list[tuple[Kernel, float]]]:
        """See Runtime."""
        times: list[tuple[Kernel, float]] = []
        marks: list[tuple[Kernel, Any, Any]] = []
        self._marks = marks
        try:
            yield times
            self.synchronize()
        finally:
            self._marks = None
        with self.current():
            for kernel, before, after in marks:
                times.append((kernel, after.time_since(before) * 1e-3))

    def close(self) -> None:
        """See Runtime."""
        if self._stream is None:
            return
        with suppress(DeviceError, OutOfMemoryError), self.current():
            self._stream.synchronize()
            self._records.clear()
            self._host.close()
            # All that has to be freed in this context: networks may live on, and the garbage
            # collector comes in any thread.
            for program in self._modules.values():
                program.release()
            self._modules.clear()
            self._stream = None
        if self._is_broken:
            self._host.abandon()
            for piece in (self._context, self._stream, self._modules):
                abandon(piece)


def _key(stem: str, macros: Macros) -> object:
    """Of a program."""
    return (stem, *macros.items())


def pack_arguments(arguments: Sequence[Argument | bytes]) -> bytes:
    """Arguments as a kernel finds them: each at a multiple of its size, bytes as they are."""
    form, values = "", list[float | bytes]()
    for argument in arguments:
        if isinstance(argument, CudaBuffer):
            form += "P"
            values.append(argument.address)
        elif isinstance(argument, np.int32 | np.float32):
            form += "f" if isinstance(argument, np.float32) else "i"
            values.append(argument.item())
        elif isinstance(argument, bytes):
            form += f"{len(argument)}s"
            values.append(argument)
        else:
            raise TypeError(f"no argument of a kernel: {argument!r}")
    return struct.pack(form, *values)
