"""The interface to a GPU library: one device, an in-order queue of kernels on it, and copies beside
that."""

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
    """The device has no memory for a buffer. Never reaches users: see `network`."""


@dataclass(frozen=True)
class Limits:
    """Limits that kernels and tiles are fitted to."""

    is_cpu: bool
    """A processor behind a GPU's interface: its caches do what local memory does on a GPU."""
    compute_units: int
    max_group: int
    """Work-items of a group."""
    local_bytes: int
    """Bytes of local memory that a group may have."""
    vector: int
    """On a processor, the floats of its vectors; on a GPU, the work-items that run in step."""
    max_buffer: int
    """Bytes of the largest buffer."""

    def group(self, most: int) -> int:
        """Returns the work-items of a group: a power of two, `most` or the device's largest."""
        return min(most, 1 << (self.max_group.bit_length() - 1))

    def group_on_gpu(self, most: int) -> int:
        """Returns the same for a GPU; on a processor, a work-item is a group."""
        return 1 if self.is_cpu else self.group(most)


class Buffer(Protocol):
    """Memory on the device."""

    size: int
    """Bytes."""

    def release(self) -> None:
        """Frees it, after the work that was queued before; further calls do nothing."""


class Kernel(Protocol):
    """An entry of a module. Two calls of `KernelModule.kernel` give two, told apart by identity."""

    name: str
    group: int
    """Work-items of a group, in one dimension."""


class KernelModule(Protocol):
    """Compiled source."""

    def kernel(self, name: str, group: int, shared: int = 0) -> Kernel:
        """Returns the entry of that name, with the group size that it was compiled for; `shared`
        bytes of shared memory beyond what it declares are for CUDA alone."""


class ReadyLaunch(NamedTuple):
    """A kernel with its arguments, ready to be queued any number of times."""

    kernel: Any
    """A Kernel."""
    groups: tuple[int, int, int]
    packed: Any
    """Arguments that `Runtime.packer` has packed."""


Event = Any
"""A moment that `Runtime.fetch` returns, to wait for."""
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
        """Bytes of all its buffers that are not released."""

    def current(self) -> AbstractContextManager[None]:
        """Makes the device the thread's own for a while. Every call does so; within this, several
        do it once."""

    def free_memory(self) -> int:
        """Returns the bytes that can be allocated now, as far as the library tells."""

    def allocate(self, size: int, *, for_maps: bool = False) -> Buffer:
        """Returns a buffer of that many bytes with undefined content. Raises OutOfMemoryError.

        `for_maps`: kernels read beyond what they have written, without effect. Where a checker
        would call that an error, the buffer holds zeros at first.
        """

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised array in the machine's memory, of the kind that is fastest to
        fill."""

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory of others, as `Backend.pin`. Any thread may call this at any time."""

    def upload(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copies a C-contiguous array to the start of a buffer that no kernel uses, and waits for
        it, independent of queued work. May raise OutOfMemoryError."""

    def download(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copies the start of a buffer into a C-contiguous array, independent of queued work:
        kernels that write to the buffer must be done."""

    def build(self, stem: str, macros: Macros) -> KernelModule:
        """Returns a file of `kernels/`, compiled or from the cache. Raises BackendError.

        Equal calls share the module, which is unloaded when neither it nor a kernel of it is
        referenced.
        """

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Compiles what `build` will be asked for, at the same time where that is faster."""

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], *arguments: Argument) -> None:
        """Queues a kernel on a number of groups. May raise OutOfMemoryError."""

    def handle(self, buffer: Buffer) -> Any:
        """Returns a buffer in the form that packed arguments hold."""

    def packer(self, codes: str) -> Callable[..., Any]:
        """Packs arguments, for `queue`: codes as `launch.Arguments` has them, then the values, with
        the handles of buffers."""

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        """Queues kernels, one after the other. May raise OutOfMemoryError."""

    def replay(
        self, owner: object, key: Hashable, make: Callable[[], Sequence[ReadyLaunch]]
    ) -> None:
        """Queues the launches that `make` gives.

        When the same key comes again, it need not be called: they were kept. So the key holds all
        that they depend on, handles of buffers among it. Few keys are kept, those that were used
        last. `owner` is whose kernels they are. May raise what `queue` does.
        """

    def forget(self, owner: object) -> None:
        """Drops the records of `replay` for an owner without queued work."""

    def send(
        self, buffer: Buffer, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        """Starts an upload of arrays that lie in the buffer one behind the other. The arrays and
        the returned object must be kept unchanged until kernels behind `follow` are done. May raise
        OutOfMemoryError.

        `in_order` copies in the queue of kernels, which then need not follow: a single small copy
        arrives sooner. Such calls must not overlap.
        """

    def follow(self) -> None:
        """Makes everything that is queued from now on come after all that was sent."""

    def fetch(
        self, buffer: Buffer, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> Event:
        """Starts a download into arrays, as `send`, after all work queued by now. Returns the
        moment when they are complete; `in_order` waits for it with a busy core. May raise
        OutOfMemoryError."""

    def wait(self, event: Event) -> None:
        """Waits for a moment, once. May raise OutOfMemoryError."""

    def synchronize(self) -> None:
        """Waits for everything that was queued, sent or fetched. May raise OutOfMemoryError."""

    def timed(self) -> AbstractContextManager[list[tuple[Kernel, float]]]:
        """Collects the seconds of each launch inside, by the device's clock.

        The list is complete when the context ends, which waits for the device.
        """

    def close(self) -> None:
        """Frees what it holds. Buffers and kernels of it cannot be used after that."""
