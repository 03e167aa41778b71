"""Arrays that two processes see.

On Linux their memory is a file that has no name (memfd) and goes to the other process through the
connection: named shared memory would end in containers, which often allow 64 MiB of it.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import weakref
from collections import deque
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

_KEPT_BYTES = 64 << 20
"""Of segments that nobody uses, kept for the next picture."""


class Shared(NamedTuple):
    """An array, as the other process is told of it."""

    segment: int
    name: str
    """Of named memory; empty for a file that is sent."""
    size: int
    """Bytes of the segment."""
    shape: tuple[int, ...]
    dtype: str
    is_new: bool
    """The other process does not have the segment yet."""


class _Segment:
    """Memory of this process that another one may map."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.file = -1
        self.name = ""
        self.is_sent = False
        self._named: Any = None
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create(f"waifu2x-{number}")
            os.ftruncate(self.file, size)
            self.memory: Any = mmap.mmap(self.file, size)
        else:
            self._named = shared_memory.SharedMemory(create=True, size=size)
            self.name, self.memory = self._named.name, self._named.buf

    def close(self) -> None:
        """Frees it here; arrays in it must be gone."""
        if self.file >= 0:
            self.memory.close()
            os.close(self.file)
        else:
            self.memory.release()
            self._named.close()


class Segments:
    """Arrays for another process; the memory of one comes back when nobody holds it any more."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._free: list[_Segment] = []
        self._returned: deque[_Segment] = deque()
        """Where the garbage collector may put one at any time."""
        self._held: dict[int, _Segment] = {}
        self._made = 0

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], Shared]:
        """An uninitialised array, and what to tell the other process of it: see `send`."""
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        segment = self._take(size)
        buffer = np.frombuffer(segment.memory, np.uint8, size)
        # Views of it keep `buffer` alive, and with it the segment.
        weakref.finalize(buffer, self._returned.append, segment).atexit = False
        dtype = np.dtype(dtype)
        told = Shared(
            segment.number, segment.name, segment.size, shape, dtype.str, not segment.is_sent
        )
        segment.is_sent = True
        self._held[segment.number] = segment
        return buffer.view(dtype).reshape(shape), told

    def send(self, *arrays: Shared) -> None:
        """Sends the files of new segments, behind the message that names them."""
        if sys.platform == "win32":
            return  # segments have names there
        for told in arrays:
            if told.is_new and not told.name:
                send_handle(self._connection, self._held[told.segment].file, None)

    def dropped(self) -> list[int]:
        """Which segments are gone since this was last asked: the other process may let go, too."""
        self._collect()
        gone = []
        while self._free and sum(segment.size for segment in self._free) > _KEPT_BYTES:
            segment = self._free.pop(0)
            gone.append(segment.number)
            del self._held[segment.number]
            segment.close()
        return gone

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())

    def _take(self, size: int) -> _Segment:
        self._collect()
        fitting = [one for one in self._free if size <= one.size <= 2 * size + mmap.PAGESIZE]
        if fitting:
            best = min(fitting, key=lambda one: one.size)
            self._free.remove(best)
            return best
        self._made += 1
        return _Segment(self._made, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)


class Attached:
    """Arrays of another process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._memory: dict[int, Any] = {}

    def receive(self, *arrays: Shared) -> list[NDArray[Any]]:
        """Those that a message has named. Whatever it raises, they cannot be received again."""
        return [self._array(told) for told in arrays]

    def drop(self, segments: list[int]) -> None:
        """Lets go of some."""
        for number in segments:
            self._memory.pop(number, None)

    def _array(self, told: Shared) -> NDArray[Any]:
        if told.is_new:
            self._memory[told.segment] = self._map(told)
        memory = self._memory[told.segment]
        dtype = np.dtype(told.dtype)
        buffer = memory.buf if told.name else memory
        count = math.prod(told.shape)
        return np.frombuffer(buffer, dtype, count).reshape(told.shape)

    def _map(self, told: Shared) -> Any:
        if told.name or sys.platform == "win32":
            memory = shared_memory.SharedMemory(told.name)
            # Both have it now: nothing is left over, however they end.
            memory.unlink()
            return memory
        file = recv_handle(self._connection)
        try:
            return mmap.mmap(file, told.size)
        finally:
            os.close(file)
