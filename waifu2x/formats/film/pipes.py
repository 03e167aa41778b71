"""Standard input and output as films, as FFmpeg reads and writes them."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO

_OFTEN = 1.0
"""Seconds between two calls of `on_waiting` while a pipe stands still."""
_AT_ONCE = 4096
"""Bytes that a pipe takes without waiting, once it takes any."""


def piped(descriptor: int, on_waiting: Callable[[], None]) -> BinaryIO | PipeInput:
    """Opens a descriptor for reading: a redirected file allows seeking, a pipe does not.
    `on_waiting` is called while nothing comes. Closing the file closes the descriptor. Raises
    OSError."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    return PipeInput(descriptor, on_waiting)


class PipeInput(io.BufferedIOBase):
    """A pipe whose first bytes can be looked at before they are read."""

    def __init__(self, descriptor: int, on_waiting: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_waiting = on_waiting
        self._head = b""
        """The first bytes, once `beginning` was called."""
        self._read = 0

    def readable(self) -> bool:
        return True

    def beginning(self, size: int) -> bytes:
        """Returns the first `size` bytes, or fewer if the pipe ends, without consuming them. It has
        to be called before any `read`. Raises OSError."""
        while len(self._head) < size:
            more = self._take(size - len(self._head))
            if not more:
                break
            self._head += more
        return self._head

    def read(self, size: int | None = -1) -> bytes:
        """Returns up to `size` bytes; none at the end. Raises OSError."""
        wanted = size if size is not None and size >= 0 else io.DEFAULT_BUFFER_SIZE
        if self._read < len(self._head):
            data = self._head[self._read : self._read + wanted]
            self._read += len(data)
            return data
        return self._take(wanted)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()

    def _take(self, size: int) -> bytes:
        while sys.platform != "win32" and not select.select([self._descriptor], [], [], _OFTEN)[0]:
            self._on_waiting()
        return os.read(self._descriptor, size)


class PipeOutput(io.RawIOBase):
    """A pipe or file whose `write` waits until everything is written."""

    def __init__(self, descriptor: int, on_waiting: Callable[[], None]) -> None:
        """Closing it closes `descriptor`; `on_waiting` is called while the reader takes nothing."""
        self._descriptor = descriptor
        self._on_waiting = on_waiting
        mode = os.fstat(descriptor).st_mode
        self._waits = sys.platform != "win32" and not stat.S_ISREG(mode)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Writes all of `data`. Raises OSError: BrokenPipeError where the reader is gone."""
        rest = memoryview(data).cast("B")
        while rest:
            if self._waits and not select.select([], [self._descriptor], [], _OFTEN)[1]:
                self._on_waiting()
                continue
            rest = rest[os.write(self._descriptor, rest[:_AT_ONCE] if self._waits else rest) :]
        return len(data)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()


class HeldOutput(io.RawIOBase):
    """A pipe whose first bytes are held back until `released`, so that they can still change."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._held: io.BytesIO | None = io.BytesIO()

    @contextmanager
    def released(self) -> Iterator[IO[bytes]]:
        """Gives the first bytes, and writes them at the end of the context. Raises OSError."""
        held, self._held = self._held, None
        assert held is not None
        yield held
        self.write(held.getvalue())

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._held is not None:
            return self._held.write(data)
        return self._file.write(data) or 0
