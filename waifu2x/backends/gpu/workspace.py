"""A device's memory for the pictures that are being computed, and the lock that sees to that.

Allocating takes longer than a small picture, and what a runtime replays belongs to its buffers: so
they are kept for the next picture, as long as they are few and nobody else needs the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.runtime import Buffer, OutOfMemoryError, Runtime
from waifu2x.errors import BackendError

_FREE_SHARE = 0.9
"""Of the memory that is free: the library needs some of it for itself."""
_SPARE_SHARE = 0.5
"""Of the memory that was free at first: that much is kept at most while nothing is computed."""
_CPU_SCRATCH_BYTES = 32 << 20
"""On a processor, maps are to stay in its caches."""


class Workspace:
    """Buffers that are taken and given back, by one thread at a time: see `working`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._lock = threading.Lock()
        self._is_closed = False
        self.scratch_limit = (
            _CPU_SCRATCH_BYTES if runtime.limits.is_cpu else runtime.limits.max_buffer
        )
        """Bytes that maps of one tile are to take at most."""
        self._most_spare = int(runtime.free_memory() * _SPARE_SHARE)
        self._spare: list[Buffer] = []

    def free(self) -> int:
        """Bytes that can be taken, as far as the library tells."""
        spare = sum(buffer.size for buffer in self._spare)
        return int(self.runtime.free_memory() * _FREE_SHARE) + spare

    @contextmanager
    def working(self) -> Iterator[None]:
        """Waits until nobody else works. Raises BackendError if it was closed meanwhile."""
        with self._lock:
            if self._is_closed:
                raise BackendError(
                    f"{self.runtime.device.name}: this backend is closed: open a new one"
                )
            yield

    def close(self, *executors: Executor) -> None:
        """Frees everything, when whoever works has ended: executors, then the runtime."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self.release()
            for executor in executors:
                executor.close()
            self.runtime.close()

    @contextmanager
    def taken(self) -> Iterator[Taken]:
        """What takes buffers; all are given back at the end."""
        holder = Taken(self)
        try:
            yield holder
        finally:
            holder.give_back()

    def take(self, size: int) -> Buffer:
        """A buffer of at least that many bytes, uninitialised. Raises OutOfMemoryError."""
        size = max(size, 1)
        for index in range(len(self._spare) - 1, -1, -1):
            if size <= self._spare[index].size <= size + size // 8:
                return self._spare.pop(index)
        try:
            return self.runtime.allocate(size)
        except OutOfMemoryError:
            if not self._spare:
                raise
            self.release()
            return self.runtime.allocate(size)

    def give_back(self, buffer: Buffer) -> None:
        """For the next that takes as much: the one queue of a runtime serves it later."""
        self._spare.append(buffer)
        while sum(spare.size for spare in self._spare) > self._most_spare:
            self._spare.pop(0).release()

    def release(self) -> None:
        """Frees what nobody holds."""
        while self._spare:
            self._spare.pop().release()


class Taken:
    """Buffers of a workspace, until they are given back."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._buffers: list[Buffer] = []

    def buffer(self, size: int) -> Buffer:
        """See Workspace.take."""
        self._buffers.append(self._workspace.take(size))
        return self._buffers[-1]

    def drop(self, buffer: Buffer) -> None:
        """Gives one of them back."""
        self._buffers = [other for other in self._buffers if other is not buffer]
        self._workspace.give_back(buffer)

    def give_back(self) -> None:
        """All, the last one first: who takes the same sizes next gets each from the same place."""
        while self._buffers:
            self._workspace.give_back(self._buffers.pop())
