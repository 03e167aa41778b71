"""A device's memory for the pictures that are being computed, and whose turn it is.

Allocating takes longer than a small picture, and what a runtime replays belongs to its buffers: so
they are kept for the next picture, as long as they are few and nobody else needs the memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from waifu2x.backends.gpu.runtime import Buffer, OutOfMemoryError, Runtime
from waifu2x.errors import BackendError

_FREE_SHARE = 0.9
"""Of the memory that is free: the library needs some of it for itself."""
_SPARE_SHARE = 0.5
"""Of the memory that was free at first: that much is kept at most while nothing is computed."""
_QUEUED_SHARE = 0.1
"""Of it, for what shares the device, besides."""
_CPU_SCRATCH_BYTES = 32 << 20
"""On a processor, maps are to stay in its caches."""


class Closable(Protocol):
    """What holds buffers."""

    def close(self) -> None:
        """Frees them; closing again does nothing."""
        ...


class Workspace:
    """Buffers that are taken and given back, and whose turn it is to use the device.

    Work that takes little of the memory shares the device (`sharing`): such calls send their
    pictures and fetch their results while others compute, and queue their kernels one at a time
    (`queueing`). All else has the device to itself (`working`).
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._turn = threading.Condition()
        self._sharers = 0
        self._waiting = 0
        """Who wants the device for himself: nobody begins to share it then."""
        self._is_taken = False
        self._is_closed = False
        self._queueing = threading.Lock()
        self._discarded: deque[Closable] = deque()
        self.scratch_limit = (
            _CPU_SCRATCH_BYTES if runtime.limits.is_cpu else runtime.limits.max_buffer
        )
        """Bytes that maps of one tile are to take at most."""
        free = runtime.free_memory()
        self._spares = Spares(runtime, int(free * _SPARE_SHARE))
        self._queued = Spares(runtime, int(free * _QUEUED_SHARE))
        """What queued kernels still use: for nothing but further kernels."""

    def discard(self, owners: Sequence[Closable]) -> None:
        """Closes some owners of buffers as soon as nobody computes. Any thread may call this at any
        time, the garbage collector's among them."""
        self._discarded.extend(owners)

    def free(self) -> int:
        """Bytes that can be taken, as far as the library tells."""
        spare = self._spares.size() + self._queued.size()
        return int(self.runtime.free_memory() * _FREE_SHARE) + spare

    @contextmanager
    def working(self) -> Iterator[None]:
        """Waits until nobody else works. Raises BackendError if it was closed meanwhile."""
        with self._turn:
            self._waiting += 1
            try:
                self._turn.wait_for(lambda: not (self._sharers or self._is_taken))
            finally:  # an interrupt may end the wait
                self._waiting -= 1
                self._turn.notify_all()
            self._check_open()
            self._is_taken = True
        try:
            # Nobody's kernels are queued any more.
            self._queued.move_to(self._spares)
            self._close_discarded()
            yield
        finally:
            with self._turn:
                self._is_taken = False
                self._turn.notify_all()

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Waits until nobody works alone. Raises BackendError if it was closed meanwhile."""
        with self._turn:
            self._turn.wait_for(lambda: not (self._waiting or self._is_taken))
            self._check_open()
            self._sharers += 1
        try:
            yield
        finally:
            with self._turn:
                self._sharers -= 1
                self._turn.notify_all()

    def _close_discarded(self) -> None:
        while self._discarded:
            self._discarded.popleft().close()

    def _check_open(self) -> None:
        if self._is_closed:
            name = self.runtime.device.name
            raise BackendError(f"{name}: this backend is closed: open a new one")

    def close(self) -> None:
        """Frees everything when whoever works has ended, and closes the runtime."""
        with self._turn:
            if self._is_closed:
                return
        with suppress(BackendError), self.working():
            self._is_closed = True
            self.release()
            self.runtime.close()

    def taken(self) -> Taken:
        """What takes buffers that nobody uses; all are given back at the end."""
        return Taken(self._spares)

    @contextmanager
    def queueing(self) -> Iterator[Taken]:
        """For who shares the device: waits until nobody else queues kernels.

        Takes buffers for them alone, which are given back as soon as the kernels are queued.
        """
        with self._queueing, Taken(self._queued) as taken:
            yield taken

    def release(self) -> None:
        """Frees what nobody holds."""
        self._spares.release()
        self._queued.release()


class Spares:
    """Buffers that are kept for the next who takes as much, up to so many bytes."""

    def __init__(self, runtime: Runtime, most: int) -> None:
        self._runtime = runtime
        self._most = most
        self._lock = threading.Lock()
        self._buffers: list[Buffer] = []

    def size(self) -> int:
        """Bytes that are kept."""
        with self._lock:
            return sum(buffer.size for buffer in self._buffers)

    def take(self, size: int) -> Buffer:
        """A buffer of at least that many bytes, uninitialised. Raises OutOfMemoryError."""
        size = max(size, 1)
        with self._lock:
            for index in range(len(self._buffers) - 1, -1, -1):
                if size <= self._buffers[index].size <= size + size // 8:
                    return self._buffers.pop(index)
        try:
            return self._runtime.allocate(size)
        except OutOfMemoryError:
            self.release()
            return self._runtime.allocate(size)

    def give_back(self, buffer: Buffer) -> None:
        """For the next that takes as much: the one queue of a runtime serves it later."""
        gone = []
        with self._lock:
            self._buffers.append(buffer)
            while sum(spare.size for spare in self._buffers) > self._most:
                gone.append(self._buffers.pop(0))
        for spare in gone:
            spare.release()

    def move_to(self, others: Spares) -> None:
        """Gives all that is kept here to others."""
        with self._lock:
            moved, self._buffers = self._buffers, []
        for buffer in moved:
            others.give_back(buffer)

    def release(self) -> None:
        """Frees what is kept."""
        with self._lock:
            gone, self._buffers = self._buffers, []
        for buffer in gone:
            buffer.release()


class Taken:
    """Buffers that are given back when the context ends."""

    def __init__(self, spares: Spares) -> None:
        self._spares = spares
        self._buffers: list[Buffer] = []

    def __enter__(self) -> Taken:
        return self

    def __exit__(self, *raised: object) -> None:
        # The last one first: who takes the same sizes next gets each from the same place.
        while self._buffers:
            self._spares.give_back(self._buffers.pop())

    def buffer(self, size: int) -> Buffer:
        """See Spares.take."""
        self._buffers.append(self._spares.take(size))
        return self._buffers[-1]

    def drop(self, buffer: Buffer) -> None:
        """Gives one of them back."""
        self._buffers = [other for other in self._buffers if other is not buffer]
        self._spares.give_back(buffer)
