"""The queue: every change of a job, by clients and by whoever works on it, goes through here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from waifu2x.serve import jobs
from waifu2x.serve.jobs import FINISHED, JobRecord, Kind, Progress, ResultInfo, SourceInfo
from waifu2x.serve.limits import ServiceLimits
from waifu2x.serve.request import JobSettings
from waifu2x.serve.spool import Spool
from waifu2x.serve.store import Store


class QueueFullError(Exception):
    """There is no room for another job. Its text is a sentence."""


class DiskFullError(Exception):
    """There is no room on the disk. Its text is a sentence."""


class UnknownJobError(Exception):
    """There is no such job, or none any more. Its text is a sentence."""


class WrongStateError(Exception):
    """A job is not in a state in which that can be done. Its text is a sentence."""


class Queue:
    """The jobs of a server. Threads may share it."""

    def __init__(self, store: Store, spool: Spool, limits: ServiceLimits) -> None:
        """What was being worked on when the server ended waits again."""
        self._store = store
        self._spool = spool
        self._limits = limits
        self._lock = threading.RLock()
        self._arrived = {films: threading.Condition(self._lock) for films in (False, True)}
        """Told of jobs that wait: of films, and of all others."""
        self._progress: dict[str, tuple[Progress, float, int]] = {}
        """How far the jobs under way are, with when they were begun, and pixels of the result."""
        self._sizes: dict[str, int] = {}
        """Bytes on the disk of each job."""
        self._rates: dict[str, float | None] = {}
        """The latest rate of each model, in output megapixels a second; None after its first job,
        which has compiled it."""
        self.on_changed: Callable[[str], None] = lambda identity: None
        self.on_removed: Callable[[str, int], None] = lambda identity, version: None
        self.on_cancelled: list[Callable[[str], None]] = []
        """Told of jobs under way that nobody wants any more."""
        for record in store.in_state("working"):
            self._put(replace(record, state="waiting"))
        start, identities = 0, list[str]()
        while found := store.listed(start, 500):
            identities += [record.id for record in found]
            start += len(found)
        spool.sweep(identities)
        self._sizes = {identity: spool.size_of(identity) for identity in identities}

    # What clients see.

    @property
    def version(self) -> int:
        """The version of the latest change."""
        return self._store.version

    def shown(self, identity: str) -> dict[str, Any] | None:
        """A job as clients see it; None if there is none."""
        record = self._store.get(identity)
        return None if record is None else self._shown(record)

    def listed(self, start: int, count: int) -> list[dict[str, Any]]:
        """Jobs in the order in which they came."""
        records = self._store.listed(start, count)
        positions = self._store.positions(records)
        return [self._shown(record, positions) for record in records]

    def changed_since(self, version: int, most: int) -> list[dict[str, Any]]:
        """Jobs that were changed after a version: `most` of them at most."""
        with self._lock:
            under_way = list(self._progress)
        records = {each.id: each for each in self._store.changed_since(version, most)}
        for identity in under_way:
            record = self._store.get(identity)
            if record is not None:
                records[identity] = record
        return [self._shown(record) for record in records.values()]

    def shown_counts(self) -> dict[str, int]:
        """How many jobs there are in each state, and in all."""
        counts = {str(state): count for state, count in self._store.counts.items()}
        return {**counts, "total": sum(counts.values())}

    def rate(self, model: str) -> float | None:
        """Output megapixels a second of a model's latest pictures here; None before its second
        job."""
        return self._rates.get(model)

    def get(self, identity: str) -> JobRecord:
        """A job. Raises UnknownJobError."""
        record = self._store.get(identity)
        if record is None:
            raise UnknownJobError("There is no such job: it was removed, or never there.")
        return record

    def done(self) -> list[str]:
        """The ids of all jobs whose results are there, oldest first."""
        return [record.id for record in self._store.in_state("done")]

    # What clients do.

    def make_room(self, size: int) -> None:
        """Makes room for a job with a file of so many bytes: finished ones go, the oldest first.

        Raises QueueFullError, DiskFullError.
        """
        with self._lock:
            while (
                self._store.total >= self._limits.max_queue
                or sum(self._sizes.values()) + size > self._limits.max_kept
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
        """Adds a job whose files are in its folder; as clients see it. With an error, it has failed
        already. Raises QueueFullError."""
        with self._lock:
            self.make_room(0)
            self._sizes[identity] = self._spool.size_of(identity)
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
            )
            record = self._put(record)
            self._arrived[kind == "film"].notify()
            return self._shown(record)

    def cancel(self, identity: str) -> dict[str, Any]:
        """Ends a job that is not finished. Raises UnknownJobError."""
        with self._lock:
            record = self.get(identity)
            if record.state in ("waiting", "working"):
                self._end(record, replace(record, state="cancelled"))
                if record.state == "working":
                    self._tell_cancelled(identity)
            return self._shown(self.get(identity))

    def retry(self, identity: str, settings: JobSettings) -> dict[str, Any]:
        """Makes a finished job wait again, for what the settings say.

        Raises UnknownJobError, WrongStateError.
        """
        with self._lock:
            record = self.get(identity)
            if record.state not in FINISHED:
                raise WrongStateError("This job is not finished: cancel it first.")
            if record.source is None:
                raise WrongStateError("This file cannot be read, and so not be tried again.")
            again = replace(
                record,
                state="waiting",
                settings=settings,
                attempt=record.attempt + 1,
                turn=self._store.next_turn(),
                result=None,
                error=None,
            )
            again = self._put(again)
            self._arrived[again.kind == "film"].notify()
            return self._shown(again)

    def remove(self, identity: str) -> None:
        """Forgets a job and its files; cancels it first if need be. Raises UnknownJobError."""
        with self._lock:
            record = self.get(identity)
            if record.state in FINISHED:
                self._spool.remove(identity)  # on a full disk, that must come first
            self._progress.pop(identity, None)
            self._sizes.pop(identity, None)
            self._store.remove(record)
            version = self._store.next_version()
            if record.state == "working":
                self._tell_cancelled(identity)
        self._spool.remove(identity)
        self.on_removed(identity, version)

    # What whoever works on jobs does.

    def take(self, seconds: float, *, films: bool = False) -> JobRecord | None:
        """The job whose turn it is, which is under way from now on; None if none comes so soon.

        Films and all else have turns of their own.
        """
        with self._lock:
            record = self._store.first_waiting(films=films)
            if record is None:
                self._arrived[films].wait(seconds)
                record = self._store.first_waiting(films=films)
            if record is None:
                return None
            record = self._put(replace(record, state="working"))
            self._progress[record.id] = (
                Progress(0.0, None, None, record.version),
                time.monotonic(),
                0,
            )
            return record

    def is_wanted(self, record: JobRecord) -> bool:
        """Whether a job is still under way that was taken as `record`."""
        now = self._store.get(record.id)
        return now is not None and now.state == "working" and now.attempt == record.attempt

    def advance(self, record: JobRecord, part: float, pixels: int, before: float = 0.0) -> None:
        """Tells how far a job is: `part` in all, of a result of so many pixels, of which the part
        `before` was there when its turn came."""
        with self._lock:
            if record.id not in self._progress:
                return
            _, begun, _ = self._progress[record.id]
            part = min(max(part, 0.0), 1.0)
            seconds = time.monotonic() - begun
            rate = left = None
            made = part - before
            if made > 0.0 and seconds > 0.0:
                left = round(seconds * (1 - part) / made, 2)
                rate = round(made * pixels / seconds / 1e6, 3) if pixels else None
            told = Progress(part, rate, left, self._store.next_version())
            self._progress[record.id] = told, begun, pixels
        self.on_changed(record.id)

    def give_back(self, record: JobRecord) -> None:
        """Makes a job wait again that nothing was made of."""
        self._end_of(record, lambda now: replace(now, state="waiting"))

    def finish(self, record: JobRecord, result: ResultInfo) -> None:
        """Ends a job with what was made."""
        with self._lock:
            self._sizes[record.id] = self._spool.size_of(record.id)
            pixels = self._progress.get(record.id, (None, 0.0, 0))[2]
            if pixels and result.seconds > 0 and record.kind != "film":
                model = record.settings.model
                is_first = model not in self._rates
                rate = round(pixels / result.seconds / 1e6, 3)
                self._rates[model] = None if is_first else rate
            self._end_of(record, lambda now: replace(now, state="done", result=result))

    def fail(self, record: JobRecord, error: str) -> None:
        """Ends a job with a sentence that says why there is no result."""
        self._end_of(record, lambda now: replace(now, state="failed", error=error))

    def wake(self) -> None:
        """Ends the waiting of `take`."""
        with self._lock:
            for arrived in self._arrived.values():
                arrived.notify_all()

    def _tell_cancelled(self, identity: str) -> None:
        for tell in self.on_cancelled:
            tell(identity)

    def _end_of(self, record: JobRecord, ended: Callable[[JobRecord], JobRecord]) -> None:
        with self._lock:
            if self.is_wanted(record):
                now = self.get(record.id)
                self._end(now, ended(now))

    def _end(self, before: JobRecord, ended: JobRecord) -> None:
        self._progress.pop(before.id, None)
        self._put(ended)

    def _put(self, record: JobRecord) -> JobRecord:
        record = replace(record, version=self._store.next_version())
        self._store.put(record)
        self.on_changed(record.id)
        return record

    def _shown(
        self, record: JobRecord, positions: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        with self._lock:
            progress = self._progress.get(record.id)
        positions = self._store.positions([record]) if positions is None else positions
        return jobs.shown(record, progress[0] if progress else None, positions.get(record.id))
