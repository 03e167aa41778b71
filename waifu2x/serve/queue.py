"""The queue: clients and workers change jobs through it alone."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from waifu2x.serve import jobs
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import (
    FINISHED,
    STATES,
    JobRecord,
    Kind,
    Remarks,
    ResultInfo,
    SourceInfo,
    State,
)
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.progress import ProgressTable
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store

MOST_TOLD = 200
"""The most jobs in an answer to a client that asks for changes."""
_REMEMBERED = 1000
"""Removals that are remembered for clients that ask for changes."""
_RESTORE_SECONDS = 600.0
"""How long removed jobs can be restored."""
_UNDONE = 200
"""The most removals that can be undone."""


class QueueFullError(Exception):
    """The queue is full. The text is a sentence."""


class DiskFullError(Exception):
    """The disk is full. The text is a sentence."""


class UnknownJobError(Exception):
    """There is no such job. The text is a sentence."""


class WrongStateError(Exception):
    """The state of a job does not allow the change. The text is a sentence."""


class _Removal(NamedTuple):
    """Jobs that were removed together, and can be restored together."""

    until: float
    """When their files go, by `time.monotonic`."""
    records: dict[str, JobRecord]
    """By their ids."""


class Queue:
    """Holds the jobs of a server. Threads may share it."""

    def __init__(
        self,
        store: Store,
        spool: Spool,
        limits: ServiceLimits,
        clock: Callable[[], float] = time.monotonic,
        preparing: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Jobs that were under way when the server ended wait again. `clock` stands still while
        networks are compiled; `preparing` returns for how many seconds they have been, or None."""
        self._store = store
        self._spool = spool
        self._limits = limits
        self._lock = threading.RLock()
        self._arrived = {films: threading.Condition(self._lock) for films in (False, True)}
        """Notified of new jobs: by whether they are films."""
        self._progress = ProgressTable(clock)
        self._preparing = preparing
        self._gone: deque[tuple[int, list[str]]] = deque()
        """Versions of removals, and ids of their jobs."""
        self._known_from = store.version
        """The version since which all removals are in `_gone`."""
        self._removals: list[_Removal] = []
        """Those that can be undone, the oldest first."""
        self.on_cancelled: list[Callable[[str], None]] = []
        """Called with the ids of cancelled jobs that are under way."""
        every = store.find()
        spool.sweep(record.id for record in every)
        for record in every:
            if record.state == "working" or not record.size:
                self.measure(record.id)  # there may be parts of a film
            if record.state == "working":
                self._put(replace(self.get(record.id), state="waiting"))

    # For clients: reading.

    def changes(self, since: int, most: int = MOST_TOLD) -> dict[str, Any]:
        """Returns what has changed after the version `since`, as clients see it: at most `most`
        jobs, and those under way. With 0, or a version that is not known, it begins anew."""
        with self._lock:
            version = self._store.version
            begins = not (since and self._known_from <= since <= version)
            removed = [
                identity
                for number, ids in self._gone
                if not begins and number > since
                for identity in ids
            ]
            restorable = len(self._removals[-1].records) if self._removals else 0
        records = self._store.changed_since(0 if begins else since, most + 1)
        is_part = len(records) > most
        if is_part:
            records = records[:most]
            version = records[-1].version
        known = {record.id for record in records}
        records += self._store.find(set(self._progress.ids()) - known)
        counts = {str(state): count for state, count in self._store.counts.items()}
        return {
            "version": version,
            "begins": begins,
            "more": is_part,
            "jobs": [self._shown(record) for record in records],
            "removed": removed,
            "counts": counts,
            "total": sum(counts.values()),
            "restorable": restorable,
        }

    def shown(self, identity: str) -> dict[str, Any]:
        """Returns a job as clients see it. Raises UnknownJobError."""
        return self._shown(self.get(identity))

    def rate(self, model: str) -> float | None:
        """Returns output megapixels a second of a model's latest job; None before its first."""
        return self._progress.rate(model)

    def find(self, identity: str) -> JobRecord | None:
        """Returns a job; None if there is none."""
        return self._store.get(identity)

    def get(self, identity: str) -> JobRecord:
        """Returns a job. Raises UnknownJobError."""
        record = self._store.get(identity)
        if record is None:
            raise UnknownJobError("There is no such job: it was removed, or never there.")
        return record

    def done(self) -> list[JobRecord]:
        """Returns all jobs with results, oldest first."""
        states: tuple[State, ...] = ("done",)
        return self._store.find(states=states)

    # For clients: changes.

    def make_room(self, size: int) -> None:
        """Makes room for a job with a file of `size` bytes: removes the oldest finished jobs.
        Raises QueueFullError, DiskFullError."""
        with self._lock:
            removed = sum(one.size for each in self._removals for one in each.records.values())
            is_short = self._store.size + removed + size > self._limits.max_kept
        self._tidy(everything=is_short or not self._spool.has_space(size))
        with self._lock:
            while (
                self._total >= self._limits.max_queue
                or self._store.size + size > self._limits.max_kept
            ):
                oldest = self._store.oldest(FINISHED)
                if oldest is None:
                    raise QueueFullError(
                        f"The queue is full ({self._total} jobs): wait until some are done."
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
            self._put(record)
            self._arrived[kind == "film"].notify()
            return self.shown(identity)

    def cancel(self, identity: str) -> dict[str, Any]:
        """Cancels a job and returns it as clients see it. Raises UnknownJobError."""
        with self._lock:
            self.get(identity)
            self.cancel_all([identity])
            return self.shown(identity)

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
            return self.shown(identity)

    def remove(self, identity: str) -> None:
        """Removes a job and its files for good; cancels it first if need be. Raises
        UnknownJobError."""
        with self._lock:
            record = self.get(identity)
            self._remove([record], keep=False)

    def cancel_all(self, ids: Sequence[str] | None) -> int:
        """Cancels these jobs, or all, except finished ones; returns how many."""
        with self._lock:
            chosen = self._store.find(ids, ("waiting", "working"))
            self._put(*(replace(record, state="cancelled") for record in chosen))
            self._stop_work_on(chosen)
        return len(chosen)

    def retry_all(
        self, ids: Sequence[str] | None, settings: Callable[[JobSettings], JobSettings | None]
    ) -> int:
        """Makes these jobs wait again if they are finished, last in the queue; returns how many.

        None is for all failed and cancelled ones. Jobs with unreadable files, and jobs for whose
        settings `settings` returns None, stay.
        """
        with self._lock:
            states: tuple[State, ...] = ("failed", "cancelled") if ids is None else FINISHED
            again: list[JobRecord] = []
            known: dict[JobSettings, JobSettings | None] = {}
            for record in self._store.find(ids, states):
                if record.source is None:
                    continue
                if record.settings not in known:
                    known[record.settings] = settings(record.settings)
                if (found := known[record.settings]) is not None:
                    again.append(self._waiting_again(replace(record, settings=found)))
            self._put(*again)
            self.wake()
        return len(again)

    def _waiting_again(self, record: JobRecord) -> JobRecord:
        return replace(
            record,
            state="waiting",
            turn=self._store.next_turn(),
            attempt=record.attempt + 1,
            result=None,
            error=None,
            remarks=None,
        )

    def remove_all(self, ids: Sequence[str] | None) -> int:
        """Removes these jobs, or all finished ones; returns how many. Jobs under way are cancelled
        first. Their files stay for a while, unless room is needed: `restore_all` undoes it."""
        with self._lock:
            chosen = self._store.find(ids, FINISHED if ids is None else STATES)
            if chosen:
                self._remove(chosen, keep=True)
        return len(chosen)

    def restore_all(self, ids: Sequence[str] | None) -> int:
        """Restores these removed jobs, or those that were removed last, together; returns how many.
        Unfinished ones wait again. Raises QueueFullError."""
        with self._lock:
            last = self._removals[-1].records if self._removals else {}
            there = [
                (removal.records, identity)
                for identity in dict.fromkeys(last if ids is None else ids)
                for removal in self._removals
                if identity in removal.records
            ]
            if self._total + len(there) > self._limits.max_queue:
                raise QueueFullError("The queue is full: remove other jobs first.")
            back = [records[identity] for records, identity in there]
            self._put(*(one if one.state in FINISHED else self._waiting_again(one) for one in back))
            for records, identity in there:
                del records[identity]
            self._removals = [removal for removal in self._removals if removal.records]
            self.wake()
        return len(back)

    def is_gone(self, identity: str) -> bool:
        """Returns whether there is no such job, not even a removed one that can be restored."""
        with self._lock:
            is_kept = any(identity in removal.records for removal in self._removals)
            return not is_kept and self._store.get(identity) is None

    def _remove(self, chosen: Sequence[JobRecord], *, keep: bool) -> None:
        """Removes jobs, whose files may stay for a while. Call it with the lock held."""
        try:
            self._store.remove(*chosen)
        except sqlite3.OperationalError:
            # The disk is full: removing the files makes room for the change itself.
            keep = False
            self._remove_files(record for record in chosen if record.state in FINISHED)
            self._store.remove(*chosen)
        by_id = {record.id: record for record in chosen}
        self._gone.append((self._store.next_version(), list(by_id)))
        while len(self._gone) > _REMEMBERED:
            self._known_from, _ = self._gone.popleft()
        self._stop_work_on(chosen)
        if keep:
            self._removals.append(_Removal(time.monotonic() + _RESTORE_SECONDS, by_id))
        else:
            self._remove_files(chosen)

    def _tidy(self, *, everything: bool = False) -> None:
        """Removes the files of removed jobs whose time is over, or of all."""
        with self._lock:
            now = time.monotonic()
            stay = [one for one in self._removals if now < one.until and not everything]
            stay = stay[-_UNDONE:]
            over = self._removals[: len(self._removals) - len(stay)]
            self._removals = stay
        for removal in over:
            self._remove_files(removal.records.values())

    def _stop_work_on(self, chosen: Iterable[JobRecord]) -> None:
        for record in chosen:
            if record.state == "working":
                self._progress.end(record.id)
                for tell in self.on_cancelled:
                    tell(record.id)

    def _remove_files(self, chosen: Iterable[JobRecord]) -> None:
        for record in chosen:
            self._spool.remove(record.id)

    @property
    def _total(self) -> int:
        return sum(self._store.counts.values())

    # For workers.

    def take(self, seconds: float, *, films: bool = False) -> JobRecord | None:
        """Returns the next job and marks it as under way; None if none comes within `seconds`.
        Films have a separate queue."""
        self._tidy()
        with self._lock:
            record = self._store.first_waiting(films=films)
            if record is None:
                self._arrived[films].wait(seconds)
                record = self._store.first_waiting(films=films)
            if record is None:
                return None
            self._put(replace(record, state="working"))
            self._progress.begin(record.id)
            return self.get(record.id)

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

    def seconds(self, record: JobRecord) -> float:
        """Returns how many seconds a job under way has taken, without compiling."""
        return self._progress.seconds(record.id)

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

    def _put(self, *records: JobRecord) -> None:
        self._store.put(
            *(replace(record, version=self._store.next_version()) for record in records)
        )

    def _shown(self, record: JobRecord) -> dict[str, Any]:
        progress = self._progress.of(record.id)
        preparing = self._preparing() if progress and not progress.part else None
        return jobs.shown(record, progress, self._store.position(record), preparing)
