"""Memory that calls leave for the next ones: its pages are there."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.pack.records import aligned


class FreeMemory:
    """Blocks of floats, on cache lines. Threads may share it.

    A block holds zeros, or what the same user has left there: what another one has left may be no
    number where it is read as another kind, and padding is multiplied by zeros, not left out.
    """

    def __init__(self, most: int) -> None:
        """`most` is how many bytes are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._blocks: list[tuple[NDArray[np.float32], weakref.ref[NDArray[Any]]]] = []
        """Each with its last user."""

    @property
    def bytes(self) -> int:
        """Bytes of the blocks that nobody has taken."""
        with self._lock:
            return sum(block.nbytes for block, _ in self._blocks)

    def take(self, floats: int, user: NDArray[Any]) -> NDArray[np.float32]:
        """A block of at least so many floats: the one given back first, or a new one.

        `user` stands for whoever takes it: the weights of a network.
        """
        with self._lock:
            block, last = self._blocks.pop(0) if self._blocks else (None, None)
        if block is None or block.size < floats:
            return aligned(floats, zeros=True)
        if last is None or last() is not user:
            block[:] = 0  # all of it: the next call of this user may take more
        return block

    def give_back(self, block: NDArray[np.float32], user: NDArray[Any]) -> None:
        """Keeps a block for the next who takes one; the ones given back first make room for it."""
        if block.nbytes > self._most:
            return
        with self._lock:
            self._blocks.append((block, weakref.ref(user)))
            while sum(kept.nbytes for kept, _ in self._blocks) > self._most:
                self._blocks.pop(0)

    def release(self) -> None:
        """Frees all blocks that nobody has taken."""
        with self._lock:
            self._blocks.clear()
