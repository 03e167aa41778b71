"""Defines the calls of NVIDIA's driver that the cuda backend makes.

They go through pycuda where it is installed (`by_pycuda`), else through the driver's own
library by ctypes (`by_ctypes`), which needs nothing but the driver. Names, numbers and meanings are
those of the CUDA Driver API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from waifu2x.errors import NotInstalledError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Attribute(IntEnum):
    """Attributes of a device: members of CUdevice_attribute."""

    MAX_THREADS_PER_BLOCK = 1
    MAX_SHARED_MEMORY_PER_BLOCK = 8
    WARP_SIZE = 10
    MULTIPROCESSOR_COUNT = 16
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


class Driver(Protocol):
    """The driver's calls. Each implementation has its own types of devices, contexts and streams.

    All but the first few need the context of their arguments to be current in the thread. Each may
    raise `error`, a superclass of `memory_error`. Each kind of object is freed by its own call
    only.
    """

    @property
    def name(self) -> str:
        """The name of the library that makes the calls, for display."""

    @property
    def error(self) -> type[Exception]:
        """The class of all errors of its calls."""

    @property
    def memory_error(self) -> type[Exception]:
        """The class of errors for lack of memory."""

    def version(self) -> int:
        """Returns the driver's CUDA version: 12040 for 12.4. May be called before `devices`."""

    def devices(self) -> Sequence[Any]:
        """Returns all devices in the driver's order. It initialises the driver, which takes a
        while."""

    def device_name(self, device: Any) -> str:
        """Returns a device's display name."""

    def total_memory(self, device: Any) -> int:
        """Returns the bytes of a device's memory."""

    def attribute(self, device: Any, attribute: Attribute) -> int: ...

    def retain_context(self, device: Any) -> Any:
        """Returns the primary context, retained for as long as the result is referenced."""

    def push(self, context: Any) -> None:
        """Makes a context the thread's current one."""

    def pop(self) -> None:
        """Makes the previous context current again."""

    def synchronize(self) -> None:
        """Waits for all work of the context."""

    def free_memory(self) -> int:
        """Returns the free bytes of the device."""

    def allocate(self, size: int) -> Any:
        """Allocates device memory; `int` of the result is its address."""

    def free(self, memory: Any) -> None:
        """Frees memory that `allocate` returned."""

    def clear(self, address: int, size: int, stream: Any) -> None:
        """Queues the zeroing of memory."""

    def lock_pages(self, size: int) -> NDArray[np.uint8]:
        """Allocates uninitialised page-locked host memory, for copies at full speed."""

    def free_pages(self, pages: NDArray[np.uint8]) -> None:
        """Frees pages that `lock_pages` returned; they must not be used after that."""

    def upload(self, address: int, array: NDArray[Any], stream: Any) -> None:
        """Queues a copy of a C-contiguous array to the device."""

    def download(self, array: NDArray[Any], address: int, stream: Any) -> None:
        """Queues a copy into a C-contiguous array."""

    def create_stream(self) -> Any:
        """Returns a new stream."""

    def stream_handle(self, stream: Any) -> int:
        """Returns the driver's handle of a stream."""

    def wait(self, stream: Any) -> None:
        """Waits for all work that is queued on a stream."""

    def destroy_stream(self, stream: Any) -> None:
        """Destroys a stream of `create_stream`."""

    def create_event(self, *, blocking: bool = False) -> Any:
        """Returns an event, which can be recorded many times. Waiting for a `blocking` event
        sleeps; otherwise it keeps a core busy, and ends a little earlier."""

    def record_event(self, event: Any, stream: Any) -> None:
        """Records an event in a stream: it completes once all work queued before it is done."""

    def follow(self, stream: Any, event: Any) -> None:
        """Makes work queued on a stream from now on wait for an event."""

    def wait_event(self, event: Any) -> None:
        """Waits for an event."""

    def is_over(self, event: Any) -> bool:
        """Returns whether an event is complete."""

    def seconds(self, before: Any, after: Any) -> float:
        """Returns the seconds between two events, after waiting for the second."""

    def destroy_event(self, event: Any) -> None:
        """Destroys an event of `create_event`."""

    def load_module(self, code: bytes) -> Any:
        """Loads a module from a cubin or PTX."""

    def unload_module(self, module: Any) -> None:
        """Unloads a module whose functions are no longer referenced."""

    def function(self, module: Any, name: str) -> Any:
        """Returns a kernel of a module."""

    def allow_shared(self, function: Any, size: int) -> None:
        """Allows `size` bytes of dynamic shared memory for the blocks of a kernel."""

    def launch(
        self,
        function: Any,
        blocks: tuple[int, int, int],
        threads: int,
        packed: bytes,
        shared: int,
        stream: Any,
    ) -> None:
        """Queues a kernel. `packed` holds its arguments in C layout, `shared` is the dynamic shared
        memory of a block in bytes."""


def find() -> Driver:
    """Returns pycuda's driver where it is installed and works, else the one by ctypes. Raises
    NotInstalledError without a driver."""
    try:
        from waifu2x.backends.cuda.driver.by_pycuda import PycudaDriver
    except ImportError:  # not installed, or built for other libraries
        pass
    else:
        return PycudaDriver()
    from waifu2x.backends.cuda.driver.by_ctypes import CtypesDriver

    try:
        return CtypesDriver()
    except OSError as error:
        raise NotInstalledError(
            f"backend cuda needs NVIDIA's driver ({error})", "install it, or use another backend"
        ) from error


@contextmanager
def current(driver: Driver, context: Any) -> Iterator[None]:
    """Makes a context current in the thread for the code within."""
    driver.push(context)
    try:
        yield
    finally:
        driver.pop()
