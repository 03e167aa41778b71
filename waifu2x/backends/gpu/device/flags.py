"""Defines flags, by which kernels mark pictures whose values left the range of the executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from waifu2x.backends.gpu.device.runtime import Runtime

_WORDS = 1024
"""The words of flags that are kept for further calls: a usual stack has fewer pictures."""


class Flags(Protocol):
    """Holds a word for each picture of a batch. Kernels write it only for a value that is too
    large, so it needs no clearing before a picture."""

    @property
    def address(self) -> int:
        """The address of the first word, as an argument of kernels."""

    def take(self, pictures: int) -> list[int]:
        """Returns the indices of flagged pictures among the first `pictures`, and clears all flags.

        The kernels that may set flags must be done.
        """


class _NoFlags:
    """Stands for the flags of kernels that set none; its address is 0."""

    address = 0

    def take(self, pictures: int) -> list[int]:
        """Returns an empty list."""
        return []


NO_FLAGS: Flags = _NoFlags()


class BufferFlags:
    """Flags in device memory, which are copied to be read."""

    def __init__(self, runtime: Runtime, pictures: int) -> None:
        """Makes flags for `pictures` pictures. May raise OutOfMemoryError."""
        self._runtime = runtime
        self._words = np.zeros(pictures, np.int32)
        self._buffer = runtime.allocate(self._words.nbytes)
        runtime.upload(self._buffer, self._words)
        self.address = runtime.handle(self._buffer)

    def take(self, pictures: int) -> list[int]:
        """Returns the indices of flagged ones among the first pictures, and clears all flags."""
        words = self._words[:pictures]
        self._runtime.download(self._buffer, words)
        if not words.any():
            return []
        found: list[int] = np.flatnonzero(words).tolist()
        self._words[:] = 0
        self._runtime.upload(self._buffer, self._words)
        return found


class FlagPool:
    """Lends flags to calls. Threads may share it.

    It lends the flags first that came back last, so that recorded launches with their address can
    be replayed.
    """

    def __init__(self, make: Callable[[int], Flags]) -> None:
        """`make` makes flags for at least the given number of pictures."""
        self._make = make
        self._free: list[Flags] = []

    @contextmanager
    def taken(self, pictures: int) -> Iterator[Flags]:
        """Yields cleared flags for a number of pictures. Kernels that set them must be done when
        the context ends. May raise OutOfMemoryError."""
        if pictures > _WORDS:
            yield self._make(pictures)
            return
        try:
            flags = self._free.pop()
        except IndexError:
            flags = self._make(_WORDS)
        yield flags
        # After an error, some may still be set: those flags are dropped.
        self._free.append(flags)
