"""Processes that read strangers' files: a file that breaks its decoder ends one of them alone. They
are beside the codec workers, whose queues may be long: the page shows new files at once."""

from __future__ import annotations

import queue
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from waifu2x.errors import ImageError, Waifu2xError
from waifu2x.flows.batch.worker import how_ended, start_context
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
            with suppress(OSError, EOFError):
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
        self._process: Any = None
        self._connection: Connection | None = None
        self._is_closed = False

    def start(self) -> Connection:
        """Starts the process, unless it runs. Raises OSError."""
        with self._lock:
            if self._is_closed:
                raise OSError("the server is ending")
            if self._connection is not None and self._process.is_alive():
                return self._connection
            self._connection, theirs = start_context().Pipe()
            with theirs:
                self._process = start_context().Process(
                    target=work, args=(theirs,), name="waifu2x-reading", daemon=True
                )
                self._process.start()
            return self._connection

    def call(self, name: str, function: Any, arguments: Any, named: Any) -> Any:
        try:
            connection = self.start()
            connection.send((function, arguments, named))
            if not connection.poll(_SECONDS):
                self.end(for_good=False)
                raise ImageError(f"{name}: it takes longer than {_SECONDS:.0f} s to read")
            made, error = connection.recv()
        except (OSError, EOFError) as gone:
            process = self._process
            if process is None:
                raise ImageError(f"{name}: no process to read it: {gone}") from gone
            process.join(1.0)
            why = how_ended(process.exitcode)
            self.end(for_good=False)
            raise ImageError(f"{name}: the process that read it {why}") from gone
        if error is not None:
            raise error
        return made

    def end(self, *, for_good: bool = True) -> None:
        with self._lock:
            self._is_closed |= for_good
            if self._process is not None:
                with suppress(OSError):
                    self._process.kill()
            if self._connection is not None and not for_good:
                self._connection.close()
                self._connection = None


def work(connection: Connection) -> None:
    """Calls functions for the server, in the process, until the connection is closed."""
    warnings.filterwarnings("ignore")  # codecs warn of odd but readable files
    allocator.keep_freed()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    import waifu2x.serve.decoding  # noqa: F401  the first file need not wait for it

    while True:
        try:
            function, arguments, named = connection.recv()
        except (OSError, EOFError):
            return
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
        try:
            connection.send((made, error))
        except OSError:
            return
