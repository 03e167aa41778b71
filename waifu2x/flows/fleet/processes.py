"""Processes that this program starts, as both sides see them: how they start, how they end, and
how each side learns of the other's end.

A parent handles signals; its children ignore them, and end at once when the parent is gone. They
come from one process that has the modules loaded, where the system has such a thing.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from typing import Any

from waifu2x.system.files import remove_unfinished

_STARTS = 3
"""Attempts at starting a process: the one that starts others may have been killed."""
_START_SECONDS = 0.1
"""Seconds between them: it is not gone at once."""
_reaping = threading.Lock()
"""Held while exit codes are read. Each can be read once, and multiprocessing reads those of all
children when it starts one."""


class EndedError(Exception):
    """A process has ended; the text says how."""


class ChildProcess:
    """A process of this program, and the pipe to it. Threads may share it."""

    def __init__(
        self, target: Callable[..., None], *arguments: Any, name: str, has_children: bool = False
    ) -> None:
        """Prepares a process that calls `target` with its end of the pipe and `arguments`. Raises
        OSError if no pipe can be opened."""
        context = start_context(target.__module__)
        self._module = target.__module__
        self.connection, self._theirs = context.Pipe()
        lifelines = list(_lifelines)
        self._ending: Connection | None = None
        self._lifeline: Connection | None = None
        if has_children:
            self._ending, self._lifeline = context.Pipe(duplex=False)
            lifelines.append(self._lifeline)
        self._process = context.Process(
            target=_run,
            args=(target, lifelines, self._theirs, *arguments),
            name=name,
            daemon=not has_children,
        )
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        """Separate from `_lock`, since a stopped process blocks its sender."""
        self._is_started = self._is_killed = self._has_ended = False

    @property
    def pid(self) -> int:
        """Returns the number of the started process."""
        pid: int = self._process.pid
        return pid

    @property
    def is_alive(self) -> bool:
        """Returns whether the process was started and has not ended."""
        with _reaping:
            return self._is_started and bool(self._process.is_alive())

    def start(self) -> None:
        """Starts the process. Raises EndedError."""
        with self._theirs, self._lifeline or nullcontext():
            for left in reversed(range(_STARTS)):
                try:
                    prepare(self._module)
                    with _reaping:
                        self._process.start()
                    break
                except (OSError, EOFError) as error:
                    if not left:
                        raise EndedError(f"cannot be started: {error}") from error
                    time.sleep(_START_SECONDS)
        with self._lock:
            self._is_started = True
            # At the end of this process, multiprocessing waits for its children, which ignore the
            # signal that it sends them.
            self._at_exit = util.Finalize(None, self.kill, exitpriority=1)
            if self._is_killed:
                self._kill()

    def send(self, message: Any) -> None:
        """Sends a message; an ended process ignores it, and `receive` shows its end."""
        # `Connection.send` has a slower pickler, for connections in messages.
        content = pickle.dumps(message)
        with suppress(OSError), self._sending:
            self.connection.send_bytes(content)

    def receive(self) -> Any:
        """Waits for a message. Raises EndedError once the process has ended."""
        try:
            return self.connection.recv()
        except (EOFError, OSError) as error:
            raise EndedError(self.how_ended()) from error

    def how_ended(self) -> str:
        """Waits for the end of the process; returns how it ended, for people."""
        if not self._is_started:
            return "was never started"
        self._has_ended = True
        self._join()
        code = self._process.exitcode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"was killed ({signal.Signals(-code).name})"
        return f"ended (exit code {code})"

    def wait_for_children(self, seconds: float) -> None:
        """Waits, `seconds` at most, for the end of the process and of all that it has started."""
        if self._ending is not None:
            self._ending.poll(seconds)

    def kill(self) -> None:
        """Ends the process at once, also one that is about to start."""
        with self._lock:
            self._is_killed = True
            if self._is_started:
                self._kill()

    def _kill(self) -> None:
        if sys.platform == "win32" or self._has_ended:
            self._process.kill()
        else:
            # Once the process that starts others is dead, multiprocessing takes this one for dead.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process at once, waits for that, and closes the pipe."""
        self.kill()
        if self._is_started:
            self._join()
            self._at_exit.cancel()
        with self._sending:  # its number may be reused
            self.connection.close()
        if self._ending is not None:
            self._ending.close()

    def _join(self) -> None:
        wait([self._process.sentinel])
        with _reaping:
            self._process.join()


class ParentProcess:
    """The process that has started this one, at the other end of the pipe. Threads may share it.

    A thread receives messages. When the parent is gone, or has sent None, this process ends.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen(self, deliver: Callable[[Any], None] | None = None) -> None:
        """Begins to receive messages; `deliver` gets each, or else `next` returns them."""
        threading.Thread(
            target=self._receive,
            args=(deliver or self._messages.put,),
            name="waifu2x-orders",
            daemon=True,
        ).start()

    def next(self) -> Any:
        """Waits for the next message."""
        return self._messages.get()

    def tell(self, message: Any) -> None:
        """Sends a message; ends the process if the parent is gone. Raises errors of pickling."""
        content = pickle.dumps(message)
        with self.sending() as connection:
            connection.send_bytes(content)

    @contextmanager
    def sending(self) -> Iterator[Connection]:
        """Gives the connection, for messages of one thread; ends the process if the parent is
        gone."""
        try:
            with self._lock:
                yield self._connection
        except OSError:
            self.vanish()

    def vanish(self) -> None:
        """Ends this process at once; no unfinished file stays."""
        try:
            remove_unfinished()
        finally:
            os._exit(0)

    def _receive(self, deliver: Callable[[Any], None]) -> None:
        while True:
            try:
                message = self._connection.recv()
            except Exception:  # the parent is gone, or has sent what cannot be read
                message = None
            if message is None:
                self.vanish()
            deliver(message)


_lifelines: list[Connection] = []
"""Pipes that this process and all that it starts hold open as long as they live: so the other end
shows when the last of them has ended."""


def _run(
    target: Callable[..., None],
    lifelines: Sequence[Connection],
    connection: Connection,
    *arguments: Any,
) -> None:
    """Runs a child process. It ignores the signals that end a group of processes, as its parent
    handles them."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    warnings.filterwarnings("ignore")  # of codecs, on odd but readable files
    _lifelines.extend(lifelines)
    target(connection, *arguments)


def prepare(*modules: str) -> None:
    """Begins to load all modules, and `modules`, in the process that starts others. So the first of
    those need not wait half a second for that. Where that fails, starting them will say why."""
    if sys.platform == "win32":
        return
    from multiprocessing import forkserver, resource_tracker

    start_context(*modules)
    with suppress(OSError):
        resource_tracker.ensure_running()  # it would unblock signals
    # Ctrl-C is for this process: the other would print a traceback while it loads modules.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with suppress(OSError, EOFError):
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def may_start_processes() -> bool:
    """Returns whether this process may have children: Dask's workers by default may not."""
    return not multiprocessing.current_process().daemon


def start_context(*modules: str) -> Any:
    """Returns a context that starts processes, if possible from one with all modules, and
    `modules`, loaded."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    started = multiprocessing.get_context("forkserver")
    started.set_forkserver_preload(["waifu2x.flows.batch.worker", *modules])
    return started
