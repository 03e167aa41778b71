"""Jobs in an SQLite file, which outlives the server."""

from __future__ import annotations

import json
import sqlite3
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import (
    STATES,
    JobRecord,
    Remarks,
    ResultInfo,
    SourceInfo,
    State,
    fields,
)

_VERSION = 3
"""The version of the tables. Versions in `_ADDED` are upgraded; files of others are put aside."""
_ADDED = {1: "size INTEGER NOT NULL DEFAULT 0", 2: "remarks TEXT"}
"""The column that each version lacks, of those that the next one has."""
_RESERVED = 1 << 20
"""Versions reserved in the file ahead: progress takes versions, but is not written."""
_READ = 500
"""Jobs read in one go, and the most ids in one statement."""
_TABLES = f"""
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, turn INTEGER NOT NULL, version INTEGER NOT NULL,
    kind TEXT NOT NULL, state TEXT NOT NULL, name TEXT NOT NULL, settings TEXT NOT NULL,
    created REAL NOT NULL, attempt INTEGER NOT NULL, source TEXT, result TEXT, error TEXT,
    size INTEGER NOT NULL DEFAULT 0, remarks TEXT
);
CREATE INDEX IF NOT EXISTS by_number ON jobs (number);
CREATE INDEX IF NOT EXISTS by_turn ON jobs (state, turn);
CREATE INDEX IF NOT EXISTS by_kind ON jobs (state, (kind = 'film'), turn);
CREATE INDEX IF NOT EXISTS by_version ON jobs (version);
CREATE TABLE IF NOT EXISTS reserved (versions INTEGER NOT NULL);
PRAGMA user_version = {_VERSION};
"""
_COLUMNS = (
    "id", "number", "turn", "version", "kind", "state", "name", "settings", "created", "attempt",
    "source", "result", "error", "size", "remarks",
)  # fmt: skip


class ChosenJob(NamedTuple):
    """The fields of a job that changes of many jobs need."""

    number: int
    id: str
    turn: int
    state: State
    size: int
    settings: str
    """As text, as in the file."""


class _Positions:
    """A sorted set of 64-bit integers: the queue numbers of waiting jobs, so that no request has to
    count rows of the database."""

    def __init__(self, ascending: Iterable[int] = ()) -> None:
        self._ascending = array("q", ascending)

    def add(self, turn: int) -> None:
        self._ascending.insert(bisect_left(self._ascending, turn), turn)

    def remove(self, turn: int) -> None:
        del self._ascending[bisect_left(self._ascending, turn)]

    def place(self, turn: int) -> int:
        """Returns the place of a number among all: 1 for the smallest."""
        return bisect_left(self._ascending, turn) + 1


