"""Drives a device: files go to codec workers, what these prepare goes through networks.

The first workers are threads of this process. Where the network has nothing to do between their
pictures, as on a GPU, codecs are what holds the work up: then workers that are processes take their
place, more and more of them, until the network is busy or the machine's cores are.

An archive is read and written by a thread of its own here, its owner; its pages go to the workers,
before any file that waits.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.api import Upscaler
from waifu2x.backends import Progress
from waifu2x.errors import OutputError, Waifu2xError
from waifu2x.flows.batch.codec import (
    CodecTask,
    Computed,
    Defect,
    Died,
    Ended,
    Looked,
    Make,
    MakePage,
    Notified,
    Offered,
    Paged,
    Proceed,
    Released,
    Report,
    Up,
)
from waifu2x.flows.batch.scheduler import NetworkCall, Scheduler
from waifu2x.flows.batch.semaphore import MemorySemaphore
from waifu2x.flows.batch.worker import (
    CodecProcess,
    CodecThread,
    CodecWorker,
    may_start_processes,
)
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import ARCHIVES, Identity, InFlight, Job, OnNotice, Output, may_write
from waifu2x.flows.outcome import FailedError, Outcome, outcome_of, outcome_of_error
from waifu2x.imaging.sizes import MOST
from waifu2x.networks.chains import FactTable
from waifu2x.system import stores
from waifu2x.system.files import is_temporary, remove_abandoned, remove_unfinished
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.machine import available_memory, core_count

if TYPE_CHECKING:
    from waifu2x.flows.archive import ArchivePage

_FIRST_WORKERS = 3
"""Workers at the start: one picture is loaded, one computed and one saved."""
_IN_FLIGHT = 4
"""Pictures of one file that are under way at a time, at most."""
_IDLE_SHARE = 0.05
"""The share of the time that a network may be idle before more codec workers are added."""
_PROCESSES = 4
"""Processes for each core, at most: who asks for more workers gets them as threads."""
_ALLOWED_SHARE = 0.1
"""The share of the memory for pictures that all workers together may take on top, unasked."""
_WORKER_BYTES = 256 << 20
"""Bytes of free memory that there must be for each process and its pictures."""
_ARCHIVES = 2
"""Archives under way at a time: while the last pages of one are made, those of the next begin."""
_PAGES_EACH = 2
"""Pages of an archive that are under way, for each worker: they leave in order, and nobody is to be
idle while the first of them takes longer than most."""
_OWNER_SECONDS = 0.1
"""How long the end of the work waits for whoever writes an archive."""
_FEEDER_SECONDS = 5.0
"""How long the end of the work waits for whoever gives the jobs."""


@dataclass(eq=False)
class _WantedPage:
    """A page that the owner of an archive waits for."""

    job: Job
    """The archive's."""
    name: str
    content: bytes
    on_progress: Progress
    """Told of parts that add up to 1; raises StoppedError once the page is not wanted."""
    answer: queue.SimpleQueue[ArchivePage | Exception] = field(default_factory=queue.SimpleQueue)


@dataclass(eq=False)
class _Assignment:
    """A file that a worker makes, or a page of an archive."""

    job: Job
    """The file's, or the archive's."""
    page: _WantedPage | None
    on_progress: Progress
    memory: dict[int, tuple[int, Callable[[], None]]] = field(default_factory=dict)
    """Bytes that it has or waits for, by the number of the report, and what is called when they are
    there."""
    progress: float = 0.0
    """The part that has been told of."""
    waited: float = 0.0
    """Seconds that its calls waited for the network."""
    is_over: bool = False


@dataclass(eq=False)
class _Pending:
    """An offer whose calls are not all done."""

    number: int
    left: int
    error: Exception | None = None


