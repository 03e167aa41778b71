"""Jobs in an SQLite file, which outlives the server."""

from __future__ import annotations

import json
import sqlite3
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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

_VERSION = 5
"""The version of the tables. Those in `_UPGRADES` are upgraded; files of others are put aside."""
_UPGRADES = {
    1: "ALTER TABLE jobs ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    2: "ALTER TABLE jobs ADD COLUMN remarks TEXT",
    3: "UPDATE jobs SET version = number",  # jobs that changed together had the same version
    4: "UPDATE jobs SET settings = json_set(settings, '$.film_model', settings ->> '$.model')",
}
"""The statement that makes each version the next one."""
_RESERVED = 1 << 20
"""Versions reserved in the file ahead: progress takes versions, but is not written."""
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
_KINDS: dict[str, Callable[..., Any]] = {
    "settings": JobSettings, "source": SourceInfo, "result": ResultInfo, "remarks": Remarks
}  # fmt: skip
"""Types of columns that hold JSON."""
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM jobs"
_PUT = (
    f"INSERT OR REPLACE INTO jobs ({', '.join(_COLUMNS)})"
    f" VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
)


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
            if version not in (0, *_UPGRADES, _VERSION):
                raise sqlite3.DatabaseError(f"of version {version}")
            (found,) = self._base.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            for before in range(version or _VERSION, _VERSION):
                self._base.execute(_UPGRADES[before])
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
        """Reads all jobs, so that damage shows now."""
        for row in self._base.execute(_SELECT):
            assert _record(row).state in STATES

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

    def put(self, *records: JobRecord) -> None:
        """Adds or replaces jobs: all or none."""
        self._change(_PUT, [_row(record) for record in records], records, records)

    def remove(self, *records: JobRecord) -> None:
        """Removes jobs: all or none."""
        self._change(
            "DELETE FROM jobs WHERE id = :id", [{"id": one.id} for one in records], records
        )

    def _change(
        self,
        statement: str,
        rows: Sequence[dict[str, Any]],
        records: Sequence[JobRecord],
        after: Sequence[JobRecord] = (),
    ) -> None:
        counted = "SELECT state, turn, size FROM jobs WHERE id = ?"
        with self._lock:
            before = [row for one in records for row in self._base.execute(counted, (one.id,))]
            self._base.execute("BEGIN IMMEDIATE")
            try:
                self._base.executemany(statement, rows)
                self._base.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._base.execute("ROLLBACK")
                raise
            for state, turn, size in before:
                self.counts[state] -= 1
                self.size -= size
                if state == "waiting":
                    self._waiting.remove(turn)
            for record in after:
                self.counts[record.state] += 1
                self.size += record.size
                if record.state == "waiting":
                    self._waiting.add(record.turn)

    # Reading.

    def get(self, identity: str) -> JobRecord | None:
        return next(iter(self.find([identity])), None)

    def find(
        self, ids: Collection[str] | None = None, states: Collection[State] = STATES
    ) -> list[JobRecord]:
        """Returns the jobs of these ids, or all, in one of these states, oldest first."""
        marks = f"state IN ({', '.join('?' * len(states))})"
        if ids is None:
            found = self._read(f"WHERE {marks}", *states)
        else:
            found = [
                record
                for identity in dict.fromkeys(ids)
                for record in self._read(f"WHERE id = ? AND {marks}", identity, *states)
            ]
        return sorted(found, key=lambda record: record.number)

    def first_waiting(self, *, films: bool) -> JobRecord | None:
        """Returns the next film, or the next job that is none."""
        rest = "WHERE state = 'waiting' AND (kind = 'film') = ? ORDER BY turn LIMIT 1"
        return next(iter(self._read(rest, films)), None)

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
            rows = self._base.execute(f"{_SELECT} {rest}", values).fetchall()
        return [_record(row) for row in rows]


def _row(record: JobRecord) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in _COLUMNS}
    for name in _KINDS:
        row[name] = None if row[name] is None else json.dumps(fields(row[name]))
    return row


def _record(values: Sequence[Any]) -> JobRecord:
    row = dict(zip(_COLUMNS, values, strict=True))
    for name, kind in _KINDS.items():
        row[name] = None if row[name] is None else kind(**json.loads(row[name]))
    return JobRecord(**row)
