"""Processes that read strangers' files: a file that breaks its decoder ends one of them alone. They
are beside the codec workers, whose queues may be long: the page shows new files at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from waifu2x.errors import ImageError, Waifu2xError
from waifu2x.flows.fleet.processes import ChildProcess, EndedError, ParentProcess
from waifu2x.flows.fleet.supervisor import DEVICES
from waifu2x.system import allocator

_Arguments = ParamSpec("_Arguments")
_Made = TypeVar("_Made")
_COUNT = 2
"""One process for new files, one for views."""
_SECONDS = 120.0
"""How long one file may take."""


class ReadingProcesses:
    """Processes that call functions. Threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._children: set[ChildProcess] = set()
        self._free: queue.SimpleQueue[ChildProcess | None] = queue.SimpleQueue()
        """Processes with nothing to do; None: one that is to be started."""
        for _ in range(_COUNT):
            self._free.put(None)

    def start(self) -> None:
        """Starts all processes, so that the first file need not wait for one."""
        for child in [self._free.get() for _ in range(_COUNT)]:
            with suppress(EndedError):
                child = self._living(child)
            self._free.put(child)

    def call(
        self,
        name: str,
        function: Callable[_Arguments, _Made],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Made:
        """Calls a function in a process, for the file `name`, and returns its result. Raises what
        the function raises, and ImageError if that takes too long, or ends several processes."""
        child, lost, made = self._free.get(), 0, None
        try:
            while made is None:
                try:
                    child = self._living(child)
                    child.send((function, arguments, named))
                    if not child.connection.poll(_SECONDS):
                        child.kill()
                        raise ImageError(f"{name}: it takes longer than {_SECONDS:.0f} s to read")
                    made = child.receive()
                except EndedError as gone:
                    lost += 1
                    if self._is_closed:
                        raise ImageError(f"{name}: not read, since the server is ending") from gone
                    if lost == DEVICES.tries:
                        why = DEVICES.blame(lost, f"its process {gone}")
                        raise ImageError(f"{name}: it {why}") from gone
        finally:
            self._free.put(child)
        result, error = made
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Kills all processes."""
        with self._lock:
            self._is_closed = True
            for child in self._children:
                child.close()

    def _living(self, child: ChildProcess | None) -> ChildProcess:
        """Returns a process, or another one if it has ended. Raises EndedError."""
        with self._lock:
            if self._is_closed:
                raise EndedError("may not be started")
            if child is not None and child.is_alive:
                return child
            if child is not None:
                child.close()
                self._children.remove(child)
            child = ChildProcess(work, name="waifu2x-reading")
            self._children.add(child)
            child.start()
            return child


def work(connection: Connection) -> None:
    """Calls functions for the server, in the process, until the server is gone."""
    allocator.keep_freed()
    import waifu2x.serve.decoding  # noqa: F401  the first file need not wait for it

    parent = ParentProcess(connection)
    parent.listen()
    while True:
        function, arguments, named = parent.next()
        made: Any = None
        error: Exception | None = None
        try:
            made = function(*arguments, **named)
        except (Waifu2xError, OSError) as raised:
            error = raised
        except MemoryError:
            error = ImageError("not enough memory to read it")
        except Exception as raised:  # a defect
            error = ImageError(f"cannot be read: {type(raised).__name__}: {raised}")
        parent.tell((made, error))
