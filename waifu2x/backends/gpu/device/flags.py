"""Words by which kernels say of a picture that its values left the room of their executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

_WORDS = 1024
"""How many words flags have that are kept for further calls: a usual stack has fewer pictures."""


class Flags(Protocol):
    """A word for each picture of a batch. Kernels write it only for a value that is too large, so
    it needs no clearing before a picture."""

    @property
    def address(self) -> int:
        """Where kernels find the first one."""

    def take(self, pictures: int) -> list[int]:
        """Returns the numbers of flagged pictures among the first ones, and clears all flags.

        The kernels that may flag them must be done.
        """


class _NoFlags:
    """Flags of kernels that set none, at no address."""

    address = 0

    def take(self, pictures: int) -> list[int]:
        """Returns none."""
        return []


NO_FLAGS: Flags = _NoFlags()


class FlagPool:
    """Flags that are taken for a call, and given back. Threads may share it.

    The one that came back last goes first: launches that hold its address come again then.
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
        # Work that broke off with an error may have set some: those are dropped.
        self._free.append(flags)
