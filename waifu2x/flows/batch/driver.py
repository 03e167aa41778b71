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
from collections.abc import Callable, Generator, Iterable, Sequence
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
    Pending,
    clear_job,
    with_wait,
)
from waifu2x.flows.batch.crew import Crew, CrewSize, cores_of, most_workers
from waifu2x.flows.batch.scheduler import NetworkCall, Scheduler
from waifu2x.flows.batch.semaphore import MemorySemaphore
from waifu2x.flows.batch.worker import CodecWorker
from waifu2x.flows.fleet.supervisor import DEVICES
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
        self._sources = options.sources
        self._on_progress = options.on_progress
        self._on_notice = options.on_notice
        in_flight, sharing = options.in_flight, options.sharing
        in_network = calls_at_once(engine, in_flight)
        self._scheduler = Scheduler(in_network)
        self._memory = MemorySemaphore(sharing=sharing)
        most = in_flight.pictures if in_flight else most_workers(in_network, sharing)
        self._allowance = int(self._memory.size * _ALLOWED_SHARE / most)
        self._stopped = threading.Event()
        self._device_failed = threading.Event()
        self._changed = threading.Condition()
        self._assigned: dict[CodecWorker, Assignment] = {}
        self._waiting: deque[Assignment] = deque()
        """Pages of archives, and what was under way in processes that have ended: these come before
        further jobs."""
        self._is_exhausted = False
        self._crew = Crew(
            self._scheduler,
            engine.backend.pin,
            self._changed,
            self._stopped,
            CrewSize(most, cores_of(sharing), grows=in_flight is None, isolates=options.isolates),
            is_needless=lambda: self._is_exhausted and not (self._waiting or self._archives.owners),
            on_report=self._on_report,
        )
        self._archives = ArchiveOwners(
            self._waiting,
            self._changed,
            self._stopped,
            in_flight=most * _PAGES_EACH,
            on_progress=options.on_progress,
            on_ended=self._end_archive,
            on_defect=self._fail,
        )
        self._feeder = threading.Thread(target=self._feed, name="waifu2x-jobs", daemon=True)
        self._second_feeder = threading.Thread(
            target=self._feed_waiting, name="waifu2x-pages", daemon=True
        )

    def start(self, all_at_once: bool) -> None:
        """Starts the first workers, or all."""
        self._crew.start(all_at_once)
        self._feeder.start()
        self._second_feeder.start()

    def stop(self) -> None:
        """Ends the work at once; unfinished files leave nothing."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            workers = list(self._crew.workers)
            made = {worker: each.job for worker, each in self._assigned.items() if not each.page}
            owners = dict(self._archives.owners)
            wanted = [*self._assigned.values(), *self._waiting]
        for each in wanted:
            if each.page is not None:
                each.page.answer.put(StoppedError())
        for worker in workers:
            worker.stop()
        for owner, job in owners.items():
            owner.join(_OWNER_SECONDS)
            clear_job(job, False)
        for worker in workers:
            worker.join()
            if worker in made:
                clear_job(made[worker], worker.is_process)
        self._scheduler.close()
        for worker in workers:
            worker.release()
        for feeder in (self._feeder, self._second_feeder):
            if feeder.ident is not None:
                feeder.join(_FEEDER_SECONDS)

    def end(self, job: Job) -> None:
        """Ends the process that is at a job, which fails with it."""
        with self._changed:
            workers = [worker for worker, each in self._assigned.items() if each.job == job]
        for worker in workers:
            if worker.is_process:
                worker.stop()

    # A thread feeds jobs to workers, since their iterator may block.

    def _feed(self) -> None:
        try:
            while (worker := self._crew.vacant(self._may_begin)) is not None:
                # Meanwhile there may be pages for it.
                self._crew.vacate(worker)
                job = self._next()
                if job is None:
                    break
                request = self._request_of(job)
                outcome = self._settled(job, request)
                if outcome is not None:
                    self.ended.put(outcome)
                elif is_archive(job.source):
                    self._archives.begin(job, request)
                else:
                    file = Assignment(job, request, None, partial(self._on_progress, job))
                    self._hand_out(self._may_begin, [file].pop)
        except BaseException as error:
            self._fail(error)
        finally:
            with self._changed:
                self._is_exhausted = True
                self._tell_end()

    def _feed_waiting(self) -> None:
        waiting = self._waiting
        try:
            while self._hand_out(
                lambda: bool(waiting), waiting.popleft, lambda: waiting[0].lost > 0
            ):
                pass
        except BaseException as error:
            self._fail(error)

    def _hand_out(
        self,
        is_turn: Callable[[], bool],
        take: Callable[[], Assignment],
        in_process: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Waits as `Crew.vacant`, and gives the worker what `take` returns. Returns False at the
        end."""
        with self._changed:
            worker = self._crew.vacant(is_turn, in_process)
            if worker is None:
                return False
            self._assigned[worker] = assignment = take()
            job, page, request = assignment.job, assignment.page, assignment.request
        try:
            assignment.on_progress(0.0)
        except StoppedError:
            self._end(worker, assignment, Outcome(job, error=STOPPED))
            return True
        if assignment.lost and not worker.is_process:
            error = f"{job.source}: not made, since no process can be started for it"
            self._end(worker, assignment, Outcome(job, error=error))
            return True
        task = None if worker.told is request else request.task_for(worker.is_process)
        worker.told = request
        if page is None:
            job = replace(job, repeated=job.repeated or assignment.lost > 0)
            worker.send(codec.Make(job, self._allowance, task))
        else:
            worker.send(codec.MakePage(job, page.name, page.content, self._allowance, task))
        return True

    def _may_begin(self) -> bool:
        """Returns whether a worker may take a new job. The caller holds the lock."""
        return not self._waiting

    def _next(self) -> Job | None:
        """Returns the next job; None at the end, or once stopped."""
        while not self._stopped.is_set():
            try:
                job = next(self._jobs)
            except StopIteration:
                return None
            if job is not None:
                return job
        return None

    def _settled(self, job: Job, request: FileRequest) -> Outcome | None:
        """Returns the outcome of a job that needs no worker."""
        if self._device_failed.is_set():
            message = f"{job.source}: not begun, since the device had stopped working"
            return Outcome(job, error=message, device_failed=True)
        try:
            # Workers check this, too, but do not know the other inputs.
            output = request.task.output.again(job)
            if self._sources and not may_write(job, output.existing, self._sources):
                return Outcome(job)
        except OutputError as error:
            return Outcome(job, error=error.sentence)
        return None

    # Reports of workers come from a thread for each.

    def _on_report(self, worker: CodecWorker, report: codec.Report) -> None:
        try:
            self._handle(worker, report)
        except BaseException as error:
            self._fail(error)

    def _handle(self, worker: CodecWorker, report: codec.Report) -> None:
        if self._stopped.is_set():
            return
        if isinstance(report, codec.Up):
            self._crew.greet(worker)
            return
        if isinstance(report, codec.Died):
            self._bury(worker, report.why)
            return
        with self._changed:
            assignment = self._assigned.get(worker)
        if assignment is None:
            return  # stopped, and on its way out
        if isinstance(report, codec.Offered):
            self._compute(worker, assignment, report)
        elif isinstance(report, Outcome):
            self._end(worker, assignment, replace(report, job=assignment.job))
        elif isinstance(report, codec.Paged):
            self._end_page(worker, assignment, report.page)
        elif isinstance(report, codec.Looked):
            granted = partial(worker.send, codec.Proceed(report.number))
            assignment.memory[report.number] = report.size, granted
            self._memory.acquire(report.size, granted)
        elif isinstance(report, codec.Released):
            self._give_back(assignment, [report.number])
        elif isinstance(report, codec.Notified):
            self._on_notice(assignment.job, report.text)
        elif isinstance(report, codec.Defect):
            raise report.error

    def _compute(self, worker: CodecWorker, assignment: Assignment, offer: codec.Offered) -> None:
        pending = Pending(offer.number, len(offer.calls))
        with self._changed:
            worker.calls += len(offer.calls)
        for call in offer.calls:
            ended = partial(self._computed, worker, assignment, pending)
            try:
                self._scheduler.submit(
                    NetworkCall(
                        assignment.request.networks,
                        call.factor,
                        call.noise,
                        call.pixels,
                        call.out,
                        partial(self._report, assignment, call.share),
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
        pending: Pending,
        error: Exception | None,
        waited: float,
        is_recomputed: bool,
    ) -> None:
        """Ends a call; the last one of a picture is told to its worker."""
        with self._changed:
            worker.calls -= 1
            pending.left -= 1
            pending.error = pending.error or error
            pending.is_recomputed |= is_recomputed
            assignment.waited += waited
            if assignment.is_over:
                self._changed.notify_all()
        expected = (Waifu2xError, OSError, MemoryError, StoppedError)
        if error is not None and not isinstance(error, expected):
            self._fail(error)
        elif not (pending.left or assignment.is_over):
            try:
                worker.send(codec.Computed(pending.number, pending.error, pending.is_recomputed))
            except Exception as unsent:  # an error of another library that cannot be sent
                self._fail(unsent)

    def _end(self, worker: CodecWorker, assignment: Assignment, outcome: Outcome) -> None:
        if outcome.device_failed:
            self._device_failed.set()
        self._conclude(assignment, is_done=outcome.status == "done")
        if assignment.page is not None:
            assignment.page.answer.put(FailedError(outcome))
        else:
            if outcome.made is not None:
                spent = with_wait(outcome.made.spent, assignment.waited)
                outcome = replace(outcome, made=replace(outcome.made, spent=spent))
            self.ended.put(outcome)
        self._free_again(worker)

    def _end_page(self, worker: CodecWorker, assignment: Assignment, page: ArchivePage) -> None:
        assert assignment.page is not None
        try:
            self._conclude(assignment, is_done=True)
        except StoppedError as error:
            assignment.page.answer.put(error)
        else:
            spent = with_wait(page.spent, assignment.waited)
            assignment.page.answer.put(page._replace(spent=spent))
        self._free_again(worker)

    def _conclude(self, assignment: Assignment, *, is_done: bool) -> None:
        """Frees the memory of a file or page; reports the rest of it if it is done."""
        self._give_back(assignment, list(assignment.memory))
        assignment.is_over = True
        left = 1.0 - assignment.told
        if is_done and left > 1e-6:
            assignment.on_progress(left)

    def _free_again(self, worker: CodecWorker) -> None:
        with self._changed:
            self._assigned.pop(worker, None)
            self._crew.vacate(worker)
            self._changed.notify_all()
            self._tell_end()
        self._crew.grow()

    def _bury(self, worker: CodecWorker, why: str) -> None:
        """Handles the end of a process: another one makes its file or page, and replaces it."""
        with self._changed:
            assignment = self._assigned.get(worker)
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
        self._crew.add_processes()

    def _do_again(self, worker: CodecWorker, assignment: Assignment, why: str) -> None:
        """Gives the file or page of a lost process to another one, or fails it."""
        lost = assignment.lost + 1
        if lost >= DEVICES.tries:
            error = f"{assignment.job.source}: it {DEVICES.blame(lost, f'its process {why}')}"
            self._end(worker, assignment, Outcome(assignment.job, error=error))
            return
        self._give_back(assignment, list(assignment.memory))
        again = Assignment(
            assignment.job,
            assignment.request,
            assignment.page,
            assignment.on_progress,
            lost,
            assignment.told,
        )
        with self._changed:
            del self._assigned[worker]
            self._waiting.appendleft(again)
            self._changed.notify_all()

    def _end_archive(self, outcome: Outcome) -> None:
        """Passes the outcome of an archive on to the consumer. The caller holds the lock."""
        self.ended.put(outcome)
        self._changed.notify_all()
        self._tell_end()

    def _give_back(self, assignment: Assignment, numbers: Sequence[int]) -> None:
        """Frees memory of a file, or ends its waiting for it."""
        for number in numbers:
            size, granted = assignment.memory.pop(number)
            if not self._memory.withdraw(granted):
                self._memory.release(size)

    def _tell_end(self) -> None:
        """Tells the consumer once no job is left. The caller holds the lock."""
        if self._is_exhausted and not (self._assigned or self._waiting or self._archives.owners):
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
    `worker.prepare` was called, a GPU gets all its workers at the start. Closing the iterator, or
    an interrupt, ends the work at once: finished files stay, unfinished ones leave nothing.
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
