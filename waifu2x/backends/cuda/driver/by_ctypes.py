"""Defines a Driver that calls NVIDIA's library by ctypes: handles are integers, and only contexts
free themselves."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.driver import Attribute
from waifu2x.backends.cuda.driver.library import library

_OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""
_NOT_READY = 600
"""CUDA_ERROR_NOT_READY."""
_MAX_DYNAMIC_SHARED_BYTES = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_BLOCKING_SYNC = 1
"""CU_EVENT_BLOCKING_SYNC."""
_NOTHING = ctypes.c_char * 0
"""A type for a pointer to any address: ctypes passes an array as its address."""
_MOST_ARGUMENT_BYTES = 4096
"""The most bytes of a launch's arguments (CUDA C++ Programming Guide, "Function Parameters")."""
_BUFFER, _BUFFER_SIZE, _END = 1, 2, 0
"""CU_LAUNCH_PARAM_...: the kind of the next item in a launch's extra arguments."""


class CallError(Exception):
    """Says which call of the driver failed, and why in the driver's words."""


class MemoryCallError(CallError):
    """Says that a call failed for lack of memory."""


class Context:
    """A primary context, retained for the life of this object."""

    def __init__(self, driver: CtypesDriver, device: int) -> None:
        handle = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), device)
        self.handle = handle.value
        # At its end, the process frees the context's memory in any case.
        release = weakref.finalize(self, library().cuDevicePrimaryCtxRelease_v2, device)
        release.atexit = False


class _Arguments(threading.local):
    """Holds the arguments of a launch, for each thread: others may launch at the same time."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_MOST_ARGUMENT_BYTES)
        self.size = ctypes.c_size_t()
        places = [_BUFFER, ctypes.addressof(self.buffer)]
        places += [_BUFFER_SIZE, ctypes.addressof(self.size), _END]
        self._places = (ctypes.c_void_p * len(places))(*places)
        self.extra = ctypes.addressof(self._places)
        """The address that `cuLaunchKernel` takes as `extra`."""


class CtypesDriver:
    """The driver's functions through ctypes, from the library that comes with the driver."""

    name = "NVIDIA's driver alone"
    error = CallError
    memory_error = MemoryCallError

    def __init__(self) -> None:
        """Raises OSError if the driver is missing."""
        self._library = library()
        # Prepared once, since a small picture takes as long as a few dozen calls.
        self._push, self._pop = library().cuCtxPushCurrent_v2, library().cuCtxPopCurrent_v2
        self._launch, self._query = library().cuLaunchKernel, library().cuEventQuery
        self._popped = ctypes.byref(ctypes.c_void_p())
        self._arguments = _Arguments()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver. Raises CallError."""
        status = getattr(self._library, name)(*arguments)
        if status:
            self._fail(name, status)

    def _fail(self, name: str, status: int) -> None:
        """Raises CallError for the status of a call."""
        reason = ctypes.c_char_p()
        self._library.cuGetErrorString(status, ctypes.byref(reason))
        text = (reason.value or f"error {status}".encode()).decode()
        kind = MemoryCallError if status == _OUT_OF_MEMORY else CallError
        raise kind(f"{name} failed: {text}")

    def _integer(self, name: str, *arguments: Any) -> int:
        """Returns the int that a call writes."""
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def _handle(self, name: str, *arguments: Any) -> int:
        """Returns the handle that a call writes."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def version(self) -> int:
        return self._integer("cuDriverGetVersion")

    def devices(self) -> Sequence[int]:
        self.call("cuInit", 0)
        count = self._integer("cuDeviceGetCount")
        return [self._integer("cuDeviceGet", number) for number in range(count)]

    def device_name(self, device: int) -> str:
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), device)
        return name.value.decode(errors="replace")

    def total_memory(self, device: int) -> int:
        size = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        return size.value

    def attribute(self, device: int, attribute: Attribute) -> int:
        return self._integer("cuDeviceGetAttribute", int(attribute), device)

    def retain_context(self, device: int) -> Context:
        return Context(self, device)

    def push(self, context: Context) -> None:
        if status := self._push(context.handle):
            self._fail("cuCtxPushCurrent_v2", status)

    def pop(self) -> None:
        if status := self._pop(self._popped):
            self._fail("cuCtxPopCurrent_v2", status)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def free_memory(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        return address.value

    def free(self, memory: int) -> None:
        self.call("cuMemFree_v2", memory)

    def clear(self, address: int, size: int, stream: int) -> None:
        self.call("cuMemsetD8Async", address, 0, size, stream)

    def lock_pages(self, size: int) -> NDArray[np.uint8]:
        address = self._handle("cuMemHostAlloc", size, 0)
        return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))

    def free_pages(self, pages: NDArray[np.uint8]) -> None:
        self.call("cuMemFreeHost", ctypes.addressof(_start(pages)))

    def upload(self, address: int, array: NDArray[Any], stream: int) -> None:
        # Pictures may be read-only, unlike pages and results.
        source = array.__array_interface__["data"][0]
        self.call("cuMemcpyHtoDAsync_v2", address, source, array.nbytes, stream)

    def download(self, array: NDArray[Any], address: int, stream: int) -> None:
        self.call("cuMemcpyDtoHAsync_v2", _start(array), address, array.nbytes, stream)

    def create_stream(self) -> int:
        return self._handle("cuStreamCreate", 0)

    def stream_handle(self, stream: int) -> int:
        return stream

    def wait(self, stream: int) -> None:
        self.call("cuStreamSynchronize", stream)

    def destroy_stream(self, stream: int) -> None:
        self.call("cuStreamDestroy_v2", stream)

    def create_event(self, *, blocking: bool = False) -> int:
        return self._handle("cuEventCreate", _BLOCKING_SYNC if blocking else 0)

    def record_event(self, event: int, stream: int) -> None:
        self.call("cuEventRecord", event, stream)

    def follow(self, stream: int, event: int) -> None:
        self.call("cuStreamWaitEvent", stream, event, 0)

    def wait_event(self, event: int) -> None:
        self.call("cuEventSynchronize", event)

    def is_over(self, event: int) -> bool:
        status = self._query(event)
        if status and status != _NOT_READY:
            self._fail("cuEventQuery", status)
        return not status

    def seconds(self, before: int, after: int) -> float:
        self.call("cuEventSynchronize", after)
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
        return milliseconds.value * 1e-3

    def destroy_event(self, event: int) -> None:
        self.call("cuEventDestroy_v2", event)

    def load_module(self, code: bytes) -> int:
        return self._handle("cuModuleLoadData", code)

    def unload_module(self, module: int) -> None:
        self.call("cuModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        return self._handle("cuModuleGetFunction", module, name.encode())

    def allow_shared(self, function: int, size: int) -> None:
        self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_BYTES, size)

    def launch(
        self,
        function: int,
        blocks: tuple[int, int, int],
        threads: int,
        packed: bytes,
        shared: int,
        stream: int,
    ) -> None:
        if len(packed) > _MOST_ARGUMENT_BYTES:
            raise CallError(f"{len(packed)} bytes of arguments, {_MOST_ARGUMENT_BYTES} at most")
        # The driver copies them before the call returns.
        own = self._arguments
        ctypes.memmove(own.buffer, packed, len(packed))
        own.size.value = len(packed)
        if status := self._launch(
            function, *blocks, threads, 1, 1, shared, stream, None, own.extra
        ):
            self._fail("cuLaunchKernel", status)


def _start(array: NDArray[Any]) -> Any:
    """Returns the first byte of a writable array as an argument of a call."""
    return _NOTHING.from_buffer(array.data)
