"""Memory of the machine, taken again and again: locking pages takes longer than a network."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
import pycuda.driver as cuda
from numpy.typing import DTypeLike, NDArray

_KEPT = 4
"""Free blocks of page-locked memory that are kept."""
_MOST_BYTES = 1 << 30
"""Of a block: nobody else can have locked pages, and locking more takes as long as it saves."""


class HostMemory:
    """Page-locked arrays, which a GPU reads and writes at full speed; like NumPy's own otherwise.

    The memory of one comes back when nobody holds it any more.

    Its context must be current in every call: locked pages are freed in no other place.
    """

    def __init__(self) -> None:
        self._free: list[Any] = []
        self._returned: deque[Any] = deque()
        """Where the garbage collector may put a block at any time, in any thread."""

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised array; an ordinary one if it is large or no more pages can be locked."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size > _MOST_BYTES:
            return np.empty(shape, dtype)
        block = self._take(size)
        if block is None:
            try:
                block = cuda.pagelocked_empty(max(size, 1), np.uint8)
            except cuda.Error:
                return np.empty(shape, dtype)
        array = np.frombuffer(memoryview(block)[:size], dtype).reshape(shape)
        # Views of it keep `array.base` alive, and with it the block.
        assert array.base is not None
        weakref.finalize(array.base, self._returned.append, block).atexit = False
        return array

    def release(self) -> None:
        """Frees what nobody holds."""
        self._returned.clear()
        self._free.clear()

    def _take(self, size: int) -> Any:
        """The smallest free block that is large enough, unless it is far too large."""
        while self._returned:
            self._free.append(self._returned.popleft())
        del self._free[:-_KEPT]
        fitting = [block for block in self._free if size <= block.size <= 4 * size + 65536]
        if not fitting:
            return None
        best = min(fitting, key=lambda block: int(block.size))
        self._free = [block for block in self._free if block is not best]
        return best
