"""Codec workers for the driver: threads of its process, or processes.

Codecs release Python's lock, but the code around them does not: as threads, sixteen cores of codecs
slow a GPU that makes a picture in two milliseconds. If the network takes all cores, threads are
cheaper and start sooner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.flows.batch.codec import Codec, Command, Died, DirectLink, Offered, OfferedCall, Report
from waifu2x.flows.fleet.processes import ChildProcess, EndedError, ParentProcess
from waifu2x.flows.fleet.shared_memory import AttachedPool, SharedPool
from waifu2x.system import allocator

if TYPE_CHECKING:
    from waifu2x.flows.batch.assignments import FileRequest

_ENDING_SECONDS = 0.1
"""The longest wait for the end of a thread, whose codec cannot be interrupted."""


class CodecWorker(Protocol):
    """Makes one file or page at a time; reports come from its own thread."""

    is_process: bool
    told: FileRequest | None
    """The latest request that it was sent."""
    calls: int
    """Network calls that use its memory."""

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
        self.told: FileRequest | None = None
        self.calls = 0
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
        self.told: FileRequest | None = None
        self.calls = 0
        self._on_report = on_report
        self._child = ChildProcess(work, name="waifu2x-worker")
        self._attached = AttachedPool(self._child.connection, pin)
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._child.close()
            raise

    def send(self, command: Command) -> None:
        """Sends a command; a dead process ignores it, and its reports end with Died."""
        self._child.send(command)

    def stop(self) -> None:
        self._child.kill()

    def join(self) -> None:
        self._thread.join()

    def release(self) -> None:
        self._attached.close()

    def _follow(self) -> None:
        """Starts the process and passes its reports on until it has ended."""
        try:
            self._child.start()
            while True:
                self._on_report(self, self._received())
        except EndedError as error:
            why = str(error)
        except Exception as error:
            # Files that it sent besides cannot be told from the next message.
            why = f"cannot share its memory: {error}"
        self._child.close()
        self._on_report(self, Died(why))

    def _received(self) -> Report:
        report: Report = self._child.receive()
        if not isinstance(report, Offered):
            return report
        self._attached.drop(report.dropped)
        told = [array for call in report.calls for array in (call.pixels, call.out)]
        try:
            arrays = iter(self._attached.receive(told))
        except (EOFError, ConnectionError) as error:
            raise EndedError(self._child.how_ended()) from error
        calls = [call._replace(pixels=next(arrays), out=next(arrays)) for call in report.calls]
        return report._replace(calls=calls)


def work(connection: Connection) -> None:
    """Runs the process: makes files until the driver wants no more."""
    allocator.keep_freed()
    parent = ParentProcess(connection)
    codec = Codec(_PipeLink(parent))
    parent.listen(codec.deliver)
    codec.run()


class _PipeLink:
    """A link through a pipe and shared memory."""

    def __init__(self, parent: ParentProcess) -> None:
        self._parent = parent
        self._pool = SharedPool()
        self.allocate = self._pool.array
        self.holds = self._pool.holds
        self.report = parent.tell

    def offer(self, number: int, calls: Sequence[OfferedCall]) -> None:
        """Sends the places of arrays."""
        arrays = [array for call in calls for array in (call.pixels, call.out)]

        def message(told: Sequence[Any], dropped: Sequence[int]) -> Offered:
            places = iter(told)
            shared = [call._replace(pixels=next(places), out=next(places)) for call in calls]
            return Offered(number, shared, dropped)

        with self._parent.sending() as connection:
            self._pool.send(connection, arrays, message)
