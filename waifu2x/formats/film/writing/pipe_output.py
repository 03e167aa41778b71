"""Standard output as a film is written to it."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Any

_OFTEN = 1.0
"""Seconds after which somebody is told that nothing is taken."""
_AT_ONCE = 4096
"""Bytes that a pipe takes without waiting, once it takes any."""


class PipeOutput(io.RawIOBase):
    """Writes all that it is given, however long that takes."""

    def __init__(self, descriptor: int, on_waiting: Callable[[], None]) -> None:
        """`on_waiting` is called while nobody takes anything; closing it closes the descriptor."""
        self._descriptor = descriptor
        self._on_waiting = on_waiting
        mode = os.fstat(descriptor).st_mode
        self._waits = sys.platform != "win32" and not stat.S_ISREG(mode)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Writes all of it. Raises OSError: BrokenPipeError where nobody reads any more."""
        rest = memoryview(data).cast("B")
        while rest:
            if self._waits and not select.select([], [self._descriptor], [], _OFTEN)[1]:
                self._on_waiting()
                continue
            rest = rest[os.write(self._descriptor, rest[:_AT_ONCE] if self._waits else rest) :]
        return len(data)

    def close(self) -> None:
        """Closes the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()
