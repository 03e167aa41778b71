"""Arrays that two processes see, in segments of shared memory that are used again.

On Linux the memory is a file without a name (memfd) that goes to the other process through their
connection: named shared memory would end in containers, which often allow 64 MiB of it.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Pin
from waifu2x.system.size_class import MOST_SPARE, size_class

_PINNED_FROM = 4
"""The use from which on a segment is page-locked: locking costs about four copies, and with
pictures of many sizes most segments are used less."""
_KEPT_BYTES = 64 << 20
"""Bytes of unused segments that are kept."""


class SharedArray(NamedTuple):
    """Describes an array in shared memory to another process."""

    segment: int
    name: str
    """Name of named memory; empty if its file is sent."""
    size: int
    """Bytes of the segment."""
    offset: int
    shape: tuple[int, ...]
    dtype: str
    is_new: bool
    """Whether the other process lacks the segment."""


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
            try:
                os.ftruncate(self.file, size)
                self.memory: Any = mmap.mmap(self.file, size)
            except BaseException:
                os.close(self.file)
                raise
        else:
            self._named = shared_memory.SharedMemory(create=True, size=size)
            self.name, self.memory = self._named.name, self._named.buf
        self.address = _address(np.frombuffer(self.memory, np.uint8, size))

    def close(self) -> None:
        """Frees it, once no array uses it."""
        if self.file >= 0:
            self.memory.close()
            os.close(self.file)
        else:
            self.memory.release()
            self._named.close()


class SharedPool:
    """Shared memory for the arrays of one process. Threads may share it. The memory of an array is
    reused once the array is garbage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Segment] = []
        self._returned: deque[_Segment] = deque()
        """Segments from the garbage collector, which may add one at any time."""
        self._held: dict[int, _Segment] = {}
        self._made = 0

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised, C-contiguous array in shared memory. Raises OSError."""
        dtype = np.dtype(dtype)
        size = max(1, math.prod(shape) * dtype.itemsize)
        with self._lock:
            segment = self._take(size)
        buffer = np.frombuffer(segment.memory, np.uint8, size)
        # Views of it keep `buffer` alive, and with it the segment.
        weakref.finalize(buffer, self._returned.append, segment).atexit = False
        return buffer.view(dtype).reshape(shape)

    def holds(self, array: NDArray[Any]) -> bool:
        """Returns whether an array lies in this pool, C-contiguous."""
        with self._lock:
            return array.flags.c_contiguous and self._segment_of(array) is not None

    def send(
        self,
        connection: Connection,
        arrays: Sequence[NDArray[Any]],
        message: Callable[[list[SharedArray], list[int]], object],
    ) -> None:
        """Sends a message about arrays of this pool, and the files of new segments.
        `message(arrays, freed)` builds it from array descriptors and the numbers of segments freed
        since the last message."""
        with self._lock:
            told, files = [], []
            for array in arrays:
                segment = self._segment_of(array)
                assert segment is not None
                told.append(
                    SharedArray(
                        segment.number,
                        segment.name,
                        segment.size,
                        _address(array) - segment.address,
                        array.shape,
                        array.dtype.str,
                        not segment.is_sent,
                    )
                )
                if not segment.is_sent and segment.file >= 0:
                    files.append(segment.file)
                segment.is_sent = True
            connection.send(message(told, self._dropped()))
            if sys.platform != "win32":  # segments have names there
                for file in files:
                    send_handle(connection, file, None)

    def _dropped(self) -> list[int]:
        """Closes unused segments beyond the limit; returns their numbers."""
        self._collect()
        gone = []
        while self._free and sum(segment.size for segment in self._free) > _KEPT_BYTES:
            segment = self._free.pop(0)
            del self._held[segment.number]
            if segment.is_sent:
                gone.append(segment.number)
            segment.close()
        return gone

    def _segment_of(self, array: NDArray[Any]) -> _Segment | None:
        address = _address(array)
        for segment in self._held.values():
            if segment.address <= address < segment.address + segment.size:
                return segment
        return None

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())

    def _take(self, size: int) -> _Segment:
        self._collect()
        most = max(MOST_SPARE * size, size_class(1))
        fitting = [one for one in self._free if size <= one.size <= most]
        if fitting:
            best = min(fitting, key=lambda one: one.size)
            self._free.remove(best)
            return best
        self._made += 1
        segment = _Segment(self._made, -(-size_class(size) // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._held[segment.number] = segment
        return segment


class _Attached:
    """A segment of the other process."""

    def __init__(self, memory: Any, whole: NDArray[np.uint8]) -> None:
        self.memory = memory
        self.whole = whole
        self.pin: Pin | None = None
        self.uses = 0


class AttachedPool:
    """The arrays of another process's pool."""

    def __init__(self, connection: Connection, pin: Callable[[NDArray[Any]], Pin]) -> None:
        """`pin` is `Backend.pin` of the device."""
        self._connection = connection
        self._pin = pin
        self._segments: dict[int, _Attached] = {}
        self._leaving: list[Any] = []
        """Mappings that an array may still use for a moment."""

    def receive(self, arrays: Sequence[SharedArray]) -> list[NDArray[Any]]:
        """Returns the arrays that a message describes. Raises OSError or EOFError; after that,
        nothing more can be received."""
        return [self._array(told) for told in arrays]

    def drop(self, segments: Sequence[int]) -> None:
        """Frees segments by their numbers, once no call uses them."""
        for number in segments:
            segment = self._segments.pop(number)
            if segment.pin is not None:
                segment.pin.close()
            del segment.whole
            self._leaving.append(segment.memory)
        self._leaving = [memory for memory in self._leaving if not _closed(memory)]

    def close(self) -> None:
        self.drop(list(self._segments))

    def _array(self, told: SharedArray) -> NDArray[Any]:
        if told.is_new:
            memory = self._map(told)
            whole = np.frombuffer(memory.buf if told.name else memory, np.uint8, told.size)
            self._segments[told.segment] = _Attached(memory, whole)
        segment = self._segments[told.segment]
        segment.uses += 1
        if segment.uses == _PINNED_FROM:
            segment.pin = self._pin(segment.whole)
        dtype = np.dtype(told.dtype)
        size = math.prod(told.shape) * dtype.itemsize
        part = segment.whole[told.offset : told.offset + size]
        return part.view(dtype).reshape(told.shape)

    def _map(self, told: SharedArray) -> Any:
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


def _closed(memory: Any) -> bool:
    """Unmaps memory; returns False if an array still uses it."""
    try:
        memory.close()
    except BufferError:
        return False
    return True


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
