"""What the cuda backend asks of NVIDIA's driver, whichever way its calls are made.

Two ways: pycuda where it is installed (`by_pycuda`), else the driver's own library by ctypes
(`by_ctypes`), which needs nothing but the driver. Names, numbers and meanings are those of the CUDA
Driver API.
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
    """The calls. Devices, contexts, streams and whatever else a call makes are of its own kind.

    All but the first few need a context that is current in the thread, the one in which their
    arguments were made. Each may raise `error`, of which `memory_error` is one. What a call makes
    is freed by the call that does so, and not before.
    """

    @property
    def name(self) -> str:
        """For people: through what it is called."""
        ...

    @property
    def error(self) -> type[Exception]:
        """What its calls raise."""
        ...

    @property
    def memory_error(self) -> type[Exception]:
        """The same, for want of memory."""
        ...

    def version(self) -> int:
        """The CUDA that it is for: 12040 for 12.4. May be asked before `devices`."""
        ...

    def devices(self) -> Sequence[Any]:
        """In the driver's order. It begins to work, which takes a while the first time."""
        ...

    def device_name(self, device: Any) -> str:
        """For people."""
        ...

    def total_memory(self, device: Any) -> int:
        """Bytes."""
        ...

    def attribute(self, device: Any, attribute: Attribute) -> int: ...

    def retain_context(self, device: Any) -> Any:
        """The primary context, for as long as somebody holds what this gives."""
        ...

    def push(self, context: Any) -> None:
        """Makes a context the thread's current one."""
        ...

    def pop(self) -> None:
        """Makes that current again which was before."""
        ...

    def synchronize(self) -> None:
        """Waits for whatever the context does."""
        ...

    def free_memory(self) -> int:
        """Bytes on the device."""
        ...

    def allocate(self, size: int) -> Any:
        """Bytes on the device; `int` of it is their address."""
        ...

    def free(self, memory: Any) -> None:
        """Frees memory of `allocate`."""
        ...

    def clear(self, address: int, size: int, stream: Any) -> None:
        """Queues writing zeros."""
        ...

    def lock_pages(self, size: int) -> NDArray[np.uint8]:
        """Uninitialised bytes of the machine that the device reads and writes at full speed."""
        ...

    def free_pages(self, pages: NDArray[np.uint8]) -> None:
        """Frees pages of `lock_pages`: nobody may touch them after that."""
        ...

    def upload(self, address: int, array: NDArray[Any], stream: Any) -> None:
        """Queues a copy of a C-contiguous array to the device."""
        ...

    def download(self, array: NDArray[Any], address: int, stream: Any) -> None:
        """Queues a copy into a C-contiguous array."""
        ...

    def create_stream(self) -> Any:
        """A queue."""
        ...

    def stream_handle(self, stream: Any) -> int:
        """The driver's own."""
        ...

    def wait(self, stream: Any) -> None:
        """For all that is queued on a stream."""
        ...

    def destroy_stream(self, stream: Any) -> None:
        """Destroys a stream of `create_stream`."""
        ...

    def create_event(self, *, blocking: bool = False) -> Any:
        """Something that stands for one moment after the other. Who waits for one that is
        `blocking` sleeps; otherwise it takes a core, and is a little earlier there."""
        ...

    def record_event(self, event: Any, stream: Any) -> None:
        """Makes it a moment in a stream: when what was queued before is done."""
        ...

    def follow(self, stream: Any, event: Any) -> None:
        """What is queued on a stream from now on waits for the moment in another that an event is
        now."""
        ...

    def wait_event(self, event: Any) -> None:
        """For a moment."""
        ...

    def is_over(self, event: Any) -> bool:
        """Whether a moment has come."""
        ...

    def seconds(self, before: Any, after: Any) -> float:
        """From moment to moment; waits for the second."""
        ...

    def destroy_event(self, event: Any) -> None:
        """Destroys an event of `create_event`."""
        ...

    def load_module(self, code: bytes) -> Any:
        """A cubin, or PTX."""
        ...

    def unload_module(self, module: Any) -> None:
        """Unloads a module of `load_module`, when nobody holds its functions any more."""
        ...

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a module."""
        ...

    def allow_shared(self, function: Any, size: int) -> None:
        """Lets the blocks of a kernel have so many bytes of dynamic shared memory."""
        ...

    def launch(
        self,
        function: Any,
        blocks: tuple[int, int, int],
        threads: int,
        packed: bytes,
        shared: int,
        stream: Any,
    ) -> None:
        """Queues a kernel. `packed` is its arguments as it finds them, `shared` the bytes of
        dynamic shared memory of a block."""
        ...


def find() -> Driver:
    """Through pycuda where it is installed and works. Raises NotInstalledError without a driver."""
    try:
        from waifu2x.backends.cuda.driver.by_pycuda import PycudaDriver
    except ImportError:  # not here, or made for libraries that are not
        pass
    else:
        return PycudaDriver()
    from waifu2x.backends.cuda.driver.by_ctypes import CtypesDriver

    try:
        return CtypesDriver()
    except OSError as error:
        raise NotInstalledError(
            f"backend cuda needs NVIDIA's driver ({error}): install it, or use another backend"
        ) from error


@contextmanager
def current(driver: Driver, context: Any) -> Iterator[None]:
    """Makes a context the thread's own for a while."""
    driver.push(context)
    try:
        yield
    finally:
        driver.pop()
