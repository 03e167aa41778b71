"""The codec workers of a driver: how many there are, and who of them is free."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.errors import BackendError
from waifu2x.flows.batch.codec import Report
from waifu2x.flows.batch.scheduler import Scheduler
from waifu2x.flows.batch.worker import (
    CodecProcess,
    CodecThread,
    CodecWorker,
    may_start_processes,
)
from waifu2x.system.machine import available_memory, core_count

_FIRST_WORKERS = 3
"""Workers at the start: one picture is loaded, one computed and one saved."""
_IDLE_SHARE = 0.05
"""The share of the time that a network may be idle before more codec workers are added."""
_PROCESSES = 4
"""Processes for each core, at most: who asks for more workers gets them as threads."""
_WORKER_BYTES = 256 << 20
"""Bytes of free memory that there must be for each process and its pictures."""


def cores_of(sharing: int) -> int:
    """The cores of one of so many drivers on this machine."""
    return max(1, core_count() // sharing)


def most_workers(in_network: int, sharing: int) -> int:
    """One for each core, as memory allows."""
    cores, free = cores_of(sharing), available_memory()
    by_memory = cores if free is None else free // sharing // _WORKER_BYTES
    return max(1, min(max(cores, in_network + 2), by_memory))


class CrewSize(NamedTuple):
    """How many workers a crew may have."""

    most: int
    cores: int
    grows: bool
    """Whether there are no more than keep the network busy."""
    isolates: bool
    """Whether all of them are processes, so that a file can end no more than its own worker."""


class Crew:
    """Workers that come as they are needed. It shares its lock with its driver."""

    def __init__(
        self,
        scheduler: Scheduler,
        pin: Callable[[NDArray[Any]], Pin],
        changed: threading.Condition,
        stopped: threading.Event,
        size: CrewSize,
        *,
        is_needless: Callable[[], bool],
        on_report: Callable[[CodecWorker, Report], None],
    ) -> None:
        """There are at most `most` workers; with `grows`, no more than keep the network busy; with
        `isolates`, all of them processes, so that a file can end none but its own worker.
        `is_needless` says, with the lock held, whether nobody more will have anything to do;
        `on_report` is told what workers report, each from a thread of its own."""
        self.changed = changed
        self.stopped = stopped
        self.workers: set[CodecWorker] = set()
        self._scheduler = scheduler
        self._pin = pin
        self._most = size.most
        self._cores = size.cores
        self._grows = size.grows
        self._isolates = size.isolates
        self._is_needless = is_needless
        self._on_report = on_report
        self._free: deque[CodecWorker] = deque()
        self._up: set[CodecWorker] = set()
        """Workers that have said so."""
        self._threads_wanted = 0
        self._processes_wanted = 0
        self._may_have_processes = may_start_processes()
        self._started = 0
        self._since = 0
        """Outcomes since workers were added last."""
        self._looked = time.monotonic(), 0.0
        """When workers were added last, and how long the network had been idle by then."""

    def start(self, all_at_once: bool) -> None:
        """Begins, with the first workers or with all."""
        few = self._grows and not all_at_once
        count = min(_FIRST_WORKERS, self._most) if few else self._most
        if self._isolates:
            self._processes_wanted = count
        elif self._may_have_processes and not few and count > _FIRST_WORKERS:
            self._processes_wanted = min(count, _PROCESSES * self._cores)
        self._threads_wanted = count - self._processes_wanted
        self.add_processes()

    def vacant(self, is_turn: Callable[[], bool]) -> CodecWorker | None:
        """A worker that has nothing to do, as soon as there is one and it is the caller's turn,
        which is asked with the lock held; None at the end."""
        with self.changed:
            while not self.stopped.is_set():
                threads = [each for each in self.workers if not each.is_process]
                if not is_turn():
                    self.changed.wait()
                elif self._free:
                    worker = self._free.popleft()
                    if worker.is_process or len(threads) <= self._threads_wanted:
                        return worker
                    self.workers.discard(worker)
                    worker.send(None)
                elif len(threads) < self._threads_wanted:
                    self._add_thread()
                else:
                    self.changed.wait()
        return None

    def vacate(self, worker: CodecWorker) -> None:
        """Takes a worker back that has nothing to do."""
        with self.changed:
            if worker in self.workers:
                self._free.append(worker)
                self.changed.notify_all()

    def greet(self, worker: CodecWorker) -> None:
        """A worker has said that it is up."""
        with self.changed:
            self._up.add(worker)
            if worker.is_process and self._grows:
                self._threads_wanted = 0
        self.vacate(worker)

    def remove(self, worker: CodecWorker) -> None:
        """A process has ended. Called with the lock."""
        was_up = worker in self._up
        self._up.discard(worker)
        self.workers.discard(worker)
        with suppress(ValueError):
            self._free.remove(worker)
        if not was_up:
            self._do_without_processes()

    def _add_thread(self) -> None:
        """Called with the lock."""
        self._started += 1
        try:
            worker = CodecThread(self._on_report, f"waifu2x-codec-{self._started}")
        except RuntimeError:  # the system has no more
            if not self.workers:
                raise
            self._threads_wanted = sum(not each.is_process for each in self.workers)
            self._grows = False
        else:
            self.workers.add(worker)
            self.changed.wait_for(lambda: self._free or self.stopped.is_set())

    def add_processes(self) -> None:
        """Brings their number to what is wanted."""
        with self.changed:
            while self._may_have_processes and not self.stopped.is_set():
                count = sum(each.is_process for each in self.workers)
                if count >= self._processes_wanted or self._is_needless():
                    return
                self._started += 1
                name = f"waifu2x-codec-{self._started}"
                try:
                    worker = CodecProcess(self._on_report, name, self._pin)
                except (RuntimeError, OSError):
                    self._do_without_processes()
                else:
                    self.workers.add(worker)

    def _do_without_processes(self) -> None:
        """Threads do what is left, or the processes that there are. Called with the lock. Raises
        BackendError where that is nobody."""
        count = sum(each.is_process for each in self.workers)
        if self._isolates:
            if not count:
                raise BackendError("no process can be started for pictures: free some memory")
        else:
            self._may_have_processes = False
            self._threads_wanted += max(0, self._processes_wanted - count)
        self._processes_wanted = count
        self.changed.notify_all()

    def grow(self) -> None:
        """Adds workers where the network is idle although each has made a picture since."""
        with self.changed:
            self._since += 1
            count = self._threads_wanted + self._processes_wanted
            if not self._grows or self._since <= count or count >= self._most:
                return
            now, idle = time.monotonic(), self._scheduler.idle_seconds()
            begun, idle_before = self._looked
            self._looked, self._since = (now, idle), 0
            busy = 1.0 - min((idle - idle_before) / max(now - begun, 1e-6), 1.0)
            if busy >= 1.0 - _IDLE_SHARE:
                return
            needed = int(count / max(busy, count / self._most))
            wanted = min(max(needed, 2 * count), self._most)
            if self._may_have_processes:
                # Threads work on until the first process is up.
                self._processes_wanted = wanted
                self._threads_wanted = 0 if self._has_process() else self._threads_wanted
            else:
                self._threads_wanted = wanted
            self.changed.notify_all()
        self.add_processes()

    def _has_process(self) -> bool:
        """Whether one is at work. Called with the lock."""
        return any(worker.is_process for worker in self._up)
