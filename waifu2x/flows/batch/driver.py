"""Drives a device: files go to codec workers, and the pictures that they prepare through networks.

The first workers are threads of this process. If the network is idle between their pictures, as on
a GPU, codecs are the bottleneck: then processes replace them, more and more, until the network or
the machine's cores are busy.

`crew` has the workers and `archive_owners` the archives, whose pages go to workers before any
waiting file; `assignments` are the tasks of workers.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from waifu2x.api import Upscaler
from waifu2x.backends.engine.engine import Engine
from waifu2x.errors import BackendError, OutputError, Waifu2xError, shortage
from waifu2x.flows.batch import codec
from waifu2x.flows.batch.archive_owners import ArchiveOwners
from waifu2x.flows.batch.assignments import (
    Assignment,
    FileRequest,
    clear_job,
    with_wait,
)
from waifu2x.flows.batch.crew import Crew, most_workers
from waifu2x.flows.batch.scheduler import NetworkCall, Scheduler
from waifu2x.flows.batch.semaphore import MemorySemaphore
from waifu2x.flows.batch.worker import CodecWorker
from waifu2x.flows.fleet.messages import Failed, Lost, Opened
from waifu2x.flows.fleet.supervisor import DEVICES, State
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Identity, InFlight, Job, OnNotice, Output, is_archive, may_write
from waifu2x.flows.outcome import STOPPED, FailedError, Outcome
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage

_ALLOWED_SHARE = 0.1
"""The share of the memory for pictures that all workers together may take without asking."""
_PAGES_EACH = 2
"""Pages of an archive under way for each worker: they leave in order, so a slow one must not leave
workers idle."""
_OWNER_SECONDS = 0.1
"""The longest wait for the owner of an archive at the end."""
_FEEDER_SECONDS = 5.0
"""The longest wait for the iterator of jobs at the end."""


@dataclass(frozen=True)
class RunOptions:
    """How a driver shares the machine, and who hears of its work."""

    in_flight: InFlight | None = None
    """None: as many pictures as keep the network busy, as far as cores and memory go."""
    sources: frozenset[Identity] = frozenset()
    """Inputs, which are never replaced."""
    sharing: int = 1
    """Drivers that share the cores and the memory of this machine, each in its own process."""
    isolates: bool = False
    """Whether codecs run in other processes alone, so that no file can end this one."""
    on_progress: Callable[[Job, float], None] = lambda job, part: None
    """Called with parts that add up to 1 for each job; raises StoppedError to end one."""
    on_notice: OnNotice = lambda job, notice: None


class DeviceDriver:
    """Makes files by one backend and codec workers, for one batch. Drivers share nothing: several
    may run on one machine, each in its own process and with its own devices."""

    def __init__(
        self,
        jobs: Iterable[Job | None],
        engine: Engine,
        request_of: Callable[[Job], FileRequest],
        options: RunOptions,
    ) -> None:
        """`request_of` returns the request of a job, for networks of `engine`, when the job has
        come."""
        self.ended: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        """Outcomes; an error that is a defect; None when all jobs have ended."""
        self._jobs = iter(jobs)
        self._request_of = request_of
        self._options = options
        in_flight, sharing = options.in_flight, options.sharing
        in_network = calls_at_once(engine, in_flight)
        self._scheduler = Scheduler(in_network)
        self._memory = MemorySemaphore(sharing=sharing)
        most = in_flight.pictures if in_flight else most_workers(in_network, sharing)
        self._allowance = int(self._memory.size * _ALLOWED_SHARE / most)
        self._stopped = threading.Event()
        self._device_failed = threading.Event()
        self._changed = threading.Condition()
        self._waiting: deque[Assignment] = deque()
        """Pages of archives, and what was under way in lost processes: these come before further
        jobs."""
        self._is_exhausted = False
        self._crew = Crew(
            most,
            options,
            engine.backend.pin,
            self._scheduler.idle_seconds,
            self._on_report,
        )
        self._archives = ArchiveOwners(
            self._add,
            self._changed,
            self._stopped,
            in_flight=most * _PAGES_EACH,
            on_progress=options.on_progress,
            on_ended=self._end_archive,
            on_defect=self._fail,
        )
        self._feeder = threading.Thread(target=self._feed, name="waifu2x-jobs", daemon=True)

    def start(self, all_at_once: bool) -> None:
        """Starts the first workers, or all."""
        with self._changed:
            self._crew.start(all_at_once)
        self._feeder.start()

    def stop(self) -> None:
        """Ends the work at once; unfinished files leave nothing."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            workers = list(self._crew.workers)
            wanted = [*(each.assignment for each in workers), *self._waiting]
            owners = dict(self._archives.owners)
        for assignment in wanted:
            if assignment is not None and assignment.page is not None:
                assignment.page.answer.put(StoppedError())
        for worker in workers:
            worker.kill()
        for owner, job in owners.items():
            owner.join(_OWNER_SECONDS)
            clear_job(job, False)
        for worker in workers:
            worker.close()
            if (assignment := worker.assignment) is not None and assignment.page is None:
                clear_job(assignment.job, worker.is_process)
        self._scheduler.close()
        for worker in workers:
            worker.release()
        if self._feeder.ident is not None:
            self._feeder.join(_FEEDER_SECONDS)

    def end(self, job: Job) -> None:
        """Ends the processes that are at a job, which nobody wants any more."""
        with self._changed:
            for worker in self._crew.workers:
                if worker.is_process and worker.assignment and worker.assignment.job == job:
                    worker.kill()

    # A thread asks for jobs, since their iterator may block.

    def _feed(self) -> None:
        try:
            while (job := self._next()) is not None:
                request = self._request_of(job)
                outcome = self._settled(job, request)
                if outcome is not None:
                    self.ended.put(outcome)
                elif is_archive(job.source):
                    self._archives.begin(job, request)
                else:
                    on_progress = partial(self._options.on_progress, job)
                    self._add(Assignment(job, request, None, on_progress))
        except BaseException as error:
            self._fail(error)
        finally:
            with self._changed:
                self._is_exhausted = True
                self._tell_end()

    def _next(self) -> Job | None:
        """Returns the next job once a worker has room for it; None at the end, or once stopped."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopped.is_set() or (not self._waiting and self._crew.has_room)
                )
            if self._stopped.is_set():
                return None
            try:
                if (job := next(self._jobs)) is not None:
                    return job
            except StopIteration:
                return None

    def _settled(self, job: Job, request: FileRequest) -> Outcome | None:
        """Returns the outcome of a job that needs no worker."""
        if self._device_failed.is_set():
            message = f"{job.source}: not begun, since the device had stopped working"
            return Outcome(job, error=message, device_failed=True)
        try:
            # Workers check this, too, but do not know the other inputs.
            existing, sources = request.task.output.again(job).existing, self._options.sources
            if sources and not may_write(job, existing, sources):
                return Outcome(job)
        except OutputError as error:
            return Outcome(job, error=error.sentence)
        return None

    # The thread that adds work, or whose worker has become idle, hands out what waits.

    def _add(self, assignment: Assignment) -> None:
        """Adds a file or page. Raises StoppedError."""
        with self._changed:
            if self._stopped.is_set():
                raise StoppedError
            self._waiting.append(assignment)
        self._hand_out()

    def _hand_out(self) -> None:
        """Gives idle workers what waits for them."""
        try:
            while (worker := self._taken()) is not None:
                self._begin(worker)
        except BaseException as error:  # no fault of what another thread is at
            self._fail(error)

    def _taken(self) -> CodecWorker | None:
        """Returns an idle worker that has got the first assignment; None if there is no such."""
        with self._changed:
            if self._stopped.is_set() or not self._waiting:
                return None
            worker = self._crew.vacant(in_process=self._waiting[0].lost > 0)
            if worker is not None:
                worker.state, worker.assignment = State.BUSY, self._waiting.popleft()
            return worker

    def _begin(self, worker: CodecWorker) -> None:
        """Sends a worker its assignment, unless that is not wanted any more."""
        assignment = worker.assignment
        assert assignment is not None
        job, page, request = assignment.job, assignment.page, assignment.request
        try:
            assignment.on_progress(0.0)
        except StoppedError:
            self._end(worker, assignment, Outcome(job, error=STOPPED))
            return
        if assignment.lost and not worker.is_process:
            error = f"{job.source}: not made, since no process can be started for it"
            self._end(worker, assignment, Outcome(job, error=error))
            return
        task = None if worker.told is request else request.task_for(worker.is_process)
        worker.told = request
        if assignment.lost:
            job = replace(job, repeated=True)
        content = None if page is None else (page.name, page.content)
        worker.send(codec.Make(job, content, self._allowance, task))

    # Reports of workers come from a thread for each.

    def _on_report(self, worker: CodecWorker, report: codec.Report) -> None:
        try:
            if not self._stopped.is_set():
                self._handle(worker, report)
        except BaseException as error:
            self._fail(error)

    def _handle(self, worker: CodecWorker, report: codec.Report) -> None:
        assignment = worker.assignment
        if isinstance(report, Opened):
            with self._changed:
                self._crew.greet(worker)
                self._changed.notify_all()
            self._hand_out()
        elif isinstance(report, Lost):
            self._bury(worker, report.why)
        elif isinstance(report, Failed):
            raise report.error
        elif assignment is None:
            pass  # stopped, and on its way out
        elif isinstance(report, codec.Offered):
            self._compute(worker, assignment, report)
        elif isinstance(report, Outcome):
            self._end(worker, assignment, replace(report, job=assignment.job))
            self._hand_out()
        elif isinstance(report, codec.Paged):
            self._end(worker, assignment, report.page)
            self._hand_out()
        elif isinstance(report, codec.Looked):
            granted = partial(worker.send, codec.Proceed(report.number))
            assignment.memory = report.size, granted
            self._memory.acquire(report.size, granted)
        elif isinstance(report, codec.Notified):
            self._options.on_notice(assignment.job, report.text)

    def _compute(self, worker: CodecWorker, assignment: Assignment, offer: codec.Offered) -> None:
        ended = partial(self._computed, worker, assignment, offer.number)
        with self._changed:
            worker.calls += 1
        try:
            self._scheduler.submit(
                NetworkCall(
                    assignment.request.networks,
                    offer.factor,
                    offer.noise,
                    offer.pixels,
                    offer.out,
                    partial(self._report, assignment, offer.share),
                    ended,
                )
            )
        except RuntimeError as error:  # the system has no more threads: another file may do
            ended(BackendError(shortage(error) or str(error)), 0.0, False)

    def _report(self, assignment: Assignment, share: float, part: float) -> None:
        """Reports a part of a call; `share` is the call's of the file."""
        if self._stopped.is_set() or assignment.is_over:
            raise StoppedError
        with self._changed:
            assignment.progress += share * part
            new = max(0.0, assignment.progress - assignment.told)
            assignment.told += new
        assignment.on_progress(new)

    def _computed(
        self,
        worker: CodecWorker,
        assignment: Assignment,
        number: int,
        error: Exception | None,
        waited: float,
        is_recomputed: bool,
    ) -> None:
        """Tells a worker that its call has ended."""
        with self._changed:
            worker.calls -= 1
            assignment.waited += waited
            if assignment.is_over:
                self._changed.notify_all()
        expected = (Waifu2xError, OSError, MemoryError, StoppedError)
        if error is not None and not isinstance(error, expected):
            self._fail(error)
        elif not assignment.is_over:
            try:
                worker.send(codec.Computed(number, error, is_recomputed))
            except Exception as unsent:  # an error of another library that cannot be sent
                self._fail(unsent)

    def _end(
        self, worker: CodecWorker, assignment: Assignment, made: Outcome | ArchivePage
    ) -> None:
        """Ends a file, or a page that is made or has an outcome of its archive."""
        self._give_back(assignment)
        assignment.is_over = True
        left = 1.0 - assignment.told
        if left > 1e-6 and (not isinstance(made, Outcome) or made.status == "done"):
            with suppress(StoppedError):  # too late
                assignment.on_progress(left)
        if not isinstance(made, Outcome):
            assert assignment.page is not None
            spent = with_wait(made.spent, assignment.waited)
            assignment.page.answer.put(made._replace(spent=spent))
        elif assignment.page is not None:
            assignment.page.answer.put(FailedError(made))
        elif made.made is None:
            self.ended.put(made)
        else:
            spent = with_wait(made.made.spent, assignment.waited)
            self.ended.put(replace(made, made=replace(made.made, spent=spent)))
        with self._changed:
            if isinstance(made, Outcome) and made.device_failed:
                self._device_failed.set()
            worker.assignment = None
            if worker.state is State.BUSY:
                worker.state = State.READY
            if not self._is_handed_out:
                self._crew.grow()
            self._changed.notify_all()
            self._tell_end()

    def _bury(self, worker: CodecWorker, why: str) -> None:
        """Handles the end of a process: another one makes its file or page, and replaces it."""
        with self._changed:
            assignment = worker.assignment
            if assignment is not None:
                assignment.is_over = True  # which ends its calls
            self._changed.wait_for(lambda: not worker.calls or self._stopped.is_set())
            if self._stopped.is_set():
                return
            self._crew.remove(worker)
        worker.release()
        if assignment is not None:
            if assignment.page is None:
                clear_job(assignment.job, True)
            self._do_again(worker, assignment, why)
        with self._changed:
            if not self._is_handed_out:
                self._crew.add_processes()
            self._changed.notify_all()
        self._hand_out()

    def _do_again(self, worker: CodecWorker, assignment: Assignment, why: str) -> None:
        """Puts the file or page of a lost process in front of what waits, or fails it."""
        assignment.lost += 1
        if assignment.lost >= DEVICES.tries:
            error = f"{assignment.job.source}: it {DEVICES.blame(assignment.lost, why)}"
            self._end(worker, assignment, Outcome(assignment.job, error=error))
            return
        self._give_back(assignment)
        with self._changed:
            assignment.progress, assignment.waited, assignment.is_over = 0.0, 0.0, False
            worker.assignment = None
            self._waiting.appendleft(assignment)

    def _end_archive(self, outcome: Outcome) -> None:
        """Passes the outcome of an archive on to the consumer. The caller holds the lock."""
        self.ended.put(outcome)
        self._changed.notify_all()
        self._tell_end()

    def _give_back(self, assignment: Assignment) -> None:
        """Frees the memory of a file, or ends its waiting for it."""
        if assignment.memory is not None:
            size, granted = assignment.memory
            assignment.memory = None
            if not self._memory.withdraw(granted):
                self._memory.release(size)

    @property
    def _is_handed_out(self) -> bool:
        """Returns whether workers have got all there is to do. The caller holds the lock."""
        return self._is_exhausted and not (self._waiting or self._archives.owners)

    def _tell_end(self) -> None:
        """Tells the consumer once no job is left. The caller holds the lock."""
        if self._is_handed_out and not any(each.assignment for each in self._crew.workers):
            self.ended.put(None)

    def _fail(self, error: BaseException) -> None:
        """Passes a defect on to the consumer of outcomes."""
        if not (self._stopped.is_set() and isinstance(error, StoppedError)):
            self.ended.put(error)


def calls_at_once(engine: Engine, in_flight: InFlight | None = None) -> int:
    """Returns how many network calls a driver has under way on an engine."""
    return in_flight.in_network if in_flight else engine.backend.calls_at_once


def run(
    jobs: Iterable[Job | None],
    upscaler: Upscaler,
    output: Output,
    options: RunOptions,
    *,
    many: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Generator[Outcome]:
    """Yields the outcome of each job as it ends. A picture's failure does not affect the others.

    If the device has failed and no other replaces it, the rest fail untouched. `jobs` is asked when
    a worker is free; None means that there is no job now. With `many` files, for which
    `processes.prepare` was called, a GPU gets all its workers at the start. Closing the iterator,
    or an interrupt, ends the work at once: finished files stay, unfinished ones leave nothing.
    """
    engine = upscaler.engine
    request = FileRequest(upscaler, output, max_pixels, calls_at_once(engine, options.in_flight))
    driver = DeviceDriver(jobs, engine, lambda job: request, options)
    try:
        driver.start(many and engine.backend.device.is_gpu)
        while (ended := driver.ended.get()) is not None:
            if isinstance(ended, BaseException):
                raise ended
            yield ended
    finally:
        driver.stop()
