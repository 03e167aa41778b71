"""The work on many files, several at a time.

A lane takes one file after the other from the list and sees it through. The first lanes are threads
of this process. Where the network has nothing to do between their pictures, as on a GPU, codecs
are what holds the work up: then lanes are added, and each gets a process of its own (`worker.py`),
until the network is busy or the machine's cores are.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from functools import partial

from waifu2x.api import Upscaler
from waifu2x.errors import OutputError
from waifu2x.flows.batch.queue import Queue, QueuedChains
from waifu2x.flows.batch.room import Room, needed_bytes
from waifu2x.flows.batch.worker import DiedError, Task, Worker
from waifu2x.flows.jobs import Identity, Job, OnNotice, Output, may_write
from waifu2x.flows.outcome import Outcome, run_one
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.system.machine import available_memory, core_count

_FIRST_LANES = 3
"""One picture is loaded, one computed and one saved."""
_IDLE_SHARE = 0.05
"""Of the time: a network that has less to do than the rest of it is waiting for codecs."""
_PROCESSES = 4
"""For each core: who asks for more lanes gets them as threads."""
_UNASKED_SHARE = 0.1
"""Of the memory for pictures, that all processes together may take beyond it, without asking."""
_LANE_BYTES = 256 << 20
"""Of free memory, for a further process and its pictures."""


@dataclass(frozen=True)
class Jobs:
    """How many pictures are under way at a time, and how many of them in the network."""

    pictures: int
    in_network: int


def run(
    jobs: Iterable[Job | None],
    upscaler: Upscaler,
    output: Output,
    *,
    at_once: Jobs | None = None,
    many: bool = False,
    max_pixels: int = MAX_PIXELS,
    sources: frozenset[Identity] = frozenset(),
    on_progress: Callable[[Job, float], None] = lambda job, part: None,
    on_notice: OnNotice = lambda job, note: None,
) -> Generator[Outcome]:
    """The outcome of each job, as it ends; one picture's failure does not concern the others.

    But where a device has stopped working, and no other is there, the rest fail untouched.

    `jobs` is asked for the next job when somebody is free for it; None says that there is none now,
    and is asked again. Without `at_once`, as many pictures are under way as keep the network busy,
    as far as cores and memory go: on a GPU from the start, where there are `many`, for which
    `worker.prepare` has been called. Nothing in `sources` is ever replaced.

    Closing the iterator, or an interrupt, stops the work: finished files stay, unfinished ones
    leave nothing.
    """
    lanes = _Lanes(jobs, upscaler, output, at_once, max_pixels, sources, on_progress, on_notice)
    try:
        lanes.start(many and upscaler.engine.backend.device.is_gpu)
        while (ended := lanes.ended.get()) is not None:
            if isinstance(ended, BaseException):
                raise ended
            yield ended
    finally:
        lanes.stop()


class _StoppedError(Exception):
    """Ends the work on a picture from within its progress report."""


class _Lanes:
    """Threads that see files through."""

    def __init__(
        self,
        jobs: Iterable[Job | None],
        upscaler: Upscaler,
        output: Output,
        at_once: Jobs | None,
        max_pixels: int,
        sources: frozenset[Identity],
        on_progress: Callable[[Job, float], None],
        on_notice: OnNotice,
    ) -> None:
        self.ended: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        """How jobs end; an error that is a defect; None when all have."""
        self._jobs = iter(jobs)
        self._jobs_lock = threading.Lock()
        self._output = output
        self._max_pixels = max_pixels
        self._sources = sources
        self._on_progress = on_progress
        self._on_notice = on_notice
        in_network = at_once.in_network if at_once else upscaler.engine.backend.calls_at_once
        self._queue = Queue(in_network)
        self._chains = QueuedChains(upscaler.enlarger.chains, self._queue)
        made = upscaler.enlarger
        self._enlarger = Enlarger(self._chains, made.request, made.noise, made.tta, made.tile)
        self._room = Room()
        self._stopped = threading.Event()
        self._device_failed = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._alive = 0
        self._most = at_once.pictures if at_once else _most_lanes(in_network)
        # A process that may not have any, such as Dask's workers as they come, has threads alone.
        self._may_fork = not multiprocessing.current_process().daemon
        self._grows = at_once is None
        unasked = int(self._room.size * _UNASKED_SHARE / self._most)
        self._task = Task.of(self._enlarger, output, max_pixels, unasked)
        self._in_processes = False
        """Whether lanes that are added have processes."""
        self._are_up = False
        """Whether a process has made a picture: then the first lanes get theirs."""
        self._since = 0
        """Outcomes since lanes were added last."""
        self._looked = time.monotonic(), 0.0
        """When lanes were added last, and how long the network had been idle by then."""

    def start(self, all_at_once: bool) -> None:
        """The first lanes, or all."""
        few = self._grows and not all_at_once
        count = min(_FIRST_LANES, self._most) if few else self._most
        self._in_processes = self._may_fork and not few and count > _FIRST_LANES
        self._are_up = self._in_processes and not self._grows
        with self._lock:
            self._add(count)

    def stop(self) -> None:
        """Ends the work and waits for it."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _add(self, count: int) -> None:
        for _ in range(count):
            number = len(self._threads)
            thread = threading.Thread(
                target=self._lane, args=(number,), name=f"waifu2x-lane-{number}"
            )
            try:
                thread.start()
            except RuntimeError:  # the system has no more
                if not self._threads:
                    raise
                self._grows = False
                return
            self._threads.append(thread)
            self._alive += 1

    def _lane(self, number: int) -> None:
        is_first, is_thread = number < _FIRST_LANES, number >= _PROCESSES * core_count()
        worker: Worker | None = None
        try:
            while (job := self._next()) is not None:
                # The first lanes work on while the processes of others start.
                wants = not is_thread and (self._are_up if is_first else self._in_processes)
                if worker is None and wants:
                    worker = self._started()
                try:
                    outcome = self._outcome(job, worker)
                except DiedError as error:
                    message = f"{job.source}: the process that worked on it {error}"
                    outcome = Outcome(job, "failed", 0.0, error=message)
                    worker = None
                if outcome.device_failed:
                    self._device_failed.set()
                self.ended.put(self._with_wait(outcome))
                self._are_up = self._in_processes and (self._are_up or worker is not None)
                self._grow()
        except _StoppedError:
            pass
        except BaseException as error:
            self.ended.put(error)
        finally:
            if worker is not None:
                worker.close()
            with self._lock:
                self._alive -= 1
                if not self._alive:
                    self.ended.put(None)

    def _started(self) -> Worker | None:
        """A process; None where the system has no more, and threads do what is left."""
        try:
            return Worker(self._task, self._chains, self._room)
        except (OSError, EOFError):
            self._may_fork = self._in_processes = self._are_up = False
            return None

    def _next(self) -> Job | None:
        """The next job; None if there is none any more, or nobody wants it."""
        with self._jobs_lock:
            while not self._stopped.is_set():
                try:
                    job = next(self._jobs)
                except StopIteration:
                    return None
                if job is not None:
                    return job
        return None

    def _outcome(self, job: Job, worker: Worker | None) -> Outcome:
        """How a job ends. Raises DiedError, _StoppedError."""
        if self._device_failed.is_set():
            message = f"{job.source}: not begun, since the device had stopped working"
            return Outcome(job, "failed", 0.0, error=message, device_failed=True)
        report = partial(self._report, job)
        if worker is None:
            return run_one(
                job,
                self._enlarger,
                self._output,
                max_pixels=self._max_pixels,
                reserve=lambda content: self._room.taken(needed_bytes(content, self._enlarger)),
                on_progress=partial(self._tell, job),
                on_notice=self._on_notice,
                sources=self._sources,
            )
        try:
            # The worker looks as well: only what other inputs are it does not know.
            if self._sources and not may_write(job, self._output.existing, self._sources):
                return Outcome(job, "skipped", 0.0)
        except OutputError as error:
            return Outcome(job, "failed", 0.0, error=str(error))
        return worker.run(job, report, self._on_notice)

    def _report(self, job: Job, part: float) -> None:
        if self._stopped.is_set():
            raise _StoppedError

    def _tell(self, job: Job, part: float) -> None:
        self._report(job, part)
        self._on_progress(job, part)

    def _with_wait(self, outcome: Outcome) -> Outcome:
        """With the time that it waited for its turn at the network told apart."""
        waited = self._queue.waited()
        if "network" not in outcome.spent:
            return outcome
        spent = dict(outcome.spent)
        spent["wait"] = spent.get("wait", 0.0) + waited
        spent["network"] = max(0.0, spent["network"] - waited)
        return replace(outcome, spent=spent)

    def _grow(self) -> None:
        """Adds lanes where the network is idle although each lane has made a picture since."""
        with self._lock:
            self._since += 1
            lanes = len(self._threads)
            if not self._grows or self._since <= lanes or lanes >= self._most:
                return
            now, idle = time.monotonic(), self._queue.idle_seconds()
            begun, idle_before = self._looked
            self._looked, self._since = (now, idle), 0
            elapsed = max(now - begun, 1e-6)
            busy = 1.0 - min((idle - idle_before) / elapsed, 1.0)
            if busy < 1.0 - _IDLE_SHARE:
                self._in_processes = self._may_fork
                needed = lanes / max(busy, lanes / self._most)
                self._add(min(max(int(needed), 2 * lanes), self._most) - lanes)


def _most_lanes(in_network: int) -> int:
    """One for each core, as memory allows: what waits for them here takes some of the cores."""
    free = available_memory()
    by_memory = core_count() if free is None else free // _LANE_BYTES
    return max(1, min(max(core_count(), in_network + 2), by_memory))
