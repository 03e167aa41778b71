"""Buffers of a device that free themselves, and the count of their bytes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class CountedMemory:
    """The part of a runtime that counts the bytes of its buffers. Threads may share it."""

    def __init__(self) -> None:
        self._counting = threading.RLock()
        """Re-entrant, since the garbage collector may free buffers in a thread that holds it."""
        self._allocated = 0

    @property
    def allocated(self) -> int:
        """The bytes of all buffers that are not released."""
        with self._counting:
            return self._allocated

    def count(self, size: int) -> None:
        """Adds to the count of allocated bytes; a negative size subtracts."""
        with self._counting:
            self._allocated += size


class OwnedBuffer:
    """Memory of a device. A buffer that is dropped without `release`, as after an error, is freed
    as well."""

    def __init__(
        self, runtime: CountedMemory, size: int, free: Callable[..., None], *arguments: Any
    ) -> None:
        """Takes over `size` bytes of a runtime. `free` with its arguments frees them, and subtracts
        them from the runtime's count."""
        self.size = size
        self._free = weakref.finalize(self, free, *arguments)
        self._free.atexit = False
        runtime.count(size)

    def release(self) -> None:
        """Frees the buffer; further calls do nothing."""
        self._free()
        self.size = 0
