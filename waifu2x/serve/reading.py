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
        self._free: queue.SimpleQueue[_ReadingProcess] = queue.SimpleQueue()
        self._all = [_ReadingProcess() for _ in range(_COUNT)]
        for each in self._all:
            self._free.put(each)

    def start(self) -> None:
        """Starts all processes, so that the first file need not wait for one."""
        for each in self._all:
            with suppress(EndedError):
                each.start()

    def call(
        self,
        name: str,
        function: Callable[_Arguments, _Made],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Made:
        """Calls a function in a process, for the file `name`, and returns its result. Raises what
        the function raises, and ImageError if the process dies or takes too long."""
        process = self._free.get()
        try:
            made: _Made = process.call(name, function, arguments, named)
            return made
        finally:
            self._free.put(process)

    def close(self) -> None:
        """Kills all processes."""
        for each in self._all:
            each.end()


class _ReadingProcess:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._is_closed = False

    def start(self) -> ChildProcess:
        """Returns the process, which it starts unless it runs. Raises EndedError."""
        with self._lock:
            if self._is_closed:
                raise EndedError("is not there any more: the server is ending")
            if self._child is None or not self._child.is_alive:
                if self._child is not None:
                    self._child.close()
                self._child = ChildProcess(work, name="waifu2x-reading")
                self._child.start()
            return self._child

    def call(self, name: str, function: Any, arguments: Any, named: Any) -> Any:
        try:
            child = self.start()
            child.send((function, arguments, named))
            if not child.connection.poll(_SECONDS):
                child.kill()
                raise ImageError(f"{name}: it takes longer than {_SECONDS:.0f} s to read")
            made, error = child.receive()
        except EndedError as gone:
            raise ImageError(f"{name}: the process that reads it {gone}") from gone
        if error is not None:
            raise error
        return made

    def end(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._child is not None:
                self._child.close()


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
