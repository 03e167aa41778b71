"""The queue: clients and workers change jobs through it alone."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from waifu2x.serve import jobs
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import FINISHED, STATES, JobRecord, Kind, Remarks, ResultInfo, SourceInfo
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.progress import ProgressTable
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import ChosenJob, Store, settings_of


class QueueFullError(Exception):
    """The queue is full. The text is a sentence."""


class DiskFullError(Exception):
    """The disk is full. The text is a sentence."""


class UnknownJobError(Exception):
    """There is no such job. The text is a sentence."""


class WrongStateError(Exception):
    """The state of a job does not allow the change. The text is a sentence."""


class Queue:
    """Holds the jobs of a server. Threads may share it."""

    def __init__(self, store: Store, spool: Spool, limits: ServiceLimits) -> None:
        """Jobs that were under way when the server ended wait again."""
        self._store = store
        self._spool = spool
        self._limits = limits
        self._lock = threading.RLock()
        self._arrived = {films: threading.Condition(self._lock) for films in (False, True)}
        """Notified of new jobs: by whether they are films."""
        self._progress = ProgressTable()
        self.on_changed: Callable[[Sequence[str], int], None] = lambda ids, version: None
        self.on_removed: Callable[[Sequence[str], int], None] = lambda ids, version: None
        self.on_cancelled: list[Callable[[str], None]] = []
        """Called with the ids of cancelled jobs that are under way."""
        spool.sweep(store.ids(*STATES))
        for identity in store.ids("working"):
            self.measure(identity)  # there may be parts of a film
            self._put(replace(self.get(identity), state="waiting"))
        for identity in store.unmeasured():
            self.measure(identity)

    # For clients: reading.

    @property
    def version(self) -> int:
        """Returns the version of the latest change."""
        return self._store.version

    def shown(self, identity: str) -> dict[str, Any] | None:
        """Returns a job as clients see it; None if there is none."""
        record = self._store.get(identity)
        return None if record is None else self._shown(record)

    def shown_of(self, ids: Collection[str]) -> list[dict[str, Any]]:
        """Returns these jobs, as far as they exist, as clients see them."""
        return [self._shown(record) for record in self._store.of_ids(ids)]

    def listed(self, start: int, count: int) -> list[dict[str, Any]]:
        """Returns `count` jobs from `start` on, in the order in which they came."""
        return [self._shown(record) for record in self._store.listed(start, count)]

    def changed_since(self, version: int, most: int) -> list[dict[str, Any]]:
        """Returns at most `most` jobs that changed after a version, and those under way."""
        records = {each.id: each for each in self._store.changed_since(version, most)}
        under_way = [each for each in self._progress.ids() if each not in records]
        records |= {each.id: each for each in self._store.of_ids(under_way)}
        return [self._shown(record) for record in records.values()]

    def shown_counts(self) -> dict[str, int]:
        """Returns the number of jobs in each state, and `total`."""
        counts = {str(state): count for state, count in self._store.counts.items()}
        return {**counts, "total": sum(counts.values())}

    def rate(self, model: str) -> float | None:
        """Returns output megapixels a second of a model's latest job; None before its second."""
        return self._progress.rate(model)

    def get(self, identity: str) -> JobRecord:
        """Returns a job. Raises UnknownJobError."""
        record = self._store.get(identity)
        if record is None:
            raise UnknownJobError("There is no such job: it was removed, or never there.")
        return record

    def done(self) -> list[str]:
        """Returns the ids of all jobs with results, oldest first."""
        return self._store.ids("done")

    # For clients: changes.

    def make_room(self, size: int) -> None:
        """Makes room for a job with a file of `size` bytes: removes the oldest finished jobs.
        Raises QueueFullError, DiskFullError."""
        with self._lock:
            while (
                self._store.total >= self._limits.max_queue
                or self._store.size + size > self._limits.max_kept
            ):
                oldest = self._store.oldest(FINISHED)
                if oldest is None:
                    raise QueueFullError(
                        f"The queue is full ({self._store.total} jobs): wait until some are done."
                    )
                self.remove(oldest.id)
        if not self._spool.has_space(size):
            raise DiskFullError(
                f"The disk is full ({self._spool.free() >> 20} MiB free): remove finished jobs."
            )

    def add(
        self,
        identity: str,
        kind: Kind,
        name: str,
        settings: JobSettings,
        source: SourceInfo | None,
        error: str | None,
    ) -> dict[str, Any]:
        """Adds a job whose files are in its folder, and returns it as clients see it. With an
        error, it has failed already. Raises QueueFullError."""
        size = self._spool.size_of(identity)
        with self._lock:
            self.make_room(0)
            record = JobRecord(
                identity,
                self._store.next_number(),
                self._store.next_turn(),
                0,
                kind,
                "waiting" if error is None else "failed",
                name,
                settings,
                time.time(),
                source=source,
                error=error,
                size=size,
            )
            record = self._put(record)
            self._arrived[kind == "film"].notify()
            return self._shown(record)

    def cancel(self, identity: str) -> dict[str, Any]:
        """Cancels a job and returns it as clients see it. Raises UnknownJobError."""
        with self._lock:
            self.get(identity)
            self.cancel_all([identity])
            return self._shown(self.get(identity))

    def retry(self, identity: str, settings: JobSettings) -> dict[str, Any]:
        """Makes a finished job wait again with other settings; returns it as clients see it. Raises
        UnknownJobError, WrongStateError."""
        with self._lock:
            record = self.get(identity)
            if record.state not in FINISHED:
                raise WrongStateError("This job is not finished: cancel it first.")
            if record.source is None:
                raise WrongStateError("This file cannot be read, and so not be tried again.")
            self.retry_all([identity], lambda before: settings)
            return self._shown(self.get(identity))

    def remove(self, identity: str) -> None:
        """Removes a job and its files; cancels it first if need be. Raises UnknownJobError."""
        self.get(identity)
        self.remove_all([identity])

    def cancel_all(self, ids: Sequence[str] | None) -> int:
        """Cancels these jobs, or all, except finished ones; returns how many."""
        with self._lock:
            chosen = self._store.chosen(ids, ("waiting", "working"))
            self._store.cancel_all(chosen)
            self._changed_together(chosen)
            self._stop_work_on(chosen)
        return len(chosen)

    def retry_all(
        self, ids: Sequence[str] | None, settings: Callable[[JobSettings], JobSettings | None]
    ) -> int:
        """Makes these jobs wait again if they are finished; returns how many.

        None is for all failed and cancelled ones. Jobs with unreadable files, and jobs for whose
        settings `settings` returns None, stay.
        """
        with self._lock:
            states = FINISHED if ids is not None else ("failed", "cancelled")
            again: dict[ChosenJob, JobSettings] = {}
            known: dict[str, JobSettings | None] = {}
            for job in self._store.chosen(ids, states, readable=True):
                if job.settings not in known:
                    known[job.settings] = settings(settings_of(job.settings))
                found = known[job.settings]
                if found is not None:
                    again[job] = found
            self._store.retry_all(again)
            self._changed_together(list(again))
            for arrived in self._arrived.values():
                arrived.notify_all()
        return len(again)

    def remove_all(self, ids: Sequence[str] | None) -> int:
        """Removes these jobs and their files, or all finished ones; returns how many. Jobs under
        way are cancelled first."""
        with self._lock:
            chosen = self._store.chosen(ids, FINISHED if ids is None else STATES)
            try:
                self._store.remove_all(chosen)
            except sqlite3.OperationalError:
                # The disk is full: removing the files makes room for the change itself.
                self._remove_files(job for job in chosen if job.state in FINISHED)
                self._store.remove_all(chosen)
            if chosen:
                self.on_removed([job.id for job in chosen], self._store.next_version())
            self._stop_work_on(chosen)
        self._remove_files(chosen)
        return len(chosen)

    def _changed_together(self, chosen: Sequence[ChosenJob]) -> None:
        if chosen:
            self.on_changed([job.id for job in chosen], self._store.version)

    def _stop_work_on(self, chosen: Iterable[ChosenJob]) -> None:
        for job in chosen:
            if job.state == "working":
                self._progress.end(job.id)
                for tell in self.on_cancelled:
                    tell(job.id)

    def _remove_files(self, chosen: Iterable[ChosenJob]) -> None:
        for job in chosen:
            self._spool.remove(job.id)

    # For workers.

    def take(self, seconds: float, *, films: bool = False) -> JobRecord | None:
        """Returns the next job and marks it as under way; None if none comes within `seconds`.
        Films have a separate queue."""
        with self._lock:
            record = self._store.first_waiting(films=films)
            if record is None:
                self._arrived[films].wait(seconds)
                record = self._store.first_waiting(films=films)
            if record is None:
                return None
            record = self._put(replace(record, state="working"))
            self._progress.begin(record)
            return record

    def is_wanted(self, record: JobRecord) -> bool:
        """Returns whether the job that was taken as `record` is still under way."""
        now = self._store.get(record.id)
        return now is not None and now.state == "working" and now.attempt == record.attempt

    def advance(self, record: JobRecord, part: float, pixels: int, before: float = 0.0) -> None:
        """Notes that `part` of a job is done, 0 to 1, of a result of `pixels` pixels. The part
        `before` was done when its turn came."""
        with self._lock:
            if self._progress.of(record.id) is not None:
                version = self._store.next_version()
                self._progress.advance(record.id, part, pixels, before, version)
                self.on_changed([record.id], version)

    def give_back(self, record: JobRecord) -> None:
        """Makes a job under way wait again."""
        self._end(record, state="waiting")

    def remark(self, record: JobRecord, remarks: Remarks) -> None:
        """Notes what is known of a job before its end. A full disk costs nothing: the end notes it
        again."""
        with self._lock, suppress(sqlite3.Error):
            if self.is_wanted(record):
                self._put(replace(self.get(record.id), remarks=remarks))

    def finish(self, record: JobRecord, result: ResultInfo, remarks: Remarks) -> None:
        """Ends a job with its result."""
        self._progress.rated(record, result.seconds)
        self._end(record, state="done", result=result, remarks=remarks)

    def fail(self, record: JobRecord, error: str) -> None:
        """Ends a job with a sentence that says why there is no result."""
        self._end(record, state="failed", error=error)

    def wake(self) -> None:
        """Ends all waiting in `take`."""
        with self._lock:
            for arrived in self._arrived.values():
                arrived.notify_all()

    def measure(self, identity: str) -> None:
        """Measures the files of a job, if there is one. A size that a full disk cannot take is
        recorded the next time."""
        size = self._spool.size_of(identity)
        with self._lock, suppress(sqlite3.Error):
            record = self._store.get(identity)
            if record is not None and record.size != size:
                self._store.put(replace(record, size=size))

    def _end(self, record: JobRecord, **ended: Any) -> None:
        size = self._spool.size_of(record.id)
        with self._lock:
            if self.is_wanted(record):
                self._progress.end(record.id)
                self._put(replace(self.get(record.id), size=size, **ended))

    def _put(self, record: JobRecord) -> JobRecord:
        record = replace(record, version=self._store.next_version())
        self._store.put(record)
        self.on_changed([record.id], record.version)
        return record

    def _shown(self, record: JobRecord) -> dict[str, Any]:
        progress = self._progress.of(record.id)
        return jobs.shown(record, progress, self._store.position(record))
