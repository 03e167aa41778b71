"""Makes files on several devices of one machine, each with its own process: names go out, outcomes
come back.

Each process takes names as it has room, so a faster device makes more. If one dies, its successor
makes the files under way again, one by one, since one of them may be to blame. Finished files stay.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from multiprocessing.connection import Connection
from typing import Any

from waifu2x.errors import BackendError, Waifu2xError
from waifu2x.flows.batch import device_worker
from waifu2x.flows.batch.listings import Listings
from waifu2x.flows.batch.session import SessionSettings
from waifu2x.flows.batch.worker import how_ended, start_context
from waifu2x.flows.jobs import Job, OnNotice, is_archive
from waifu2x.flows.outcome import Outcome
from waifu2x.system import stores
from waifu2x.system.files import clear_folder
from waifu2x.system.lazy_dataclass import dataclass

_AHEAD = 4
"""The least names that wait in a process, so that no worker waits for one."""
_AHEAD_SECONDS = 0.1
"""Seconds of work that wait in a process: each thread on a name's way may wait some milliseconds
for Python's lock."""
_FRUITLESS = 2
"""Consecutive processes of a device without a finished file after which it is given up."""
_TRIES = 3
"""Processes lost on a file after which the file is to blame, without other evidence."""
_GONE_SECONDS = 10.0
"""The longest wait for the children of an ended process."""


@dataclass(eq=False)
class _HandedOut:
    """A file that a process has, or had when it ended."""

    job: Job
    tries: int = 0

    @property
    def names(self) -> int:
        """Returns for how many names it counts: archives must not wait where another device is
        free."""
        return _AHEAD if is_archive(self.job.source) else 1


@dataclass(eq=False)
class _DeviceProcess:
    """A device, or several as one, and its present process."""

    name: str
    settings: SessionSettings
    fallback: bool = False
    """Whether another backend takes over when it fails."""
    backend: str = ""
    process: Any = None
    connection: Connection | None = None
    sending: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None
    is_open: bool = False
    was_open: bool = False
    is_replaced: bool = False
    """Whether its present process has replaced another."""
    is_gone: bool = False
    waiting: int = 0
    since: float = 0.0
    files: dict[int, _HandedOut] = field(default_factory=dict)
    finished: int = 0
    """Files that its present process has finished."""
    fruitless: int = 0
    """Consecutive processes that have finished none."""
    fault: str = ""
    """Why its present process has to end."""

    @property
    def has_room(self) -> bool:
        if not self.is_open:
            return False
        rate = self.finished / max(time.monotonic() - self.since, 1e-3)
        return self.waiting < max(_AHEAD, rate * _AHEAD_SECONDS)

    @property
    def is_trying(self) -> bool:
        """Returns whether it has a file on which others were lost."""
        return any(file.tries for file in self.files.values())


