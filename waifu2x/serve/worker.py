"""Makes the pictures of the queue, by a driver as in `batch`, on one engine."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import field

from waifu2x.errors import Sentence, Waifu2xError
from waifu2x.flows.batch.assignments import FileRequest
from waifu2x.flows.batch.driver import DeviceDriver, RunOptions
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Job, result_extension
from waifu2x.flows.outcome import Outcome
from waifu2x.serve import names
from waifu2x.serve.job_results import JobResults
from waifu2x.serve.jobs import JobRecord, Remarks, few
from waifu2x.serve.queue import Queue
from waifu2x.serve.spool import Spool
from waifu2x.serve.upscalers import Upscalers
from waifu2x.system.lazy_dataclass import dataclass

_LOOK_SECONDS = 0.5
"""Between checks whether the server is ending."""
_AGAIN_SECONDS = 2.0
"""The pause after a failure."""
_REOPEN_SECONDS = 10.0
"""Between attempts to reopen a device that has stopped working."""
_GRACE_SECONDS = 5.0
"""How long a cancelled job may take to end by itself."""
_MOST_NOTICES = 1000
"""Kept of a job under way, for their count."""
_log = logging.getLogger("waifu2x")


class _DeviceFailedError(Exception):
    """Ends a driver whose device has stopped working."""


@dataclass(eq=False)
class _UnderWay:
    record: JobRecord
    request: FileRequest
    part: float = 0.0
    told: float = 0.0
    """When progress was last reported."""
    notices: dict[str, None] = field(default_factory=dict)
    """Each once, in their order: pages of an archive may have the same."""


class Worker:
    """Makes the files of the queue, in a thread and those of a driver."""

    def __init__(
        self, queue: Queue, spool: Spool, upscalers: Upscalers, results: JobResults
    ) -> None:
        self._queue = queue
        self._spool = spool
        self._upscalers = upscalers
        self._results = results
        self.is_idle = threading.Event()
        """Set while no job is under way."""
        self.is_idle.set()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[Job, _UnderWay] = {}
        self._unwanted: set[Job] = set()
        self._driver: DeviceDriver | None = None
        self._thread = threading.Thread(target=self._work, name="waifu2x-serve", daemon=True)
        queue.on_cancelled.append(self._cancel)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the work at once; jobs under way leave no result."""
        self._stopped.set()
        self._queue.wake()
        driver = self._driver
        if driver is not None:
            driver.ended.put(None)
        self._thread.join()

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                self._drive()
            except _DeviceFailedError:
                self._reopen()
            except Exception as error:
                # A defect, or a machine without room for another process: the queue stays.
                _log.error("the work on the queue was interrupted: %s", error)
                self._fail_all(str(error))
                self._stopped.wait(_AGAIN_SECONDS)

    def _reopen(self) -> None:
        with self._lock:
            under_way, self._under_way = dict(self._under_way), {}
            self.is_idle.set()
        for one in under_way.values():
            self._queue.give_back(one.record)
        while not self._stopped.is_set():
            try:
                self._upscalers.reopen()
            except Waifu2xError as error:
                _log.error("%s; the queue waits for it", error)
                self._stopped.wait(_REOPEN_SECONDS)
            else:
                return

    def _drive(self) -> None:
        self._driver = driver = DeviceDriver(
            self._jobs(),
            self._upscalers.engine,
            self._request_of,
            RunOptions(isolates=True, on_progress=self._advance, on_notice=self._notice),
        )
        try:
            driver.start(False)
            while not self._stopped.is_set():
                ended = driver.ended.get()
                if ended is None:
                    return
                if isinstance(ended, BaseException):
                    raise ended
                self._end(ended)
                if ended.device_failed:
                    raise _DeviceFailedError
        finally:
            self._driver = None
            driver.stop()

    def _jobs(self) -> Iterator[Job | None]:
        """Yields jobs as workers become free for them."""
        while not self._stopped.is_set():
            try:
                record = self._queue.take(_LOOK_SECONDS)
            except sqlite3.Error:  # the disk is full, say
                self._stopped.wait(_AGAIN_SECONDS)
                continue
            yield None if record is None else self._begun(record)

    def _begun(self, record: JobRecord) -> Job | None:
        extension = names.extension(record.name)
        try:
            request = self._upscalers.request(record.settings, extension)
        except Waifu2xError as error:
            self._results.fail(record, error.sentence.of(record.name))
            return None
        except (ValueError, MemoryError, OSError) as error:
            self._results.fail(record, f"{record.name}: {error or 'not enough memory'}")
            return None
        written = result_extension(extension) or request.task.output.extension
        made = self._spool.result(record, written)
        job = Job(self._spool.source(record), made)
        with self._lock:
            self._under_way[job] = one = _UnderWay(record, request)
            one.notices |= dict.fromkeys(self._upscalers.notices(record.settings))
            self.is_idle.clear()
        return job

    def _request_of(self, job: Job) -> FileRequest:
        with self._lock:
            return self._under_way[job].request

    def _advance(self, job: Job, part: float) -> None:
        """Reports progress. Raises StoppedError if the job was cancelled."""
        with self._lock:
            if job in self._unwanted:
                raise StoppedError
            one = self._under_way[job]
            one.part += part
            now = time.monotonic()
            if now - one.told < 0.1:
                return
            one.told = now
            done = one.part
        self._queue.advance(one.record, done, _result_pixels(one.record, one.request))

    def _notice(self, job: Job, text: str) -> None:
        with self._lock:
            one = self._under_way.get(job)
            if one is not None and len(one.notices) < _MOST_NOTICES:
                one.notices[Sentence(text).of(one.record.name)] = None

    def _cancel(self, identity: str) -> None:
        with self._lock:
            found = [job for job, one in self._under_way.items() if one.record.id == identity]
            self._unwanted.update(found)
        for job in found:
            timer = threading.Timer(_GRACE_SECONDS, self._end_process, (job,))
            timer.daemon = True
            timer.start()

    def _end_process(self, job: Job) -> None:
        driver = self._driver
        with self._lock:
            is_stuck = job in self._under_way
        if is_stuck and driver is not None:
            driver.end(job)

    def _end(self, outcome: Outcome) -> None:
        job = outcome.job
        with self._lock:
            one = self._under_way.pop(job)
            self._unwanted.discard(job)
            if not self._under_way:
                self.is_idle.set()
        self._upscalers.release(one.record.settings)
        record = one.record
        if not self._queue.is_wanted(record):
            self._results.drop(record, job.target)
        elif outcome.made is None:
            self._results.fail(record, outcome.error)
        else:
            made = outcome.made
            self._queue.advance(record, 1.0, made.pixels)
            size, remarks = (made.width, made.height), Remarks(notices=few(one.notices))
            self._results.keep(record, job.target, size, remarks)

    def _fail_all(self, error: str) -> None:
        with self._lock:
            under_way, self._under_way = dict(self._under_way), {}
            self.is_idle.set()
            self._unwanted.clear()
        for one in under_way.values():
            self._upscalers.release(one.record.settings)
            self._results.fail(one.record, f"{one.record.name}: {error}")


def _result_pixels(record: JobRecord, request: FileRequest) -> int:
    """Returns the pixels of all pictures of the result, as far as the header tells."""
    source = record.source
    if source is None:
        return 0
    try:
        planned = request.task.request.plan(source.height, source.width, lambda scale: 1)
    except Waifu2xError:
        return 0
    return planned.height * planned.width * max(source.pages, 1)
