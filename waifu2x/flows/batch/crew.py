"""The codec workers of a driver: their number, and whether they are threads or processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.errors import BackendError, shortage
from waifu2x.flows.batch.codec import Report
from waifu2x.flows.batch.worker import CodecProcess, CodecThread, CodecWorker
from waifu2x.flows.fleet.processes import may_start_processes
from waifu2x.flows.fleet.supervisor import DEVICES, State
from waifu2x.system.machine import available_memory, core_count

if TYPE_CHECKING:
    from waifu2x.flows.batch.driver import RunOptions

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


class Crew:
    """Codec workers that come as they are needed. Callers hold the lock of the driver."""

    def __init__(
        self,
        most: int,
        options: RunOptions,
        pin: Callable[[NDArray[Any]], Pin],
        idle_seconds: Callable[[], float],
        on_report: Callable[[CodecWorker, Report], None],
    ) -> None:
        """There are at most `most` workers. `pin` is that of the device, and `idle_seconds` tells
        how long that was idle. Reports of workers go to `on_report`, from a thread of each, without
        the lock."""
        self.workers: list[CodecWorker] = []
        self._most = most
        self._most_processes = _PROCESSES * cores_of(options.sharing)
        self._grows = options.in_flight is None
        self._isolates = options.isolates
        self._pin = pin
        self._idle_seconds = idle_seconds
        self._on_report = on_report
        self._threads_wanted = 0
        self._processes_wanted = 0
        self._may_have_processes = may_start_processes()
        self._started = 0
        self._fruitless = 0
        """Consecutive processes that ended before they were up."""
        self._since = 0
        """Outcomes since workers were last added."""
        self._looked = time.monotonic(), 0.0
        """When workers were last added, and the network's idle seconds by then."""

    def start(self, all_at_once: bool) -> None:
        """Starts the first processes, or all; threads start when they are needed."""
        few = self._grows and not all_at_once
        count = min(_FIRST_WORKERS, self._most) if few else self._most
        if self._isolates:
            self._processes_wanted = count
        elif self._may_have_processes and not few and count > _FIRST_WORKERS:
            self._processes_wanted = min(count, self._most_processes)
        self._threads_wanted = count - self._processes_wanted
        self.add_processes()

    def vacant(self, in_process: bool = False) -> CodecWorker | None:
        """Returns an idle worker; None if there is none now. With `in_process`, it is a process, if
        there are any or may be."""
        in_process = in_process and (self._may_have_processes or self._count(is_process=True) > 0)
        for worker in self.workers:
            if worker.is_process or (self._threads_wanted and not in_process):
                if worker.state is State.READY:
                    return worker
                if worker.state is State.STARTING and not worker.is_process:
                    return None  # the next thread comes when this one is busy
        if self._lacks_threads and not in_process:
            self._add_thread()
        return None

    @property
    def has_room(self) -> bool:
        """Returns whether a worker is idle, or a thread may be added."""
        return self._lacks_threads or any(
            each.state is State.READY and (each.is_process or self._threads_wanted)
            for each in self.workers
        )

    @property
    def _lacks_threads(self) -> bool:
        return self._count(is_process=False) < self._threads_wanted

    def greet(self, worker: CodecWorker) -> None:
        """Notes that a worker is up."""
        worker.state = State.READY
        if worker.is_process:
            self._fruitless = 0
            if self._grows:
                self._threads_wanted = 0

    def remove(self, worker: CodecWorker) -> None:
        """Removes an ended process. Raises BackendError if there is no other one, nor may be."""
        was_up = worker.state is not State.STARTING
        worker.state = State.LOST
        self.workers.remove(worker)
        self._fruitless += not was_up
        if not was_up and self._fruitless >= DEVICES.fruitless:
            self._do_without_processes()

    def add_processes(self) -> None:
        """Starts missing processes. Raises BackendError."""
        while self._may_have_processes and self._count(is_process=True) < self._processes_wanted:
            try:
                self._start(CodecProcess(self._new_name(), self._pin))
            except (RuntimeError, OSError):
                self._do_without_processes()

    def grow(self) -> None:
        """Counts an outcome. Adds workers if the network is idle although each has made a picture
        since."""
        self._since += 1
        count = self._threads_wanted + self._processes_wanted
        if not self._grows or self._since <= count or count >= self._most:
            return
        now, idle = time.monotonic(), self._idle_seconds()
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
            if any(each.is_process and each.state is not State.STARTING for each in self.workers):
                self._threads_wanted = 0
            self.add_processes()
        else:
            self._threads_wanted = wanted

    def _count(self, *, is_process: bool) -> int:
        return sum(each.is_process is is_process for each in self.workers)

    def _new_name(self) -> str:
        self._started += 1
        return f"waifu2x-codec-{self._started}"

    def _start(self, worker: CodecWorker) -> None:
        worker.start(partial(self._on_report, worker))
        self.workers.append(worker)

    def _add_thread(self) -> None:
        """Starts a thread. Raises BackendError if the system has none for the only worker."""
        try:
            self._start(CodecThread(self._new_name()))
        except RuntimeError as error:  # the system has no more
            if not self.workers:
                raise BackendError(shortage(error) or str(error)) from error
            self._threads_wanted = self._count(is_process=False)
            self._grows = False

    def _do_without_processes(self) -> None:
        """Replaces missing processes by threads. Raises BackendError if that leaves no worker."""
        count = self._count(is_process=True)
        if self._isolates:
            if not count:
                raise BackendError("no process can be started for pictures", "free some memory")
        else:
            self._may_have_processes = False
            self._threads_wanted += max(0, self._processes_wanted - count)
        self._processes_wanted = count
