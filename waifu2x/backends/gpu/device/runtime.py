"""Defines the interface to a GPU library: a device, its in-order queue of kernels, and copies
beside it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Device, Pin
from waifu2x.system.lazy_dataclass import dataclass

Macros = Mapping[str, str | int]
"""Macros that specialise a kernel, numbers or C text."""


class OutOfMemoryError(Exception):
    """Says that the device has no memory for a buffer. Never reaches users: see `network`."""


@dataclass(frozen=True)
class Limits:
    """The limits of a device, to which kernels and tiles are fitted."""

    is_cpu: bool
    """Whether it is a processor: its caches do what local memory does on a GPU."""
    compute_units: int
    max_group: int
    """The most work-items of a group."""
    local_bytes: int
    """The most bytes of local memory of a group."""
    vector: int
    """On a processor, the floats of a vector; on a GPU, the work-items that run in lockstep."""
    max_buffer: int
    """The most bytes of a buffer."""

    def group(self, most: int) -> int:
        """Returns a group size: a power of two, `most` or the device's largest."""
        return min(most, 1 << (self.max_group.bit_length() - 1))

    def group_on_gpu(self, most: int) -> int:
        """Returns the same on a GPU, and 1 on a processor."""
        return 1 if self.is_cpu else self.group(most)


class Buffer(Protocol):
    """Memory on the device."""

    size: int
    """Bytes."""

    def release(self) -> None:
        """Frees it once the work queued before is done; further calls do nothing."""


class Kernel(Protocol):
    """An entry point of a module. Each call of `KernelModule.kernel` returns a new one, with its
    own identity."""

    name: str
    group: int
    """The work-items of a group, in one dimension."""


class KernelModule(Protocol):
    """A compiled source."""

    def kernel(self, name: str, group: int, shared: int = 0) -> Kernel:
        """Returns the entry point of that name, with the group size that it was compiled for. It
        gets `shared` bytes of shared memory beyond those it declares, on CUDA only."""


class ReadyLaunch(NamedTuple):
    """A kernel with its arguments, ready to be queued any number of times."""

    kernel: Any
    """A Kernel."""
    groups: tuple[int, int, int]
    packed: Any
    """Its arguments, as `Runtime.packer` has packed them."""


Event = Any
"""A point in time that `Runtime.fetch` returns and `Runtime.wait` waits for."""
Argument = Buffer | int | float
"""A kernel's argument: an int is C's int, a float C's float."""


class Runtime(Protocol):
    """One device and one in-order queue of kernels.

    Calls may come from any thread. Those that queue kernels or wait for all of them (`launch`,
    `queue`, `replay`, `follow`, `fetch`, `synchronize`, `timed`, `close`) must not overlap; all
    others may.
    """

    device: Device
    limits: Limits

    @property
    def allocated(self) -> int:
        """The bytes of all its buffers that are not released."""

    def current(self) -> AbstractContextManager[None]:
        """Makes the device current in this thread. Every call does so by itself; within this
        context, several calls need it once."""

    def free_memory(self) -> int:
        """Returns the bytes that can be allocated now, as far as the library tells."""

    def allocate(self, size: int, *, for_maps: bool = False) -> Buffer:
        """Returns a buffer of `size` bytes with undefined content. Raises OutOfMemoryError.

        `for_maps`: kernels read bytes that none has written, without effect. Under a memory
        checker, which would report that, the buffer is zeroed first.
        """

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised array in host memory, of the kind that is fastest to fill."""

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks a caller's memory, as `Backend.pin`. Any thread may call this at any time."""

    def upload(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copies a C-contiguous array to the start of a buffer that no kernel uses, and waits for
        it, independent of queued work. May raise OutOfMemoryError."""

    def download(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copies the start of a buffer into a C-contiguous array, independent of queued work:
        kernels that write to the buffer must be done."""

    def build(self, stem: str, macros: Macros) -> KernelModule:
        """Returns the module of a file of `kernels/`, compiled or cached. Raises BackendError.

        Equal calls share the module, which is unloaded once neither it nor a kernel of it is
        referenced.
        """

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Compiles modules that `build` will be asked for, in parallel where that is faster."""

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], *arguments: Argument) -> None:
        """Queues a kernel on a number of groups. May raise OutOfMemoryError."""

    def handle(self, buffer: Buffer) -> Any:
        """Returns a buffer in the form that packed arguments hold."""

    def packer(self, codes: str) -> Callable[..., Any]:
        """Returns a function that packs arguments for `queue`: it takes the values, buffers by
        their handles; `codes` are those of `launch.Arguments`."""

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        """Queues kernels, one after the other. May raise OutOfMemoryError."""

    def replay(
        self, owner: object, key: Hashable, make: Callable[[], Sequence[ReadyLaunch]]
    ) -> None:
        """Queues the launches that `make` returns, and may record them.

        For a recorded key, it queues the record and does not call `make`. So the key holds all that
        the launches depend on, handles of buffers included. Only the few most recently used keys
        are kept. `owner` is the owner of the kernels. May raise what `queue` does.
        """

    def forget(self, owner: object) -> None:
        """Drops the records of `replay` for an owner without queued work."""

    def send(
        self, buffer: Buffer, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        """Starts an upload of arrays, one after the other into the buffer. The arrays and the
        returned object must be kept unchanged until kernels behind `follow` are done. May raise
        OutOfMemoryError.

        `in_order` copies in the queue of kernels, so no `follow` is needed: a single small copy
        arrives sooner. Such calls must not overlap.
        """

    def follow(self) -> None:
        """Makes all kernels queued from now on wait for all uploads sent so far."""

    def fetch(
        self, buffer: Buffer, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> Event:
        """Starts a download into arrays, the reverse of `send`, after all work queued so far;
        returns the event of its end. `in_order` waits busily. May raise OutOfMemoryError."""

    def wait(self, event: Event) -> None:
        """Waits for an event, once. May raise OutOfMemoryError."""

    def synchronize(self) -> None:
        """Waits for all queued kernels and all copies. May raise OutOfMemoryError."""

    def timed(self) -> AbstractContextManager[list[tuple[Kernel, float]]]:
        """Collects the seconds of each launch inside, by the device's clock.

        The list is complete when the context ends, which waits for the device.
        """

    def close(self) -> None:
        """Frees all its memory. Its buffers and kernels cannot be used after that."""
