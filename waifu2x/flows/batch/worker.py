"""Codec workers for the driver: threads of its process, or processes.

Codecs release Python's lock, but the code around them does not: as threads, sixteen cores of codecs
slow a GPU that makes a picture in two milliseconds. If the network takes all cores, threads are
cheaper and start sooner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.flows.batch.codec import Codec, Command, Offered, OnReport, Report
from waifu2x.flows.fleet.process_worker import followed
from waifu2x.flows.fleet.processes import ChildProcess, EndedError, ParentProcess
from waifu2x.flows.fleet.shared_memory import AttachedPool, SharedArray, SharedPool
from waifu2x.flows.fleet.supervisor import State
from waifu2x.system import allocator

if TYPE_CHECKING:
    from waifu2x.flows.batch.assignments import Assignment, FileRequest

_ENDING_SECONDS = 0.1
"""The longest wait for the end of a thread, whose codec cannot be interrupted."""


class CodecWorker:
    """Makes one file or page at a time; reports come from its own thread. The driver's lock guards
    its attributes."""

    is_process: bool
    send: Callable[[Command], None]
    """Sends a command; a lost worker ignores it."""
    kill: Callable[[], None]
    """Begins to end it at once. Later reports are void."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.STARTING
        self.assignment: Assignment | None = None
        self.told: FileRequest | None = None
        """The latest request that it was sent."""
        self.calls = 0
        """Network calls that use its memory."""

    def start(self, tell: OnReport) -> None:
        """Begins its life. Raises RuntimeError if the system has no more threads."""
        raise NotImplementedError

    def close(self) -> None:
        """Waits for its end after `kill`; for a thread's, only a moment."""
        raise NotImplementedError

    def release(self) -> None:
        """Frees its memory, once no call uses it."""


class CodecThread(CodecWorker):
    """A worker in this process."""

    is_process = False

    def start(self, tell: OnReport) -> None:
        codec = Codec(tell)
        self.send, self.kill = codec.deliver, codec.stop
        self._thread = threading.Thread(target=codec.run, name=self.name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(_ENDING_SECONDS)


class CodecProcess(CodecWorker):
    """A worker in a separate process."""

    is_process = True

    def __init__(self, name: str, pin: Callable[[NDArray[Any]], Pin]) -> None:
        """`pin` is that of the device. Raises OSError if no pipe can be opened."""
        super().__init__(name)
        self._child = ChildProcess(work, name="waifu2x-worker")
        self._attached = AttachedPool(self._child.connection, pin)
        self.send, self.kill = self._child.send, self._child.kill

    def start(self, tell: OnReport) -> None:
        """Starts the process in the background. Its last report is Lost."""
        self._thread = followed(self._child, tell, self._received, self.name)

    def close(self) -> None:
        self._thread.join()

    def release(self) -> None:
        self._attached.close()

    def _received(self) -> Any:
        report = self._child.receive()
        if not isinstance(report, Offered):
            return report
        self._attached.drop(report.dropped)
        try:
            pixels, out = self._attached.receive([report.pixels, report.out])
        except (EOFError, ConnectionError) as error:
            raise EndedError(self._child.how_ended()) from error
        except OSError as error:
            # Files that it sent besides cannot be told from the next message.
            raise EndedError(f"cannot share its memory: {error}") from error
        return report._replace(pixels=pixels, out=out)


def work(connection: Connection) -> None:
    """Runs the process: makes files until the driver wants no more."""
    allocator.keep_freed()
    parent, pool = ParentProcess(connection), SharedPool()

    def tell(report: Report) -> None:
        if isinstance(report, Offered):
            _offer(report, parent, pool)
        else:
            parent.tell(report)

    codec = Codec(tell, pool)
    parent.listen(codec.deliver)
    codec.run()


def _offer(offer: Offered, parent: ParentProcess, pool: SharedPool) -> None:
    """Tells the driver where the arrays of a call are."""

    def message(told: Sequence[SharedArray], dropped: Sequence[int]) -> Offered:
        return offer._replace(pixels=told[0], out=told[1], dropped=dropped)

    with parent.sending() as connection:
        pool.send(connection, [offer.pixels, offer.out], message)
