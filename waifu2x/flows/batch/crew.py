"""The codec workers of a driver."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.errors import BackendError, shortage
from waifu2x.flows.batch.codec import Report
from waifu2x.flows.batch.scheduler import Scheduler
from waifu2x.flows.batch.worker import CodecProcess, CodecThread, CodecWorker
from waifu2x.flows.fleet.processes import may_start_processes
from waifu2x.system.machine import available_memory, core_count

_FIRST_WORKERS = 3
"""Workers at the start: one picture is loaded, one computed and one saved."""
_IDLE_SHARE = 0.05
"""The share of time that a network may be idle before workers are added."""
_PROCESSES = 4
"""The most processes for each core; further workers are threads."""
_WORKER_BYTES = 256 << 20
"""Free memory needed for each process and its pictures."""


def cores_of(sharing: int) -> int:
    """Returns the cores of each of `sharing` drivers on this machine."""
    return max(1, core_count() // sharing)


def most_workers(in_network: int, sharing: int) -> int:
    """Returns one worker for each core, as far as memory allows."""
    cores, free = cores_of(sharing), available_memory()
    by_memory = cores if free is None else free // sharing // _WORKER_BYTES
    return max(1, min(max(cores, in_network + 2), by_memory))


class CrewSize(NamedTuple):
    """Limits of a crew."""

    most: int
    cores: int
    grows: bool
    """Whether workers come only as the network needs them."""
    isolates: bool
    """Whether all workers are processes, so that a file can end only its own."""


class Crew:
    """Codec workers that come as they are needed. It shares its lock with its driver."""

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
        """`is_needless` returns, with the lock held, whether all work is handed out; `on_report` is
        called with the reports of workers, by a thread of each."""
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
        self._threads_wanted = 0
        self._processes_wanted = 0
        self._may_have_processes = may_start_processes()
        self._started = 0
        self._since = 0
        """Outcomes since workers were last added."""
        self._looked = time.monotonic(), 0.0
        """When workers were last added, and the network's idle seconds by then."""

    def start(self, all_at_once: bool) -> None:
        """Starts the first workers, or all."""
        few = self._grows and not all_at_once
        count = min(_FIRST_WORKERS, self._most) if few else self._most
        if self._isolates:
            self._processes_wanted = count
        elif self._may_have_processes and not few and count > _FIRST_WORKERS:
            self._processes_wanted = min(count, _PROCESSES * self._cores)
        self._threads_wanted = count - self._processes_wanted
        self.add_processes()

    def vacant(
        self, is_turn: Callable[[], bool], in_process: Callable[[], bool] = lambda: False
    ) -> CodecWorker | None:
        """Waits for an idle worker and, with the lock held, for `is_turn`; returns None
        at the end. With `in_process`, it is a process, if there may be one."""
        with self.changed:
            while not self.stopped.is_set():
                threads = [each for each in self.workers if not each.is_process]
                if not is_turn():
                    self.changed.wait()
                    continue
                must_be_process = in_process() and self._has_processes()
                fit = (each for each in self._free if each.is_process or not must_be_process)
                if (worker := next(fit, None)) is not None:
                    self._free.remove(worker)
                    if worker.is_process or len(threads) <= self._threads_wanted:
                        return worker
                    self.workers.discard(worker)
                    worker.send(None)
                elif len(threads) < self._threads_wanted and not must_be_process:
                    self._add_thread()
                else:
                    self.changed.wait()
        return None

    def vacate(self, worker: CodecWorker) -> None:
        """Takes back an idle worker."""
        with self.changed:
            if worker in self.workers:
                self._free.append(worker)
                self.changed.notify_all()

    def greet(self, worker: CodecWorker) -> None:
        """Notes that a worker is up."""
        with self.changed:
            self._up.add(worker)
            if worker.is_process and self._grows:
                self._threads_wanted = 0
        self.vacate(worker)

    def remove(self, worker: CodecWorker) -> None:
        """Removes an ended process. Called with the lock."""
        was_up = worker in self._up
        self._up.discard(worker)
        self.workers.discard(worker)
        with suppress(ValueError):
            self._free.remove(worker)
        if not was_up:
            self._do_without_processes()

    def _add_thread(self) -> None:
        """Starts a thread for pictures, and waits until it is free or the crew stops. The caller
        holds the lock. Raises BackendError if the system has no thread for the only worker."""
        self._started += 1
        try:
            worker = CodecThread(self._on_report, f"waifu2x-codec-{self._started}")
        except RuntimeError as error:  # the system has no more
            if not self.workers:
                raise BackendError(shortage(error) or str(error)) from error
            self._threads_wanted = sum(not each.is_process for each in self.workers)
            self._grows = False
        else:
            self.workers.add(worker)
            self.changed.wait_for(lambda: self._free or self.stopped.is_set())

    def add_processes(self) -> None:
        """Starts the wanted number of processes."""
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
        """Replaces missing processes by threads. Called with the lock. Raises BackendError if that
        leaves no worker."""
        count = sum(each.is_process for each in self.workers)
        if self._isolates:
            if not count:
                raise BackendError("no process can be started for pictures", "free some memory")
        else:
            self._may_have_processes = False
            self._threads_wanted += max(0, self._processes_wanted - count)
        self._processes_wanted = count
        self.changed.notify_all()

    def grow(self) -> None:
        """Adds workers if the network is idle although each has made a picture since."""
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

    def _has_processes(self) -> bool:
        """Returns whether there are processes or may be some. The caller holds the lock."""
        return self._may_have_processes or any(each.is_process for each in self.workers)

    def _has_process(self) -> bool:
        """Returns whether a process is up. The caller holds the lock."""
        return any(worker.is_process for worker in self._up)