class DeviceDriver:
    """Makes files by one backend and codec workers. It is for one batch.

    Nothing of it is shared with other drivers: several may run on one machine, each in a process of
    its own and with devices of its own.
    """

    def __init__(
        self,
        jobs: Iterable[Job | None],
        upscaler: Upscaler,
        output: Output,
        *,
        in_flight: InFlight | None,
        max_pixels: int,
        sources: frozenset[Identity],
        sharing: int,
        on_progress: Callable[[Job, float], None],
        on_notice: OnNotice,
    ) -> None:
        """`sharing` is how many drivers share the cores and the memory of this machine."""
        self.ended: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        """How jobs end; an error that is a defect; None when all have ended."""
        self._jobs = iter(jobs)
        self._output = output
        self._sources = sources
        self._on_progress = on_progress
        self._on_notice = on_notice
        self._pin = upscaler.engine.backend.pin
        in_network = in_flight.in_network if in_flight else upscaler.engine.backend.calls_at_once
        self._scheduler = Scheduler(upscaler.networks, in_network)
        self._memory = MemorySemaphore(sharing=sharing)
        self._cores = max(1, core_count() // sharing)
        self._most = in_flight.pictures if in_flight else self._most_workers(in_network, sharing)
        self._grows = in_flight is None
        self._allowance = int(self._memory.size * _ALLOWED_SHARE / self._most)
        enlarger = upscaler.enlarger
        self._task = CodecTask(
            enlarger.facts,
            enlarger.request,
            enlarger.noise,
            enlarger.limits,
            output,
            max_pixels,
            min(in_network + 1, _IN_FLIGHT),
        )
        self._told: CodecTask | None = None
        """The task as processes are told it."""
        self._stopped = threading.Event()
        self._device_failed = threading.Event()
        self._changed = threading.Condition()
        self._workers: set[CodecWorker] = set()
        self._free: deque[CodecWorker] = deque()
        self._assigned: dict[CodecWorker, _Assignment] = {}
        self._pages: deque[_WantedPage] = deque()
        """Pages that no worker has yet."""
        self._owners: dict[threading.Thread, Job] = {}
        """Who reads and writes the archives that are under way."""
        self._calls: dict[CodecWorker, int] = {}
        """How many calls use the memory of a worker; also of those that have died."""
        self._threads_wanted = 0
        self._processes_wanted = 0
        self._may_have_processes = may_start_processes()
        self._up: set[CodecWorker] = set()
        """Workers that have said so."""
        self._started = 0
        self._is_exhausted = False
        self._since = 0
        """Outcomes since workers were added last."""
        self._looked = time.monotonic(), 0.0
        """When workers were added last, and how long the network had been idle by then."""
        self._feeder = threading.Thread(target=self._feed, name="waifu2x-jobs", daemon=True)
        self._page_feeder = threading.Thread(
            target=self._feed_pages, name="waifu2x-pages", daemon=True
        )

    def start(self, all_at_once: bool) -> None:
        """Begins, with the first workers or with all."""
        few = self._grows and not all_at_once
        count = min(_FIRST_WORKERS, self._most) if few else self._most
        if self._may_have_processes and not few and count > _FIRST_WORKERS:
            self._processes_wanted = min(count, _PROCESSES * self._cores)
        self._threads_wanted = count - self._processes_wanted
        self._add_processes()
        self._feeder.start()
        self._page_feeder.start()

    def stop(self) -> None:
        """Ends the work at once: what is not finished leaves nothing behind."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            workers = list(self._workers)
            made = {worker: each.job for worker, each in self._assigned.items() if not each.page}
            owners = dict(self._owners)
            pages = [each.page for each in self._assigned.values() if each.page]
            pages += self._pages
        for page in pages:
            page.answer.put(StoppedError())
        for worker in workers:
            worker.stop()
        for owner, job in owners.items():
            owner.join(_OWNER_SECONDS)
            _clear(job, False)
        for worker in workers:
            worker.join()
            if worker in made:
                _clear(made[worker], worker.is_process)
        self._scheduler.close()
        for worker in workers:
            worker.release()
        for feeder in (self._feeder, self._page_feeder):
            if feeder.ident is not None:
                feeder.join(_FEEDER_SECONDS)

    # The jobs' way to workers, in a thread of its own: whoever gives them may take long.

    def _feed(self) -> None:
        try:
            while (worker := self._vacant()) is not None:
                # Whoever gives the jobs may take long: meanwhile there may be pages for it.
                self._vacate(worker)
                job = self._next()
                if job is None:
                    break
                outcome = self._settled(job)
                if outcome is not None:
                    self.ended.put(outcome)
                elif job.source.suffix[1:].lower() in ARCHIVES:
                    self._begin(job)
                else:
                    file = _Assignment(job, None, partial(self._on_progress, job))
                    while (worker := self._vacant()) and not self._assign(worker, file):
                        pass  # that one has died meanwhile
        except BaseException as error:
            self._fail(error)
        finally:
            with self._changed:
                self._is_exhausted = True
                self._tell_end()

    def _feed_pages(self) -> None:
        try:
            while (worker := self._vacant(for_page=True)) is not None:
                with self._changed:
                    page = self._pages[0]
                try:
                    page.on_progress(0.0)
                except StoppedError as error:
                    with self._changed:
                        self._pages.popleft()
                    page.answer.put(error)
                    self._vacate(worker)
                else:
                    self._assign(worker, _Assignment(page.job, page, page.on_progress))
        except BaseException as error:
            self._fail(error)

    def _assign(self, worker: CodecWorker, assignment: _Assignment) -> bool:
        """Gives a worker a file or a page; False if the worker is gone."""
        with self._changed:
            if worker not in self._workers:
                return False
            self._assigned[worker] = assignment
            job, page = assignment.job, assignment.page
            if page is not None:
                self._pages.popleft()
        if page is None:
            worker.send(Make(job, self._allowance))
        else:
            worker.send(MakePage(job, page.name, page.content, self._allowance))
        return True

    def _vacant(self, *, for_page: bool = False) -> CodecWorker | None:
        """A worker that has nothing to do, as soon as there is one; None at the end.

        As long as pages wait, it is for one of them; and only then, if it is `for_page`.
        """
        with self._changed:
            while not self._stopped.is_set():
                threads = [each for each in self._workers if not each.is_process]
                if for_page != bool(self._pages):
                    self._changed.wait()
                elif self._free:
                    worker = self._free.popleft()
                    if worker.is_process or len(threads) <= self._threads_wanted:
                        return worker
                    self._workers.discard(worker)
                    worker.send(None)
                elif len(threads) < self._threads_wanted:
                    self._add_thread()
                else:
                    self._changed.wait()
        return None

    def _vacate(self, worker: CodecWorker) -> None:
        with self._changed:
            if worker in self._workers:
                self._free.append(worker)
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """The next job; None if there is none any more, or nobody wants it."""
        while not self._stopped.is_set():
            try:
                job = next(self._jobs)
            except StopIteration:
                return None
            if job is not None:
                return job
        return None

    def _settled(self, job: Job) -> Outcome | None:
        """How a job ends that no worker need look at."""
        if self._device_failed.is_set():
            message = f"{job.source}: not begun, since the device had stopped working"
            return Outcome(job, "failed", 0.0, error=message, device_failed=True)
        try:
            # Workers look as well: only what other inputs are they do not know.
            if self._sources and not may_write(job, self._output.existing, self._sources):
                return Outcome(job, "skipped", 0.0)
        except OutputError as error:
            return Outcome(job, "failed", 0.0, error=str(error))
        return None

    # Archives, each in a thread of its own: its owner.

    def _begin(self, job: Job) -> None:
        """Starts the owner of an archive, once there is room for one."""
        owner = threading.Thread(target=self._own, args=(job,), name="waifu2x-archive", daemon=True)
        with self._changed:
            self._changed.wait_for(lambda: len(self._owners) < _ARCHIVES or self._stopped.is_set())
            if not self._stopped.is_set():
                owner.start()
                self._owners[owner] = job

    def _own(self, job: Job) -> None:
        try:
            outcome = self._archived(job)
        except BaseException as error:
            self._fail(error)
            return
        with self._changed:
            del self._owners[threading.current_thread()]
            self.ended.put(outcome)
            self._changed.notify_all()
            self._tell_end()

    def _archived(self, job: Job) -> Outcome:
        """The outcome of an archive."""
        # Imported where there is an archive: most folders have none.
        from waifu2x.flows.archive import upscale_archive

        def report(part: float) -> None:
            if self._stopped.is_set():
                raise StoppedError
            try:
                self._on_progress(job, part)
            except BaseException as error:  # not the archive's
                self._fail(error)
                raise StoppedError from error

        start, make_page = time.monotonic(), partial(self._made_page, job)
        pages = self._most * _PAGES_EACH
        try:
            made = upscale_archive(
                job, self._output, make_page, on_progress=report, in_flight=pages
            )
        except Exception as error:
            return outcome_of_error(job, self._output, error, start)
        return outcome_of(job, made)

    def _made_page(self, job: Job, name: str, content: bytes, on_progress: Progress) -> ArchivePage:
        """A page that a worker has made. Raises FailedError, StoppedError."""
        page = _WantedPage(job, name, content, on_progress)
        with self._changed:
            if self._stopped.is_set():
                raise StoppedError
            self._pages.append(page)
            self._changed.notify_all()
        answer = page.answer.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    # Workers, as they are added.

    def _add_thread(self) -> None:
        """Called with the lock."""
        self._started += 1
        try:
            worker = CodecThread(self._task, self._on_report, f"waifu2x-codec-{self._started}")
        except RuntimeError:  # the system has no more
            if not self._workers:
                raise
            self._threads_wanted = sum(not each.is_process for each in self._workers)
            self._grows = False
        else:
            self._workers.add(worker)
            self._changed.wait_for(lambda: self._free or self._stopped.is_set())

    def _add_processes(self) -> None:
        """Brings their number to what is wanted."""
        with self._changed:
            while self._may_have_processes and not self._stopped.is_set():
                count = sum(each.is_process for each in self._workers)
                if count >= self._processes_wanted or (self._is_exhausted and not self._owners):
                    return
                self._started += 1
                name = f"waifu2x-codec-{self._started}"
                task = self._told = self._told or self._process_task()
                try:
                    worker = CodecProcess(task, self._on_report, name, self._pin)
                except (RuntimeError, OSError):
                    self._do_without_processes()
                else:
                    self._workers.add(worker)

    def _do_without_processes(self) -> None:
        """Threads do what is left. Called with the lock."""
        count = sum(each.is_process for each in self._workers)
        self._may_have_processes = False
        self._threads_wanted += max(0, self._processes_wanted - count)
        self._processes_wanted = count
        self._changed.notify_all()

    def _grow(self) -> None:
        """Adds workers where the network is idle although each has made a picture since."""
        with self._changed:
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
            self._changed.notify_all()
        self._add_processes()

    def _has_process(self) -> bool:
        """Whether one is at work. Called with the lock."""
        return any(worker.is_process for worker in self._up)

    def _process_task(self) -> CodecTask:
        """The task, with facts that need no models: of the scales that pictures may grow by."""
        task = self._task
        scales = [Fraction(scale) for scale in range(1, MOST + 1)]
        if task.request.scale is not None:
            scales = [task.request.scale]
        levels = {task.noise} | (task.limits.levels if task.limits else frozenset())
        return replace(task, facts=FactTable.of(task.facts, levels, scales))

    def _most_workers(self, in_network: int, sharing: int) -> int:
        """One for each core, as memory allows."""
        free = available_memory()
        by_memory = self._cores if free is None else free // sharing // _WORKER_BYTES
        return max(1, min(max(self._cores, in_network + 2), by_memory))

    # What workers report, each from a thread of its own.

    def _on_report(self, worker: CodecWorker, report: Report) -> None:
        try:
            self._handle(worker, report)
        except BaseException as error:
            self._fail(error)

    def _handle(self, worker: CodecWorker, report: Report) -> None:
        if self._stopped.is_set():
            return
        if isinstance(report, Up):
            with self._changed:
                self._up.add(worker)
                if worker.is_process and self._grows:
                    self._threads_wanted = 0
            self._vacate(worker)
            return
        if isinstance(report, Died):
            self._bury(worker, report.why)
            return
        with self._changed:
            assignment = self._assigned.get(worker)
        if assignment is None:
            return  # stopped, and on its way out
        if isinstance(report, Offered):
            self._compute(worker, assignment, report)
        elif isinstance(report, Ended):
            self._end(worker, assignment, Outcome(assignment.job, *report))
        elif isinstance(report, Paged):
            self._end_page(worker, assignment, report)
        elif isinstance(report, Looked):
            granted = partial(worker.send, Proceed(report.number))
            assignment.memory[report.number] = report.size, granted
            self._memory.acquire(report.size, granted)
        elif isinstance(report, Released):
            self._give_back(assignment, [report.number])
        elif isinstance(report, Notified):
            self._on_notice(assignment.job, report.text)
        elif isinstance(report, Defect):
            raise report.error

    def _compute(self, worker: CodecWorker, assignment: _Assignment, offer: Offered) -> None:
        """Gives the calls of a picture to the device."""
        pending = _Pending(offer.number, len(offer.calls))
        with self._changed:
            self._calls[worker] = self._calls.get(worker, 0) + len(offer.calls)
        for call in offer.calls:
            self._scheduler.submit(
                NetworkCall(
                    call.factor,
                    call.noise,
                    call.pixels,
                    call.out,
                    partial(self._report, assignment, call.share),
                    partial(self._computed, worker, assignment, pending),
                )
            )

    def _report(self, assignment: _Assignment, share: float, part: float) -> None:
        """Tells of a part of a call; `share` is what the call is of the file."""
        if self._stopped.is_set() or assignment.is_over:
            raise StoppedError
        with self._changed:
            assignment.progress += share * part
        assignment.on_progress(share * part)

    def _computed(
        self,
        worker: CodecWorker,
        assignment: _Assignment,
        pending: _Pending,
        error: Exception | None,
        waited: float,
    ) -> None:
        """A call is done; with the last one of a picture, its worker is told."""
        with self._changed:
            self._calls[worker] -= 1
            pending.left -= 1
            pending.error = pending.error or error
            assignment.waited += waited
            is_last_of_dead = worker not in self._workers and not self._calls[worker]
        if is_last_of_dead:
            worker.release()
        expected = (Waifu2xError, OSError, MemoryError, StoppedError)
        if error is not None and not isinstance(error, expected):
            self._fail(error)
        elif not (pending.left or assignment.is_over):
            try:
                worker.send(Computed(pending.number, pending.error))
            except Exception as unsent:  # an error of another library that cannot be sent
                self._fail(unsent)

    def _end(self, worker: CodecWorker, assignment: _Assignment, outcome: Outcome) -> None:
        """A file has ended, or a page has failed, and its worker is free."""
        if outcome.device_failed:
            self._device_failed.set()
        self._conclude(assignment, is_done=outcome.status == "done")
        if assignment.page is not None:
            assignment.page.answer.put(FailedError(outcome))
        else:
            spent = _with_wait(outcome.spent, assignment.waited)
            self.ended.put(replace(outcome, spent=spent))
        self._free_again(worker)

    def _end_page(self, worker: CodecWorker, assignment: _Assignment, paged: Paged) -> None:
        """A page is made, and its worker is free."""
        from waifu2x.flows.archive import ArchivePage

        assert assignment.page is not None
        try:
            self._conclude(assignment, is_done=True)
        except StoppedError as error:
            assignment.page.answer.put(error)
        else:
            spent = _with_wait(paged.spent, assignment.waited)
            page = ArchivePage(paged.content, paged.size, spent, paged.choice, paged.previews)
            assignment.page.answer.put(page)
        self._free_again(worker)

    def _conclude(self, assignment: _Assignment, *, is_done: bool) -> None:
        """Gives back what a file or page had, and tells of the rest of it if it is done."""
        self._give_back(assignment, list(assignment.memory))
        assignment.is_over = True
        left = 1.0 - assignment.progress
        if is_done and left > 1e-6:
            assignment.on_progress(left)

    def _free_again(self, worker: CodecWorker) -> None:
        """What a worker was at has ended."""
        with self._changed:
            self._assigned.pop(worker, None)
            if worker in self._workers:
                self._free.append(worker)
            self._changed.notify_all()
            self._tell_end()
        self._grow()

    def _bury(self, worker: CodecWorker, why: str) -> None:
        """A process has ended: the file that it was at fails, and another takes its place."""
        with self._changed:
            was_up = worker in self._up
            self._up.discard(worker)
            self._workers.discard(worker)
            with suppress(ValueError):
                self._free.remove(worker)
            assignment = self._assigned.get(worker)
            is_unused = not self._calls.get(worker)
            if not was_up:
                self._do_without_processes()
        if is_unused:
            worker.release()
        if assignment is not None:
            if assignment.page is None:
                _clear(assignment.job, True)
            error = f"{assignment.job.source}: the process that worked on it {why}"
            outcome = Outcome(assignment.job, "failed", 0.0, error=error)
            self._end(worker, assignment, outcome)
        self._add_processes()

    def _give_back(self, assignment: _Assignment, numbers: Sequence[int]) -> None:
        """Frees memory of a file, which may still be waiting for it."""
        for number in numbers:
            size, granted = assignment.memory.pop(number)
            if not self._memory.withdraw(granted):
                self._memory.release(size)

    def _tell_end(self) -> None:
        """Called with the lock."""
        if self._is_exhausted and not (self._assigned or self._owners):
            self.ended.put(None)

    def _fail(self, error: BaseException) -> None:
        """Hands a defect to whoever waits for outcomes."""
        if not (self._stopped.is_set() and isinstance(error, StoppedError)):
            self.ended.put(error)


def _with_wait(spent: Mapping[str, float], waited: float) -> Mapping[str, float]:
    """Seconds by stage, with the time that was waited for a turn at the network told apart."""
    if "network" not in spent:
        return spent
    network = max(0.0, spent["network"] - waited)
    return {**spent, "wait": spent.get("wait", 0.0) + waited, "network": network}


def _clear(job: Job, is_process: bool) -> None:
    """Removes what a worker that was stopped has left of its file."""
    if stores.is_url(job.target):
        return  # uploads are whole or nothing
    if is_process:
        clear_folder(job.target.resolve().parent)
    else:
        remove_unfinished(job.target)


def clear_folder(folder: Path) -> None:
    """Removes what processes that have ended have left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for path in [entry.path for entry in entries if is_temporary(entry.name)]:
            remove_abandoned(Path(path))
