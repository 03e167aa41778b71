"""Defines a Driver through pycuda, whose objects free themselves in the context of their making.

If that context is broken, they print that they cannot be freed, and raise nothing: so this program
frees them only in a context that still works.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pycuda.driver as cuda
from numpy.typing import NDArray

from waifu2x.backends.cuda.driver import Attribute


class PycudaDriver:
    """The driver's functions through pycuda."""

    name = "pycuda"
    error = cuda.Error
    memory_error = cuda.MemoryError

    def version(self) -> int:
        return int(cuda.get_driver_version())

    def devices(self) -> Sequence[Any]:
        cuda.init()
        return [cuda.Device(number) for number in range(cuda.Device.count())]

    def device_name(self, device: Any) -> str:
        return str(device.name())

    def total_memory(self, device: Any) -> int:
        return int(device.total_memory())

    def attribute(self, device: Any, attribute: Attribute) -> int:
        return int(device.get_attribute(getattr(cuda.device_attribute, attribute.name)))

    def retain_context(self, device: Any) -> Any:
        return device.retain_primary_context()

    def push(self, context: Any) -> None:
        context.push()

    def pop(self) -> None:
        cuda.Context.pop()

    def synchronize(self) -> None:
        cuda.Context.synchronize()

    def free_memory(self) -> int:
        return int(cuda.mem_get_info()[0])

    def allocate(self, size: int) -> Any:
        return cuda.mem_alloc(size)

    def free(self, memory: Any) -> None:
        cuda.Context.synchronize()
        memory.free()

    def clear(self, address: int, size: int, stream: Any) -> None:
        cuda.memset_d8_async(address, 0, size, stream)

    def lock_pages(self, size: int) -> NDArray[np.uint8]:
        pages: NDArray[np.uint8] = cuda.pagelocked_empty(size, np.uint8)
        return pages

    def free_pages(self, pages: NDArray[np.uint8]) -> None:
        base: Any = pages.base
        cuda.Context.synchronize()
        base.free()

    def upload(self, address: int, array: NDArray[Any], stream: Any) -> None:
        cuda.memcpy_htod_async(address, array, stream)

    def download(self, array: NDArray[Any], address: int, stream: Any) -> None:
        cuda.memcpy_dtoh_async(array, address, stream)

    def create_stream(self) -> Any:
        return cuda.Stream()

    def stream_handle(self, stream: Any) -> int:
        return int(stream.handle)

    def wait(self, stream: Any) -> None:
        stream.synchronize()

    def destroy_stream(self, stream: Any) -> None:
        """Does nothing: a stream is freed with its last reference."""

    def create_event(self, *, blocking: bool = False) -> Any:
        """Makes an event, and keeps a reference to it until `destroy_event`."""
        event = cuda.Event(cuda.event_flags.BLOCKING_SYNC if blocking else 0)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(event))
        return event

    def record_event(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def follow(self, stream: Any, event: Any) -> None:
        stream.wait_for_event(event)

    def wait_event(self, event: Any) -> None:
        event.synchronize()

    def is_over(self, event: Any) -> bool:
        return bool(event.query())

    def seconds(self, before: Any, after: Any) -> float:
        after.synchronize()
        return float(after.time_since(before)) * 1e-3

    def destroy_event(self, event: Any) -> None:
        """Drops the reference that `create_event` keeps."""
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(event))

    def load_module(self, code: bytes) -> Any:
        return cuda.module_from_buffer(code)

    def unload_module(self, module: Any) -> None:
        """Does nothing: a module is freed with the last reference to it and its functions."""

    def function(self, module: Any, name: str) -> Any:
        return module.get_function(name)

    def allow_shared(self, function: Any, size: int) -> None:
        function.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, size)

    def launch(
        self,
        function: Any,
        blocks: tuple[int, int, int],
        threads: int,
        packed: bytes,
        shared: int,
        stream: Any,
    ) -> None:
        """Launches a kernel as pycuda's prepared calls do, but with packed arguments."""
        function._launch_kernel(blocks, (threads, 1, 1), packed, shared, stream)
