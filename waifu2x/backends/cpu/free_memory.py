"""Memory that calls leave for the next ones: its pages are there."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.records import aligned


class FreeMemory:
    """Blocks of floats, on cache lines, uninitialised. Threads may share it."""

    def __init__(self, most: int) -> None:
        """`most` is how many bytes are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._blocks: list[NDArray[np.float32]] = []

    @property
    def bytes(self) -> int:
        """Bytes of the blocks that nobody has taken."""
        with self._lock:
            return sum(block.nbytes for block in self._blocks)

    def take(self, floats: int) -> NDArray[np.float32]:
        """A block of at least so many floats: the one given back first, or a new one."""
        with self._lock:
            block = self._blocks.pop(0) if self._blocks else None
        return block if block is not None and block.size >= floats else aligned(floats)

    def give_back(self, block: NDArray[np.float32]) -> None:
        """Keeps a block for the next who takes one; the ones given back first make room for it."""
        if block.nbytes > self._most:
            return
        with self._lock:
            self._blocks.append(block)
            while sum(kept.nbytes for kept in self._blocks) > self._most:
                self._blocks.pop(0)

    def release(self) -> None:
        """Frees all blocks that nobody has taken."""
        with self._lock:
            self._blocks.clear()
