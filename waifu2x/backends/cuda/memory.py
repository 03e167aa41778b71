"""Memory of the machine, taken again and again: locking pages takes longer than a network."""

from __future__ import annotations

import atexit
import ctypes
import math
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends.cuda.driver import Driver, current

_KEPT = 64
"""Free blocks of page-locked memory that are kept at most..."""
_KEPT_BYTES = 1 << 30
"""...and how much they may be: locking pages and freeing them holds the whole device up."""
LOCKED_BYTES = 1 << 27
"""Of a block: nobody else can have locked pages, and where a picture is not one of many, locking
them takes twice as long as the copy through the driver's own that it saves."""


_ORPHANS: deque[tuple[Driver, Any, NDArray[np.uint8]]] = deque()
"""Blocks that came back after their HostMemory was closed, with the contexts that they belong to:
they are freed by the next one that needs memory."""


class HostMemory:
    """Page-locked arrays, which a GPU reads and writes at full speed; like NumPy's own otherwise.

    The memory of one comes back when nobody holds it any more. Calls of `array` may come from
    several threads at once.

    Its context must be current in every call: locked pages are freed in no other place.
    """

    def __init__(self, driver: Driver, context: Any) -> None:
        self._driver = driver
        self._context = context
        self._lock = threading.Lock()
        self._free: dict[int, list[NDArray[np.uint8]]] = {}
        """By their size; of which there was a free one longest, first."""
        self._returned: deque[NDArray[np.uint8]] = deque()
        """Where the garbage collector may put a block at any time, in any thread."""
        self._is_closed = self._is_broken = False

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised array; an ordinary one if it is large or no more pages can be locked.

        Raises the driver's errors where the context is broken."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > LOCKED_BYTES:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._take(size)
        if block is None:
            try:
                block = self._driver.lock_pages(max(size, 1))
            except self._driver.error:
                return np.empty(shape, dtype)
        array = np.frombuffer(block.data[:size], dtype).reshape(shape)
        # Views of it keep `array.base` alive, and with it the block.
        assert array.base is not None
        weakref.finalize(array.base, self._give_back, block).atexit = False
        return array

    def staged(self, array: NDArray[Any]) -> NDArray[Any]:
        """A C-contiguous array as it is best sent: a copy, or itself if that would not be locked.

        Raises as `array` does."""
        if array.nbytes > LOCKED_BYTES:
            return array
        copied = self.array(array.shape, array.dtype)
        np.copyto(copied, array)
        return copied

    def close(self) -> None:
        """Frees what nobody holds, and later what somebody still does, such as results.

        Raises the driver's errors where the context is broken."""
        self._is_closed = True
        self._collect()
        while self._free:
            self._free_block(self._oldest())

    def abandon(self) -> None:
        """The same for a context that is broken, in which nothing can be freed any more."""
        self._is_closed = self._is_broken = True
        self._collect()
        while self._free:
            abandon(self._oldest())

    def _give_back(self, block: NDArray[np.uint8]) -> None:
        if self._is_broken:
            abandon(block)
        elif self._is_closed:
            _ORPHANS.append((self._driver, self._context, block))
        else:
            self._returned.append(block)

    def _take(self, size: int) -> NDArray[np.uint8] | None:
        """The smallest free block that is large enough, unless it is far too large.

        Raises the driver's errors where the context is broken."""
        _free_orphans()
        self._collect()
        while (
            sum(map(len, self._free.values())) > _KEPT
            or sum(each * len(blocks) for each, blocks in self._free.items()) > _KEPT_BYTES
        ):
            self._free_block(self._oldest())
        fitting = [each for each in self._free if size <= each <= 4 * size + 65536]
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
        try:
            self._driver.free_pages(block)
        except self._driver.error:  # the context is broken, and nobody has noticed yet
            abandon(block)
            raise


def abandon(piece: object) -> None:
    """Keeps a piece of a context from ever being freed.

    For contexts that are broken or about to end, and all that is theirs with them: pycuda would say
    on the terminal, of each piece, that it cannot be freed.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(piece))


def _free_orphans() -> None:
    while _ORPHANS:
        try:
            driver, context, block = _ORPHANS.popleft()
        except IndexError:  # another thread was quicker
            return
        try:
            with current(driver, context):
                driver.free_pages(block)
        except driver.error:  # theirs is broken, which is no fault of this one's
            abandon(block)


@atexit.register
def _abandon_orphans() -> None:
    for _, _, block in _ORPHANS:
        abandon(block)