class Store:
    """Stores jobs. Threads may share it; a change is in the file when its method returns."""

    def __init__(self, path: Path, on_damage: Callable[[str], None]) -> None:
        """Opens or makes the file. A damaged file is put aside, and `on_damage` gets a sentence
        about it. Raises OSError, sqlite3.Error if no file can be made."""
        self._lock = threading.RLock()
        self._path = path
        try:
            self._open()
        except sqlite3.OperationalError:
            raise  # the disk is full, say; the file is sound
        except sqlite3.DatabaseError as error:
            aside = path.with_suffix(".damaged")
            self._put_aside(aside)
            on_damage(f"{path}: damaged ({error}): put aside as {aside.name}, the queue is empty")
            self._open()

    def _open(self) -> None:
        self._base = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            # Exclusive, so that no file is shared: this works on network drives, too.
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            (version,) = self._base.execute("PRAGMA user_version").fetchone()
            if version not in (0, *_ADDED, _VERSION):
                raise sqlite3.DatabaseError(f"of version {version}")
            (found,) = self._base.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            for before in range(version or _VERSION, _VERSION):
                self._base.execute(f"ALTER TABLE jobs ADD COLUMN {_ADDED[before]}")
            self._base.executescript(_TABLES)
            row = self._base.execute("SELECT versions FROM reserved").fetchone()
            if row is None:
                self._base.execute("INSERT INTO reserved VALUES (0)")
            self.version: int = row[0] if row else 0
            """The version of the latest change."""
            self._until = self.version
            row = self._base.execute(
                "SELECT COALESCE(MAX(number), 0), COALESCE(MAX(turn), 0), COALESCE(SUM(size), 0)"
                " FROM jobs"
            ).fetchone()
            self._number, self._turn = int(row[0]), int(row[1])
            self.size = int(row[2])
            """Bytes of all jobs' files on the disk."""
            self.next_version()
            self.counts: dict[State, int] = dict.fromkeys(STATES, 0)
            """The number of jobs in each state."""
            self.counts |= dict(
                self._base.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state")
            )
            turns = self._base.execute(
                "SELECT turn FROM jobs WHERE state = 'waiting' ORDER BY turn"
            )
            self._waiting = _Positions(turn for (turn,) in turns)
            self._check()
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            self._base.close()
            raise sqlite3.DatabaseError(f"{error}") from error
        except BaseException:
            self._base.close()
            raise

    def _check(self) -> None:
        """Reads all jobs, in parts, so that damage shows now."""
        start = 0
        while records := self.listed(start, _READ):
            assert all(record.state in STATES for record in records)
            start += len(records)

    def _put_aside(self, aside: Path) -> None:
        for suffix in ("-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()
        self._path.replace(aside)

    def close(self) -> None:
        with self._lock:
            self._base.close()

    def next_version(self) -> int:
        """Returns the next version: larger than all before, over restarts too."""
        with self._lock:
            self.version += 1
            if self.version > self._until:
                self._until = self.version + _RESERVED
                self._base.execute("UPDATE reserved SET versions = ?", (self._until,))
            return self.version

    def next_number(self) -> int:
        """Returns the place in the list for the next job."""
        with self._lock:
            self._number += 1
            return self._number

    def next_turn(self) -> int:
        """Returns the last place in the queue."""
        with self._lock:
            self._turn += 1
            return self._turn

    def put(self, record: JobRecord) -> None:
        """Adds or replaces a job."""
        row = {name: getattr(record, name) for name in _COLUMNS}
        for name in ("settings", "source", "result", "remarks"):
            row[name] = None if row[name] is None else _text(row[name])
        with self._lock:
            before = self._base.execute(
                "SELECT state, turn, size FROM jobs WHERE id = ?", (record.id,)
            ).fetchone()
            marks = ", ".join(f":{name}" for name in _COLUMNS)
            self._base.execute(
                f"INSERT OR REPLACE INTO jobs ({', '.join(_COLUMNS)}) VALUES ({marks})", row
            )
            if before is not None:
                self._count_out(*before)
            self._count_in(record.state, record.turn, record.size)

    def _count_in(self, state: State, turn: int, size: int) -> None:
        self.counts[state] += 1
        self.size += size
        if state == "waiting":
            self._waiting.add(turn)

    def _count_out(self, state: State, turn: int, size: int) -> None:
        self.counts[state] -= 1
        self.size -= size
        if state == "waiting":
            self._waiting.remove(turn)

    # Changes of many jobs: one transaction each, so that all change or none.

    def chosen(
        self, ids: Collection[str] | None, states: Collection[State], *, readable: bool = False
    ) -> list[ChosenJob]:
        """Returns the jobs of these ids, or all, in one of these states, oldest first. With
        `readable`, only those whose file could be read."""
        rest = f"state IN ({_marks(states)})" + (" AND source IS NOT NULL" if readable else "")
        select = f"SELECT {', '.join(ChosenJob._fields)} FROM jobs WHERE {rest}"
        with self._lock:
            if ids is None:
                rows = self._base.execute(select, tuple(states)).fetchall()
            else:
                rows = [
                    row
                    for some in _in_parts(dict.fromkeys(ids))
                    for row in self._base.execute(
                        f"{select} AND id IN ({_marks(some)})", (*states, *some)
                    )
                ]
        return [ChosenJob(*row) for row in sorted(rows)]

    def cancel_all(self, chosen: Sequence[ChosenJob]) -> None:
        """Sets the state of jobs to `cancelled`."""
        with self._lock:
            with self._together():
                version = self.next_version()
                for some in _in_parts(job.id for job in chosen):
                    self._base.execute(
                        "UPDATE jobs SET state = 'cancelled', version = ?"
                        f" WHERE id IN ({_marks(some)})",
                        (version, *some),
                    )
            for job in chosen:
                self._count_out(job.state, job.turn, job.size)
                self._count_in("cancelled", job.turn, job.size)

    def remove_all(self, chosen: Sequence[ChosenJob]) -> None:
        """Removes jobs."""
        with self._lock:
            with self._together():
                for some in _in_parts(job.id for job in chosen):
                    self._base.execute(f"DELETE FROM jobs WHERE id IN ({_marks(some)})", some)
            for job in chosen:
                self._count_out(job.state, job.turn, job.size)

    def retry_all(self, chosen: Mapping[ChosenJob, JobSettings]) -> None:
        """Makes finished jobs wait again, last in the queue, each with its new settings."""
        with self._lock:
            turns = {job: self.next_turn() for job in chosen}
            with self._together():
                version = self.next_version()
                self._base.executemany(
                    "UPDATE jobs SET state = 'waiting', settings = ?, turn = ?, version = ?,"
                    " attempt = attempt + 1, result = NULL, error = NULL, remarks = NULL"
                    " WHERE id = ?",
                    (
                        (_text(settings), turns[job], version, job.id)
                        for job, settings in chosen.items()
                    ),
                )
            for job, turn in turns.items():
                self._count_out(job.state, job.turn, job.size)
                self._count_in("waiting", turn, job.size)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Runs the block as one transaction. Call it with the lock held."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")
            self._until = self.version  # the reservation may be undone, too
            raise

    # Reading.

    def get(self, identity: str) -> JobRecord | None:
        found = self._read("WHERE id = ?", identity)
        return found[0] if found else None

    def of_ids(self, ids: Collection[str]) -> list[JobRecord]:
        """Returns these jobs, as far as they exist, oldest first."""
        found = [
            record
            for some in _in_parts(ids)
            for record in self._read(f"WHERE id IN ({_marks(some)})", *some)
        ]
        return sorted(found, key=lambda record: record.number)

    def ids(self, *states: State) -> list[str]:
        """Returns the ids of all jobs in these states, oldest first."""
        with self._lock:
            rows = self._base.execute(
                f"SELECT id FROM jobs WHERE state IN ({_marks(states)}) ORDER BY number", states
            ).fetchall()
        return [identity for (identity,) in rows]

    def unmeasured(self) -> list[str]:
        """Returns the ids of jobs of unknown size."""
        with self._lock:
            rows = self._base.execute("SELECT id FROM jobs WHERE size = 0").fetchall()
        return [identity for (identity,) in rows]

    @property
    def total(self) -> int:
        """Returns the number of jobs."""
        with self._lock:
            return sum(self.counts.values())

    def listed(self, start: int, count: int) -> list[JobRecord]:
        """Returns `count` jobs from `start` on, in the order in which they came."""
        return self._read("ORDER BY number LIMIT ? OFFSET ?", count, start)

    def first_waiting(self, *, films: bool) -> JobRecord | None:
        """Returns the next film, or the next job that is none."""
        found = self._read(
            "WHERE state = 'waiting' AND (kind = 'film') = ? ORDER BY turn LIMIT 1", films
        )
        return found[0] if found else None

    def oldest(self, states: Sequence[State]) -> JobRecord | None:
        """Returns the job in one of these states with the least turn."""
        firsts = [
            record
            for state in states
            for record in self._read("WHERE state = ? ORDER BY turn LIMIT 1", state)
        ]
        return min(firsts, key=lambda record: record.turn, default=None)

    def changed_since(self, version: int, most: int) -> list[JobRecord]:
        """Returns at most `most` jobs that changed after a version, in that order."""
        return self._read("WHERE version > ? ORDER BY version LIMIT ?", version, most)

    def position(self, record: JobRecord) -> int | None:
        """Returns the place of a waiting job in the queue, 1 for the next; None for others."""
        if record.state != "waiting":
            return None
        with self._lock:
            return self._waiting.place(record.turn)

    def _read(self, rest: str, *values: Any) -> list[JobRecord]:
        with self._lock:
            rows = self._base.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM jobs {rest}", values
            ).fetchall()
        return [_record(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _record(row: dict[str, Any]) -> JobRecord:
    row["settings"] = settings_of(row["settings"])
    for name, kind in (("source", SourceInfo), ("result", ResultInfo), ("remarks", Remarks)):
        row[name] = None if row[name] is None else kind(**json.loads(row[name]))
    return JobRecord(**row)


def settings_of(text: str) -> JobSettings:
    """Parses the text of `ChosenJob.settings`."""
    return JobSettings(**json.loads(text))


def _text(value: SourceInfo | ResultInfo | Remarks | JobSettings) -> str:
    return json.dumps(fields(value))


def _marks(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))


def _in_parts(ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    every = iter(ids)
    while some := tuple(islice(every, _READ)):
        yield some
