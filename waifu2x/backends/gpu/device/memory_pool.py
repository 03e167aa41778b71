"""Pools a device's memory for pictures under way, and arbitrates the use of the device.

Allocation takes longer than a small picture, and launches that a runtime replays are bound to their
buffers. So buffers are kept for the next picture, up to a limit, until other work needs the memory.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from waifu2x.backends.gpu.device.runtime import Buffer, OutOfMemoryError, Runtime
from waifu2x.errors import BackendError
from waifu2x.system.size_class import MOST_SPARE, size_class

_FREE_SHARE = 0.9
"""The share of the free memory that may be allocated: the library needs some for itself."""
_KEPT_SHARE = 0.5
"""The most memory kept while nothing is computed, as a share of the memory free at first."""
_QUEUED_SHARE = 0.25
"""The most memory kept for queued kernels of calls that share the device, as such a share: more
than one call may take."""
_ASKED_SECONDS = 0.5
"""How long the library's figure of free memory counts as valid."""
_CPU_SCRATCH_BYTES = 32 << 20
"""The wanted bytes of a tile's maps on a processor, for its caches."""


class Owner(Protocol):
    """An object with buffers of its own, such as weights."""

    def close(self) -> None:
        """Frees its buffers; closing again does nothing."""


class MemoryPool:
    """Lends buffers to calls, and gives calls their turns on the device.

    Calls that need little memory share the device (`sharing`): they send pictures and fetch results
    while others compute, and queue their kernels one after the other (`queueing`). Other work has
    the device to itself (`working`). Compiling runs beside either (`compiling`).
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._process = os.getpid()
        self._turn = threading.Condition()
        self._sharers = 0
        self._compilers = 0
        self._waiting = 0
        """The number of calls that wait for the device alone: none begins to share meanwhile."""
        self._is_taken = False
        self._is_closed = self._is_freed = False
        self._queueing = threading.Lock()
        self._owners = 0
        """The number of open owners."""
        self._abandoned: deque[Owner] = deque()
        """Owners that the garbage collector gave up, in any thread, without `close`."""
        self.scratch_limit = (
            _CPU_SCRATCH_BYTES if runtime.limits.is_cpu else runtime.limits.max_buffer
        )
        """The wanted limit of the bytes of one tile's maps."""
        self._asked = -math.inf
        self._available = 0
        """The bytes free when the library was last asked, plus those allocated then."""
        free = runtime.free_memory()
        self._idle = FreeList(runtime, int(free * _KEPT_SHARE))
        self._queued = FreeList(runtime, int(free * _QUEUED_SHARE))
        """Buffers that queued kernels may still use: only for further queued kernels."""

    def free(self) -> int:
        """Returns the bytes that can be allocated, as far as the library tells. It asks the library
        only now and then, since that takes as long as a few launches: so memory of other programs
        counts after a moment."""
        now, allocated = time.monotonic(), self.runtime.allocated
        if now > self._asked + _ASKED_SECONDS:
            self._asked, self._available = now, self.runtime.free_memory() + allocated
        kept = self._idle.size() + self._queued.size()
        return int((self._available - allocated) * _FREE_SHARE) + kept

    def adopt(self, owner: Owner) -> None:
        """Counts an owner until it is closed by `close_owner` or abandoned."""
        with self._turn:
            self._owners += 1

    def abandon(self, owner: Owner) -> None:
        """Has an owner closed by the next call that computes or compiles. The garbage collector may
        call this in any thread, with any locks held."""
        self._abandoned.append(owner)

    def close_owner(self, owner: Owner) -> None:
        """Closes an idle owner. Closing the last owner frees all cached memory."""
        if self._is_forked():
            return  # its buffers are the other process's
        owner.close()
        with self._turn:
            self._owners -= 1
            was_last = not self._owners
        if was_last:
            self.release()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Waits until no other call uses the device, and keeps them off it. Raises BackendError if
        the pool was closed meanwhile."""
        self._check_process()
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
            # No kernels are queued any more.
            self._queued.move_to(self._idle)
            self._close_abandoned()
            yield
        except BaseException:
            self.settle()
            raise
        finally:
            with self._turn:
                self._is_taken = False
                self._turn.notify_all()

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Waits until no call has the device alone, and shares it. Raises BackendError if the pool
        was closed meanwhile."""
        self._check_process()
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

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Keeps the device open while code compiles. Raises BackendError if it is closed."""
        self._check_process()
        with self._turn:
            self._check_open()
            self._compilers += 1
        try:
            self._close_abandoned()
            yield
        finally:
            with self._turn:
                self._compilers -= 1
                self._turn.notify_all()

    def _close_abandoned(self) -> None:
        while self._abandoned:
            try:
                owner = self._abandoned.popleft()
            except IndexError:  # another thread was quicker
                return
            self.close_owner(owner)

    def _is_forked(self) -> bool:
        """Returns whether this process was forked from the one that opened the device."""
        return os.getpid() != self._process

    def _check_process(self) -> None:
        """Raises BackendError in a forked process, where drivers fail or hang."""
        if self._is_forked():
            raise BackendError(
                f"{self.runtime.device.name}: it was opened before this process was forked",
                "start it with the method spawn, and open an engine there",
            )

    def _check_open(self) -> None:
        if self._is_closed:
            name = self.runtime.device.name
            raise BackendError(f"{name}: this backend is closed", "open a new one")

    def close(self) -> None:
        """Frees everything and closes the runtime, after calls under way have ended."""
        if self._is_forked():
            return
        with self._turn:
            self._is_closed = True
            # An interrupt may end the wait: the next close then frees it.
            self._turn.wait_for(lambda: not (self._sharers or self._compilers or self._is_taken))
            if self._is_freed:
                return
            self._is_freed = True
        self._close_abandoned()
        self.release()
        self.runtime.close()

    def taken(self) -> ScopedAllocation:
        """Returns a scope that takes free buffers, and gives them back when it ends."""
        return ScopedAllocation(self._idle)

    @contextmanager
    def queueing(self) -> Iterator[ScopedAllocation]:
        """Waits until no other sharing call queues kernels.

        The scope takes buffers for queued kernels alone, and gives them back as soon as these are
        queued.
        """
        with self._queueing, ScopedAllocation(self._queued) as taken:
            yield taken

    def settle(self) -> None:
        """Waits, after work was aborted, until the device is done with its buffers and with the
        host memory of its copies. Interrupts do not end the wait."""
        while True:
            try:
                # Another call may be recording its launches: a runtime must not wait meanwhile.
                with self._queueing:
                    self.runtime.synchronize()
                return
            except Exception:  # the device is gone, and its copies with it
                return
            except BaseException:  # the error that aborted the work is raised
                continue

    def release(self) -> None:
        """Frees all buffers that are not taken."""
        self._asked = -math.inf
        self._idle.release()
        self._queued.release()


class FreeList:
    """Keeps buffers, up to a limit in bytes, for the next call that takes as much."""

    def __init__(self, runtime: Runtime, most: int) -> None:
        self._runtime = runtime
        self._most = most
        self._lock = threading.Lock()
        self._buffers: list[Buffer] = []

    def size(self) -> int:
        """Returns the bytes that are kept."""
        with self._lock:
            return sum(buffer.size for buffer in self._buffers)

    def take(self, size: int) -> Buffer:
        """Returns a buffer of at least that many bytes, uninitialised. Raises OutOfMemoryError."""
        size = max(size, 1)
        most = max(MOST_SPARE * size, size_class(1))
        with self._lock:
            # The smallest that fits, and of equal ones the one that came back last.
            fitting = [
                (buffer.size, -index)
                for index, buffer in enumerate(self._buffers)
                if size <= buffer.size <= most
            ]
            if fitting:
                return self._buffers.pop(-min(fitting)[1])
        try:
            # A buffer that is too large to be kept serves no other call.
            made = size_class(size)
            made = made if made <= self._most else size
            return self._runtime.allocate(made, for_maps=True)
        except OutOfMemoryError:
            self.release()
            return self._runtime.allocate(size, for_maps=True)

    def give_back(self, buffer: Buffer) -> None:
        """Keeps a buffer for the next call, whose kernels come later in the runtime's one queue."""
        gone = []
        with self._lock:
            self._buffers.append(buffer)
            while sum(kept.size for kept in self._buffers) > self._most:
                gone.append(self._buffers.pop(0))
        for kept in gone:
            kept.release()

    def move_to(self, others: FreeList) -> None:
        """Moves all kept buffers to another list."""
        with self._lock:
            moved, self._buffers = self._buffers, []
        for buffer in moved:
            others.give_back(buffer)

    def release(self) -> None:
        """Frees all kept buffers."""
        with self._lock:
            gone, self._buffers = self._buffers, []
        for buffer in gone:
            buffer.release()


class ScopedAllocation:
    """Takes buffers from a free list, and gives them back when its context ends."""

    def __init__(self, free_list: FreeList) -> None:
        self._free_list = free_list
        self._buffers: list[Buffer] = []

    def __enter__(self) -> ScopedAllocation:
        return self

    def __exit__(self, *raised: object) -> None:
        # The last one first, so that the next call with the same sizes gets the same buffers.
        while self._buffers:
            self._free_list.give_back(self._buffers.pop())

    def buffer(self, size: int) -> Buffer:
        """Returns a buffer of at least that many bytes, uninitialised. Raises OutOfMemoryError."""
        self._buffers.append(self._free_list.take(size))
        return self._buffers[-1]

    def drop(self, buffer: Buffer) -> None:
        """Gives one of its buffers back before its end."""
        self._buffers = [other for other in self._buffers if other is not buffer]
        self._free_list.give_back(buffer)
