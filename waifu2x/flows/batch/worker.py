"""Codec workers for the driver: threads of its process, or processes.

Codecs release Python's lock, but the code around them does not: as threads, sixteen cores of codecs
slow a GPU that makes a picture in two milliseconds. If the network takes all cores, threads are
cheaper and start sooner.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.flows.batch.codec import Codec, Command, Died, DirectLink, Offered, OfferedCall, Report
from waifu2x.flows.batch.shared_memory import AttachedPool, SharedPool
from waifu2x.system import allocator
from waifu2x.system.files import remove_unfinished

_ENDING_SECONDS = 0.1
"""The longest wait for the end of a thread, whose codec cannot be interrupted."""


class CodecWorker(Protocol):
    """Makes one file or page at a time; reports come from its own thread."""

    is_process: bool

    def send(self, command: Command) -> None:
        """Sends a command; if the worker is dead, a report says so."""

    def stop(self) -> None:
        """Begins to end it at once. Later reports are void."""

    def join(self) -> None:
        """Waits for its end after `stop`; for a thread's, only a moment."""

    def release(self) -> None:
        """Frees its memory, once no call uses it."""


class CodecThread:
    """A worker in this process."""

    is_process = False

    def __init__(self, on_report: Callable[[CodecWorker, Report], None], name: str) -> None:
        """Raises RuntimeError if no thread can be started."""
        self._codec = Codec(DirectLink(lambda report: on_report(self, report)))
        self._thread = threading.Thread(target=self._codec.run, name=name, daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        self._codec.deliver(command)

    def stop(self) -> None:
        """Ends it where it waits for the driver, or in its next file."""
        self._codec.stop()

    def join(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(_ENDING_SECONDS)

    def release(self) -> None:
        """Does nothing: its memory is this process's."""


class CodecProcess:
    """A worker in a separate process. A thread here receives its reports."""

    is_process = True

    def __init__(
        self,
        on_report: Callable[[CodecWorker, Report], None],
        name: str,
        pin: Callable[[NDArray[Any]], Pin],
    ) -> None:
        """Starts the process in the background; `pin` is that of the device. Raises RuntimeError if
        no thread can be started, OSError if no pipe can be opened."""
        self._on_report = on_report
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        """Separate from `_lock`, since a stopped process blocks its sender."""
        self._process: Any = None
        self._is_stopped = False
        self._connection, self._theirs = start_context().Pipe()
        self._attached = AttachedPool(self._connection, pin)
        self._thread = threading.Thread(target=self._receive, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._connection.close()
            self._theirs.close()
            raise

    def send(self, command: Command) -> None:
        """Sends a command; a dead process ignores it, and its reports end with Died."""
        with suppress(OSError), self._sending:
            self._connection.send(command)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()

    def join(self) -> None:
        self._thread.join()

    def release(self) -> None:
        self._attached.close()

    def _receive(self) -> None:
        why = self._start() or self._until_its_end()
        self._connection.close()
        self._on_report(self, Died(why))

    def _start(self) -> str:
        """Starts the process; returns the error if that fails."""
        process = start_context().Process(
            target=work, args=(self._theirs, _lifelines), name="waifu2x-worker", daemon=True
        )
        try:
            with self._theirs:
                prepare()
                process.start()
        except (OSError, EOFError) as error:
            return f"cannot be started: {error}"
        with self._lock:
            self._process = process
            if self._is_stopped:
                process.kill()
        return ""

    def _until_its_end(self) -> str:
        """Passes its reports on; returns how it ended, for people."""
        try:
            while True:
                self._on_report(self, self._received())
        except (EOFError, ConnectionError):
            self._process.join()
            return how_ended(self._process.exitcode)
        except Exception as error:
            # Files that it sent besides cannot be told from the next message.
            self._process.kill()
            self._process.join()
            return f"cannot share its memory: {error}"

    def _received(self) -> Report:
        report: Report = self._connection.recv()
        if not isinstance(report, Offered):
            return report
        self._attached.drop(report.dropped)
        told = [array for call in report.calls for array in (call.pixels, call.out)]
        arrays = iter(self._attached.receive(told))
        calls = [call._replace(pixels=next(arrays), out=next(arrays)) for call in report.calls]
        return report._replace(calls=calls)


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
    started.set_forkserver_preload([__name__, *modules])
    return started


def how_ended(code: int | None) -> str:
    """Returns how a process has ended, for people."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was killed ({signal.Signals(-code).name})"
    return f"ended (exit code {code})"


def leave_signals() -> None:
    """Ignores the signals that end a group of processes: the parent then ends this one."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


_lifelines: list[Connection] = []
"""Pipes that this process and its codec processes hold open as long as they live."""


def keep_open(lifeline: Connection) -> None:
    """Holds one end of a pipe open until this process and all codec processes that it starts from
    now on have ended."""
    _lifelines.append(lifeline)


def work(connection: Connection, lifelines: Sequence[Connection]) -> None:
    """Runs the process: makes files until there are no more. It holds `lifelines` open."""
    warnings.filterwarnings("ignore")  # of codecs, on odd but readable files
    allocator.keep_freed()
    leave_signals()
    codec = Codec(_PipeLink(connection))

    def receive() -> None:
        while True:
            try:
                command = connection.recv()
            except Exception:  # the driver is gone, or its error cannot be unpickled
                _vanish()
            codec.deliver(command)

    threading.Thread(target=receive, name="waifu2x-commands", daemon=True).start()
    try:
        codec.run()
    except OSError:
        _vanish()


def _vanish() -> None:
    """Ends a process whose driver is gone, at once."""
    remove_unfinished()
    os._exit(1)


class _PipeLink:
    """A link through a pipe and shared memory."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._pool = SharedPool()
        self.allocate = self._pool.array
        self.holds = self._pool.holds

    def report(self, report: Report) -> None:
        """Raises OSError if the driver is gone."""
        with self._lock:
            self._connection.send(report)

    def offer(self, number: int, calls: Sequence[OfferedCall]) -> None:
        """Sends the places of arrays. Raises OSError if the driver is gone."""
        arrays = [array for call in calls for array in (call.pixels, call.out)]

        def message(told: Sequence[Any], dropped: Sequence[int]) -> Offered:
            places = iter(told)
            shared = [call._replace(pixels=next(places), out=next(places)) for call in calls]
            return Offered(number, shared, dropped)

        with self._lock:
            self._pool.send(self._connection, arrays, message)