class DeviceProcesses:
    """The processes of several devices, for one batch. The main thread opens and closes them."""

    def __init__(
        self,
        settings: Sequence[SessionSettings],
        names: Sequence[str],
        last: SessionSettings | None,
        *,
        on_device: Callable[[str], None] = lambda described: None,
        on_news: Callable[[str], None] = lambda notice: None,
    ) -> None:
        """`settings` and `names` are those of each device; `last`: settings used when every device
        has failed. `on_device` is called with each device that is opened, `on_news` with messages
        about devices and models, each once."""
        self._devices = [
            _DeviceProcess(name, each) for name, each in zip(names, settings, strict=True)
        ]
        self._last = last
        self._on_device = on_device
        self._on_news = on_news
        self._on_progress: Callable[[Job, float], None] = lambda job, part: None
        self._on_notice: OnNotice = lambda job, text: None
        self._told: set[str] = set()
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._returned: deque[_HandedOut] = deque()
        """Files whose process ended before they were sent."""
        self._suspects: deque[_HandedOut] = deque()
        """Files on which one process was lost; another makes each alone."""
        self._late: deque[_HandedOut] = deque()
        """Files that were made alone when a process was lost; they come last."""
        self._is_exhausted = False
        self._stopped = threading.Event()
        self._ended: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        self._feeder: threading.Thread | None = None

    def open(self) -> None:
        """Starts all processes and waits for their devices. Raises Waifu2xError, or what else has
        failed."""
        for device in self._devices:
            self._start(device)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not self._ended.empty()
                    or all(each.was_open or each.is_gone for each in self._devices)
                )
            )
            if all(each.is_gone for each in self._devices):
                self._ended.put(BackendError("the processes of all devices end: see above"))
        if not self._ended.empty():
            error = self._ended.get()
            assert isinstance(error, BaseException)
            raise error
        first, *others = [device for device in self._devices if device.was_open]
        for device in others:
            if device.backend != first.backend:
                raise BackendError(
                    f"{device.name} is one of backend {device.backend}, {first.name} of"
                    f" {first.backend}: choose one by --backend"
                )

    def run(
        self,
        jobs: Iterable[Job | None],
        listings: Listings,
        stopped: threading.Event,
        *,
        on_progress: Callable[[Job, float], None] = lambda job, part: None,
        on_notice: OnNotice = lambda job, note: None,
    ) -> Generator[Outcome]:
        """Yields the outcomes of jobs, like `driver.run`. For one call. Once `stopped` is set,
        names that wait in processes are withdrawn. Closing the iterator, or an interrupt, ends the
        work at once: finished files stay, unfinished ones leave nothing."""
        self._on_progress, self._on_notice = on_progress, on_notice
        self._feeder = threading.Thread(
            target=self._feed, args=(iter(jobs), listings), name="waifu2x-names", daemon=True
        )
        is_told = False
        try:
            self._feeder.start()
            while (ended := self._ended.get()) is not None:
                if isinstance(ended, BaseException):
                    raise ended
                yield ended
                if stopped.is_set() and not is_told:
                    is_told = True
                    for device in self._devices:
                        self._send(device, device_worker.Withdraw())
        finally:
            self.close()

    def close(self) -> None:
        """Ends all processes, and waits for their children."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            devices = list(self._devices)
        for device in devices:
            self._send(device, None)
        for device in devices:
            if device.thread is not None:
                device.thread.join(_GONE_SECONDS)
            if device.process is not None:
                device.process.kill()
                device.process.join()
        _clear([file for device in devices for file in device.files.values()])

    # A thread feeds names to processes, since their iterator may block.

    def _feed(self, jobs: Iterator[Job | None], listings: Listings) -> None:
        try:
            while (found := self._vacant()) is not None:
                device, file = found
                if file is None:
                    file = self._next(jobs, listings)
                if file is not None:
                    self._hand_out(device, file)
            if not self._stopped.is_set():
                self._not_begun(jobs)
        except BaseException as error:
            self._ended.put(error)

    def _vacant(self) -> tuple[_DeviceProcess, _HandedOut | None] | None:
        """Waits for a device with room; returns it, and a file that another process had before.
        None if all devices have failed, and at the end."""
        with self._changed:
            while not self._stopped.is_set():
                if all(device.is_gone for device in self._devices):
                    return None
                for device in sorted(self._devices, key=lambda device: len(device.files)):
                    if not device.has_room or device.is_trying:
                        continue
                    is_free = not device.files
                    if self._suspects and (device.is_replaced or self._is_exhausted):
                        if is_free:
                            # The last one was hardly begun: it shows whether the device works.
                            return device, self._suspects.pop()
                    elif self._returned:
                        return device, self._returned.popleft()
                    elif not self._is_exhausted:
                        return device, None
                    elif self._late and is_free:
                        return device, self._late.popleft()
                self._changed.wait()
        return None

    def _next(self, jobs: Iterator[Job | None], listings: Listings) -> _HandedOut | None:
        """Returns the next file that needs work; None if there is none now or any more."""
        try:
            job = next(jobs)
        except StopIteration:
            with self._changed:
                self._is_exhausted = True
                self._tell_end()
            return None
        outcome = None if job is None else listings.settled(job)
        if outcome is not None:
            self._ended.put(outcome)
        return None if job is None or outcome is not None else _HandedOut(job)

    def _hand_out(self, device: _DeviceProcess, file: _HandedOut) -> None:
        number = next(self._numbers)
        with self._changed:
            if not device.is_open:  # it has ended meanwhile
                self._returned.append(file)
                return
            device.files[number] = file
            device.waiting += file.names
        job = file.job
        self._send(
            device, device_worker.Name(number, str(job.source), str(job.target), file.tries > 0)
        )

    def _not_begun(self, jobs: Iterator[Job | None]) -> None:
        """Ends all remaining files after every device has failed."""
        with self._changed:
            left = [file.job for file in (*self._suspects, *self._late, *self._returned)]
        for job in itertools.chain(left, jobs):
            if self._stopped.is_set():
                return
            if job is not None:
                error = f"{job.source}: not begun, since no device was left that works"
                self._ended.put(Outcome(job, error=error, device_failed=True))
        self._ended.put(None)

    # The processes, each followed by a thread.

    def _start(self, device: _DeviceProcess) -> None:
        device.thread = threading.Thread(
            target=self._follow, args=(device,), name=f"waifu2x-{device.name}", daemon=True
        )
        device.thread.start()

    def _follow(self, device: _DeviceProcess) -> None:
        """Starts a process, and its successors as long as that makes sense."""
        try:
            while not (device.is_gone or self._stopped.is_set()):
                why = self._lived(device)
                if self._stopped.is_set():
                    return
                self._bury(device, why)
        except BaseException as error:
            self._ended.put(error)
            with self._changed:
                self._changed.notify_all()

    def _lived(self, device: _DeviceProcess) -> str:
        """Starts a process and handles its reports until it ends; returns how it ended."""
        start = start_context(device_worker.__name__)
        device.connection, theirs = start.Pipe()
        ending, lifeline = start.Pipe(duplex=False)
        with device.connection, ending:
            process = start.Process(
                target=device_worker.work,
                args=(theirs, lifeline, device.settings, device.fallback),
                name="waifu2x-device",
            )
            with theirs, lifeline:
                process.start()
            device.process = process
            if self._stopped.is_set():
                process.kill()
            with suppress(EOFError, ConnectionError):
                while True:
                    self._handle(device, device.connection.recv())
            process.join()
            # Its codec processes may be about to give a file its name.
            ending.poll(_GONE_SECONDS)
        return how_ended(process.exitcode)

    def _handle(self, device: _DeviceProcess, report: device_worker.Report) -> None:
        if self._stopped.is_set():
            return
        if isinstance(report, device_worker.Begun):
            with self._changed:
                device.waiting -= device.files[report.number].names
                self._changed.notify_all()
        elif isinstance(report, device_worker.Withdrawn):
            with self._changed:
                for number in report.numbers:
                    device.waiting -= device.files.pop(number).names
                self._changed.notify_all()
                self._tell_end()
        elif isinstance(report, device_worker.Done):
            self._end(device, report)
        elif isinstance(report, device_worker.Advanced):
            for number, part in report.parts.items():
                if number in device.files:
                    self._on_progress(device.files[number].job, part)
        elif isinstance(report, device_worker.Noticed):
            self._on_notice(device.files[report.number].job, report.text)
        elif isinstance(report, device_worker.Logged):
            self._say(report.text)
        elif isinstance(report, device_worker.Opened):
            device.backend = report.backend
            self._on_device(f"{device.name}: {report.described}")
            for notice in report.notices:
                self._say(notice)
            with self._changed:
                device.is_open = device.was_open = True
                device.since = time.monotonic()
                self._changed.notify_all()
        elif not device.is_open and device.was_open and isinstance(report.error, Waifu2xError):
            device.fault = str(report.error)  # the device worked before
        else:
            raise report.error

    def _end(self, device: _DeviceProcess, done: device_worker.Done) -> None:
        """Ends a file, or the process of a failed device."""
        file = device.files[done.number]
        outcome = replace(done.outcome, job=file.job)
        if outcome.device_failed:
            if not device.fault:
                device.fault = outcome.error.removeprefix(f"{file.job.source}: ")
                device.process.kill()
            return
        with self._changed:
            del device.files[done.number]
            device.finished += 1
            self._ended.put(outcome)
            self._changed.notify_all()
            self._tell_end()

    def _bury(self, device: _DeviceProcess, why: str) -> None:
        """Handles the end of a process: its files are made again, and another one replaces it."""
        why = device.fault or f"its process {why}"
        with self._changed:
            cannot_open = bool(device.fault) and not device.is_open
            device.is_open = False  # from now on it gets no names
        _clear(device.files.values())
        with self._changed:
            device.fruitless = 0 if device.finished else device.fruitless + 1
            device.is_gone = cannot_open or device.fruitless >= _FRUITLESS
            if all(each.is_gone for each in self._devices) and self._last is not None:
                rest = _DeviceProcess("the rest", self._last, True, was_open=True)
                rest.is_replaced, self._last = True, None
                self._devices.append(rest)
                self._start(rest)
            for file in device.files.values():
                self._suspect(device, file, why)
            device.files, device.waiting, device.finished = {}, 0, 0
            device.fault, device.is_replaced = "", True
            is_needed = not self._is_exhausted or self._suspects or self._late or self._returned
            self._changed.notify_all()
            self._tell_end()
        if is_needed:
            goes_on = "gets no more files" if device.is_gone else "goes on in another process"
            self._say(f"{device.name}: {why}: {goes_on}")

    def _suspect(self, device: _DeviceProcess, file: _HandedOut, why: str) -> None:
        """Decides about a file of an ended process. Called with the lock."""
        was_alone = file.tries > 0
        file.tries += 1
        elsewhere = any(not each.is_gone for each in self._devices)
        if was_alone and (device.finished or file.tries > _TRIES or not elsewhere):
            error = f"{file.job.source}: it crashed {file.tries} worker processes in a row: {why}"
            self._ended.put(Outcome(file.job, error=error))
        else:
            (self._late if was_alone else self._suspects).append(file)

    def _tell_end(self) -> None:
        """Called with the lock."""
        waiting = self._returned or self._suspects or self._late
        if self._is_exhausted and not (waiting or any(each.files for each in self._devices)):
            self._ended.put(None)

    def _say(self, notice: str) -> None:
        with self._changed:
            is_new = notice not in self._told
            self._told.add(notice)
        if is_new:
            self._on_news(notice)

    def _send(
        self, device: _DeviceProcess, told: device_worker.Name | device_worker.Withdraw | None
    ) -> None:
        """Sends a command. An ended process ignores it, and its thread knows."""
        if device.connection is not None:
            with suppress(OSError), device.sending:
                device.connection.send(told)


def _clear(files: Iterable[_HandedOut]) -> None:
    targets = [file.job.target for file in files if not stores.is_url(file.job.target)]
    for folder in {target.resolve().parent for target in targets}:
        clear_folder(folder)
