"""Pools page-locked host memory, since locking pages takes longer than running a network."""

from __future__ import annotations

import atexit
import ctypes
import math
import threading
import weakref
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends.cuda.driver import Driver, current, library
from waifu2x.system.size_class import MOST_SPARE, size_class

_KEPT = 64
"""The most free blocks of page-locked memory that are kept."""
_KEPT_BYTES = 1 << 30
"""The most bytes of such blocks: locking and freeing pages blocks the whole device."""
LOCKED_BYTES = 1 << 27
"""The largest block that is page-locked. Other programs lack its pages, and for a single picture
locking them takes twice as long as the driver's copy that it saves."""


_ORPHANS: deque[tuple[Driver, Any, NDArray[np.uint8]]] = deque()
"""Blocks that came back after their HostMemory was closed, with their driver and context: the next
HostMemory that needs memory frees them."""


class HostMemory:
    """Makes page-locked NumPy arrays, which a GPU accesses at full speed.

    An array's memory comes back when it is no longer referenced. Several threads may call `array`
    at once. The context must be current in every call: locked pages can only be freed there.
    """

    def __init__(self, driver: Driver, context: Any) -> None:
        self._driver = driver
        self._context = context
        self._lock = threading.Lock()
        self._free: dict[int, list[NDArray[np.uint8]]] = {}
        """Free blocks by size; the size with a free block for longest comes first."""
        self._returned: deque[NDArray[np.uint8]] = deque()
        """Blocks that the garbage collector returns, at any time and in any thread."""
        self._locked = _Ranges()
        """All ranges that are page-locked now: blocks, and memory pinned by callers."""
        self._pins: dict[object, NDArray[Any]] = {}
        """Callers' pinned arrays, kept alive until they are unpinned: copies into a range that is
        still registered, but no longer that array's, would corrupt other memory."""
        self._is_closed = self._is_broken = False

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised array, page-locked unless it is large or no more pages can be
        locked.

        Raises the driver's errors where the context is broken.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > LOCKED_BYTES:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._take(size)
        if block is None:
            try:
                block = self._driver.lock_pages(min(size_class(size), LOCKED_BYTES))
            except self._driver.error:
                return np.empty(shape, dtype)
            with self._lock:
                self._locked.add(_address(block), block.size)
        array = np.frombuffer(block.data[:size], dtype).reshape(shape)
        # Views of it keep `array.base` alive, and with it the block.
        assert array.base is not None
        weakref.finalize(array.base, self._give_back, block).atexit = False
        return array

    def staged(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns a C-contiguous array in the form that uploads fastest: a page-locked copy, or the
        array itself if it is page-locked or too large for that.

        Raises as `array` does.
        """
        if array.nbytes > LOCKED_BYTES or self.is_locked(array):
            return array
        copied = self.array(array.shape, array.dtype)
        np.copyto(copied, array)
        return copied

    def is_locked(self, array: NDArray[Any]) -> bool:
        """Returns whether all of a C-contiguous array is page-locked."""
        with self._lock:
            return self._locked.holds(_address(array), array.nbytes)

    def pin(self, memory: NDArray[Any]) -> Callable[[], None]:
        """Page-locks a caller's C-contiguous array if the driver can, and returns a function that
        unlocks it."""
        place = _address(memory), memory.nbytes
        with self._lock:
            if self._is_closed or not memory.nbytes or not library.register(*place):
                return lambda: None
            pinned = object()
            self._pins[pinned] = memory
            self._locked.add(*place)
        return partial(self._unpin, pinned)

    def _unpin(self, pinned: object) -> None:
        with self._lock:
            memory = self._pins.pop(pinned, None)
            if memory is not None:  # else `close` has unpinned it
                place = _address(memory), memory.nbytes
                self._locked.remove(*place)
                # In a broken context, the end of the process unlocks it.
                with suppress(self._driver.error), current(self._driver, self._context):
                    library.unregister(*place)

    def close(self) -> None:
        """Frees all unreferenced blocks; others, such as those of results, are freed later.

        Raises the driver's errors where the context is broken.
        """
        with self._lock:
            self._is_closed = True
            self._unpin_all()
            self._collect()
            while self._free:
                self._free_block(self._oldest())

    def abandon(self) -> None:
        """Closes without freeing blocks, for a broken context."""
        with self._lock:
            self._is_closed = self._is_broken = True
            self._unpin_all()
            self._collect()
            while self._free:
                abandon(self._oldest())

    def _unpin_all(self) -> None:
        while self._pins:
            _, memory = self._pins.popitem()
            library.unregister(_address(memory), memory.nbytes)

    def _give_back(self, block: NDArray[np.uint8]) -> None:
        if self._is_broken:
            abandon(block)
        elif self._is_closed:
            _ORPHANS.append((self._driver, self._context, block))
        else:
            self._returned.append(block)

    def _take(self, size: int) -> NDArray[np.uint8] | None:
        """Returns the smallest free block that is large enough; None if there is none, or only a
        far too large one.

        Raises the driver's errors where the context is broken.
        """
        _free_orphans()
        self._collect()
        while (
            sum(map(len, self._free.values())) > _KEPT
            or sum(each * len(blocks) for each, blocks in self._free.items()) > _KEPT_BYTES
        ):
            self._free_block(self._oldest())
        fitting = [each for each in self._free if size <= each <= MOST_SPARE * size + 65536]
        return self._pop(min(fitting)) if fitting else None

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._free.setdefault(block.size, []).append(block)

    def _oldest(self) -> NDArray[np.uint8]:
        return self._pop(next(iter(self._free)))

    def _pop(self, size: int) -> NDArray[np.uint8]:
        blocks = self._free[size]
        block = blocks.pop()
        if not blocks:
            del self._free[size]
        return block

    def _free_block(self, block: NDArray[np.uint8]) -> None:
        self._locked.remove(_address(block), block.size)
        try:
            self._driver.free_pages(block)
        except self._driver.error:  # the context is broken, which no call has reported yet
            abandon(block)
            raise


class _Ranges:
    """A multiset of ranges of addresses that do not overlap."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        """The start and end of each, in ascending order."""

    def add(self, start: int, size: int) -> None:
        insort(self._ranges, (start, start + size))

    def remove(self, start: int, size: int) -> None:
        self._ranges.remove((start, start + size))

    def holds(self, start: int, size: int) -> bool:
        """Returns whether one of them contains a range."""
        index = bisect_right(self._ranges, start, key=lambda one: one[0]) - 1
        return index >= 0 and start + size <= self._ranges[index][1]


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def abandon(part: object) -> None:
    """Keeps an object of a context from ever being freed.

    This is for contexts that are broken or about to end: pycuda would print for each of their
    objects that it cannot be freed.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


def _free_orphans() -> None:
    while _ORPHANS:
        try:
            driver, context, block = _ORPHANS.popleft()
        except IndexError:  # another thread was quicker
            return
        try:
            with current(driver, context):
                driver.free_pages(block)
        except driver.error:  # their context is broken, not the current one
            abandon(block)


@atexit.register
def _abandon_orphans() -> None:
    for _, _, block in _ORPHANS:
        abandon(block)
