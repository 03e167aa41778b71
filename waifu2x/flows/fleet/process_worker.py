"""A worker that is a process of this machine, with its own workplace.

Orders go to it and reports come back through a pipe; pictures never do. One that has ended can be
started again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from waifu2x import __version__
from waifu2x.errors import BackendError
from waifu2x.flows.fleet.messages import Failed, Logged, Lost, Order, Report, Withdraw, Withdrawn
from waifu2x.flows.fleet.processes import ChildProcess, EndedError, ParentProcess
from waifu2x.flows.fleet.task import Opening, Tell
from waifu2x.system.lazy_dataclass import dataclass

_GONE_SECONDS = 10.0
"""The longest wait for the children of an ended process."""


@dataclass(frozen=True)
class Ahead:
    """How much work waits in a worker, so that it never waits for an order."""

    least: float = 1.0
    """Weight of tasks that are not begun."""
    seconds: float = 0.0
    """As many seconds of work as it was seen to do."""

    def has_room(self, waiting: float, rate: float) -> bool:
        """Returns whether a worker takes a task more, with that weight waiting and that weight done
        in a second."""
        return waiting < max(self.least, rate * self.seconds)


ONE = Ahead()


class ProcessWorker:
    """A process that does tasks. The fleet's thread uses it."""

    def __init__(self, name: str, opening: Opening, ahead: Ahead = ONE) -> None:
        self.name = name
        self.opening = opening
        self.has_room = ahead.has_room
        self.can_restart = True
        self._child: ChildProcess | None = None
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Returns the number of the present process, if there is one."""
        return self._child.pid if self._child is not None and self._child.is_alive else None

    def start(self, tell: Callable[[Report], None]) -> None:
        """Starts a process; a thread passes its reports to `tell`, Lost or Failed as the last."""
        self._child = child = ChildProcess(
            work, self.opening, __version__, name="waifu2x-device", has_children=True
        )
        self._thread = followed(child, tell, child.receive, f"waifu2x-{self.name}")

    def send(self, message: Order | Withdraw) -> None:
        """Sends a message; a process that has ended ignores it."""
        assert self._child is not None
        self._child.send(message)

    def flush(self) -> None:
        """Does nothing: every order is sent at once."""

    def kill(self) -> None:
        """Ends the process at once."""
        if self._child is not None:
            self._child.kill()

    def stop(self) -> None:
        """Begins to end the process, which removes what is unfinished."""
        if self._child is not None:
            self._child.send(None)

    def close(self) -> None:
        """Waits for the end of the process, and of all that it has started."""
        if self._child is None:
            return
        assert self._thread is not None
        self._thread.join(_GONE_SECONDS)
        self._child.kill()
        self._thread.join()
        self._child = self._thread = None


def followed(
    child: ChildProcess, tell: Callable[[Any], None], receive: Callable[[], Any], name: str
) -> threading.Thread:
    """Starts a process in the background, and returns the thread that passes on to `tell` what
    `receive` returns: Lost when that raises EndedError, or Failed, as the last. Raises RuntimeError
    if the system has no more threads."""
    thread = threading.Thread(target=_follow, args=(child, tell, receive), name=name, daemon=True)
    try:
        thread.start()
    except BaseException:
        child.close()
        raise
    return thread


def _follow(child: ChildProcess, tell: Callable[[Any], None], receive: Callable[[], Any]) -> None:
    """Starts a process and passes its reports on until it has ended."""
    last: Report
    try:
        child.start()
        while True:
            tell(receive())
    except EndedError as error:
        # Its own processes may be about to give a file its name.
        child.wait_for_children(_GONE_SECONDS)
        last = Lost(f"its process {error}")
    except BaseException as error:
        last = Failed(error)
    child.close()
    tell(last)


def work(connection: Connection, opening: Opening, version: str) -> None:
    """Runs the process: opens its workplace, and does tasks until the parent wants no more."""
    parent = ParentProcess(connection)
    parent.listen()

    def tell(report: Report) -> None:
        try:
            parent.tell(report)
        except Exception as error:  # an error of another library that cannot be sent
            parent.tell(Failed(RuntimeError(f"{type(error).__name__}: {error}")))

    logger = logging.getLogger("waifu2x")
    logger.setLevel(logging.INFO)
    logger.addHandler(_Teller(tell))
    logger.propagate = False
    try:
        check_version(version, "this process")
        with opening.opened(tell) as place:
            tell(place.opened)
            while True:
                message = parent.next()
                if isinstance(message, Withdraw):
                    tell(Withdrawn(place.withdraw()))
                else:
                    place.begin(message)
    except Exception as error:
        tell(Failed(error))
    parent.vanish()


def check_version(version: str, who: str) -> None:
    """Raises BackendError if this is another version than that of the program that asks."""
    if version != __version__:
        raise BackendError(f"{who} has waifu2x {__version__}, not {version}", "install the same")


class _Teller(logging.Handler):
    """Sends messages of the log to the parent."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(Logged(record.getMessage()))
