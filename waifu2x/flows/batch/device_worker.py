"""A process with its own device or devices, which makes the files that it is told.

A Session drives the device and a share of the machine's codec processes, as on the workers of a
cluster. Names come and outcomes go through one connection; pictures never do. When the parent is
gone, the process and its codec processes end at once, without leaving unfinished files.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

from waifu2x.api import Upscaler
from waifu2x.backends.engine.engine import Engine
from waifu2x.flows.batch import worker
from waifu2x.flows.batch.session import Answer, Session, SessionSettings
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores
from waifu2x.system.files import remove_unfinished

_TOLD_SECONDS = 0.1
"""Seconds between two messages about progress."""


# Commands; None ends the process, as the end of the connection does.


class Name(NamedTuple):
    """Make this file."""

    number: int
    source: str
    target: str
    repeated: bool
    """Whether a process was lost on it before; see `Session.submit`."""


class Withdraw(NamedTuple):
    """Make no files that no worker has taken."""


# Reports to the parent:


class Opened(NamedTuple):
    """The device is open."""

    backend: str
    described: str
    """The device, for people."""
    notices: tuple[str, ...]
    """Notices of the upscaler."""


class Begun(NamedTuple):
    """A worker has taken a file."""

    number: int


class Withdrawn(NamedTuple):
    """Files that will not be made."""

    numbers: Sequence[int]


class Advanced(NamedTuple):
    """Further finished parts of files, by their numbers."""

    parts: Mapping[int, float]


class Noticed(NamedTuple):
    """A notice about a file, for people."""

    number: int
    text: str


class Done(NamedTuple):
    number: int
    outcome: Outcome


class Logged(NamedTuple):
    """A message of the program's log."""

    text: str


class Failed(NamedTuple):
    """An error that ends the process."""

    error: BaseException


Report = Opened | Begun | Withdrawn | Advanced | Noticed | Done | Logged | Failed


def work(
    connection: Connection, lifeline: Connection, settings: SessionSettings, fallback: bool
) -> None:
    """Runs the process. It holds `lifeline` open, as all its child processes do: the other end
    shows when the last of them has ended. `fallback` is that of Engine. SIGINT, SIGTERM and SIGHUP
    are left to the parent."""
    worker.leave_signals()
    warnings.filterwarnings("ignore")  # of codecs, on odd but readable files
    worker.keep_open(lifeline)
    _Process(connection, settings).run(fallback)


class _Process:
    def __init__(self, connection: Connection, settings: SessionSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._sending = threading.Lock()
        self._names: queue.SimpleQueue[Name | Withdraw] = queue.SimpleQueue()
        self._numbers: dict[Job, int] = {}
        self._session: Session | None = None
        self._progress = threading.Lock()
        self._parts: dict[int, float] = {}
        """Finished parts that were not yet reported."""
        self._told_at = 0.0
        logger = logging.getLogger("waifu2x")
        logger.setLevel(logging.INFO)
        logger.addHandler(_Teller(self))
        logger.propagate = False

    def run(self, fallback: bool) -> None:
        """Opens the device and makes files until the connection ends."""
        threading.Thread(target=self._receive, name="waifu2x-names", daemon=True).start()
        try:
            if self._settings.many:
                worker.prepare()  # beside the device
            arguments = dict(self._settings.arguments)
            choice = [arguments.pop(name) for name in ("backend", "device", "precision")]
            engine = Engine(*choice, fallback=fallback)
            upscaler = Upscaler(engine=engine, **arguments)
            self._session = session = Session(
                upscaler, self._settings, on_begun=self._begun, on_progress=self._advance
            )
        except Exception as error:
            self.report(Failed(error))
            self._vanish()
        backend = engine.backend
        described = f"{backend.name}: {backend.device.name}, {backend.device.detail}"
        notices = (*upscaler.notices, *engine.notices)
        self.report(Opened(backend.name, described, notices))
        while True:
            name = self._names.get()
            if isinstance(name, Withdraw):
                numbers = [self._numbers.pop(job) for job in session.withdraw()]
                self.report(Withdrawn(numbers))
                continue
            job = Job(stores.located(name.source), stores.located(name.target))
            self._numbers[job] = name.number
            try:
                session.submit(job, self._answer, repeated=name.repeated)
            except BaseException:  # the session has ended and reported that
                continue

    def report(self, report: Report) -> None:
        """Sends a report; ends the process if the parent is gone."""
        try:
            with self._sending:
                self._connection.send(report)
        except OSError:
            self._vanish()
        except Exception as error:  # an error of another library that cannot be sent
            with self._sending:
                self._connection.send(Failed(RuntimeError(f"{type(error).__name__}: {error}")))

    def _receive(self) -> None:
        while True:
            try:
                name = self._connection.recv()
            except Exception:  # the parent is gone
                self._vanish()
            if name is None:
                self._vanish()
            self._names.put(name)

    def _vanish(self) -> None:
        """Ends the process at once; its codec processes note that."""
        try:
            remove_unfinished()
            if self._session is not None:
                self._session.throw_away()
        finally:
            os._exit(0)

    def _begun(self, job: Job) -> None:
        self.report(Begun(self._numbers[job]))

    def _advance(self, job: Job, part: float) -> None:
        with self._progress:
            number = self._numbers[job]
            self._parts[number] = self._parts.get(number, 0.0) + part
            now = time.monotonic()
            if now - self._told_at < _TOLD_SECONDS:
                return
            self._told_at = now
            parts, self._parts = self._parts, {}
        self.report(Advanced(parts))

    def _answer(self, answer: Answer) -> None:
        if isinstance(answer, Outcome):
            number = self._numbers.pop(answer.job)
            with self._progress:
                self._parts.pop(number, None)
            self.report(Done(number, answer))
        elif isinstance(answer, BaseException):
            self.report(Failed(answer))
        else:
            job, text = answer
            self.report(Noticed(self._numbers[job], text))


class _Teller(logging.Handler):
    """Sends messages of the log to the parent."""

    def __init__(self, process: _Process) -> None:
        super().__init__()
        self._process = process

    def emit(self, record: logging.LogRecord) -> None:
        self._process.report(Logged(record.getMessage()))
