"""Jobs in one small SQLite file, which outlives the server."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from waifu2x.serve.jobs import STATES, JobRecord, ResultInfo, SourceInfo, State, fields
from waifu2x.serve.request import JobSettings

_VERSION = 1
"""The version of the tables: a file of another one is put aside."""
_RESERVED = 1 << 20
"""Versions that are counted before the file is told: progress is not written down."""
_READ = 500
"""Jobs that are read at a time."""
_TABLES = f"""
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, turn INTEGER NOT NULL, version INTEGER NOT NULL,
    kind TEXT NOT NULL, state TEXT NOT NULL, name TEXT NOT NULL, settings TEXT NOT NULL,
    created REAL NOT NULL, attempt INTEGER NOT NULL, source TEXT, result TEXT, error TEXT
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
    "source", "result", "error",
)  # fmt: skip


class Store:
    """The jobs. Threads may share it; every change is there when its method returns."""

    def __init__(self, path: Path, on_damage: Callable[[str], None]) -> None:
        """Opens or makes the file. One that is damaged is put aside, and `on_damage` is told so in
        a sentence. Raises OSError, sqlite3.Error where none can be made."""
        self._lock = threading.RLock()
        self._path = path
        try:
            self._open()
        except sqlite3.OperationalError:
            raise  # the disk is full, say: what is in the file is sound
        except sqlite3.DatabaseError as error:
            aside = path.with_suffix(".damaged")
            self._put_aside(aside)
            on_damage(f"{path}: damaged ({error}): put aside as {aside.name}, the queue is empty")
            self._open()

    def _open(self) -> None:
        self._base = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            # Alone, so that no file is shared with others: that works on network drives, too.
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            (version,) = self._base.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"of version {version}")
            (found,) = self._base.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            self._base.executescript(_TABLES)
            row = self._base.execute("SELECT versions FROM reserved").fetchone()
            if row is None:
                self._base.execute("INSERT INTO reserved VALUES (0)")
            self.version: int = row[0] if row else 0
            """The version of the latest change."""
            self._until = self.version
            row = self._base.execute(
                "SELECT COALESCE(MAX(number), 0), COALESCE(MAX(turn), 0) FROM jobs"
            ).fetchone()
            self._number, self._turn = int(row[0]), int(row[1])
            self.next_version()
            self.counts: dict[State, int] = dict.fromkeys(STATES, 0)
            """How many jobs there are in each state."""
            self.counts |= dict(
                self._base.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state")
            )
            self._check()
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            self._base.close()
            raise sqlite3.DatabaseError(f"{error}") from error
        except BaseException:
            self._base.close()
            raise

    def _check(self) -> None:
        """Reads all jobs, a few at a time: whatever else is wrong shows now."""
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
        """Closes the file."""
        with self._lock:
            self._base.close()

    def next_version(self) -> int:
        """The version of the next change; each is larger than all before, over restarts, too."""
        with self._lock:
            self.version += 1
            if self.version > self._until:
                self._until = self.version + _RESERVED
                self._base.execute("UPDATE reserved SET versions = ?", (self._until,))
            return self.version

    def next_number(self) -> int:
        """The place in the list of the next job."""
        with self._lock:
            self._number += 1
            return self._number

    def next_turn(self) -> int:
        """The place in the queue of whoever comes last."""
        with self._lock:
            self._turn += 1
            return self._turn

    def put(self, record: JobRecord) -> None:
        """Adds a job, or writes it anew."""
        row = {name: getattr(record, name) for name in _COLUMNS}
        for name in ("settings", "source", "result"):
            row[name] = None if row[name] is None else json.dumps(fields(row[name]))
        with self._lock:
            before = self._base.execute(
                "SELECT state FROM jobs WHERE id = ?", (record.id,)
            ).fetchone()
            marks = ", ".join(f":{name}" for name in _COLUMNS)
            self._base.execute(
                f"INSERT OR REPLACE INTO jobs ({', '.join(_COLUMNS)}) VALUES ({marks})", row
            )
            if before is not None:
                self.counts[before[0]] -= 1
            self.counts[record.state] += 1

    def remove(self, record: JobRecord) -> None:
        """Forgets a job."""
        with self._lock:
            self._base.execute("DELETE FROM jobs WHERE id = ?", (record.id,))
            self.counts[record.state] -= 1

    def get(self, identity: str) -> JobRecord | None:
        """The job of that id."""
        found = self._read("WHERE id = ?", identity)
        return found[0] if found else None

    @property
    def total(self) -> int:
        """How many jobs there are."""
        with self._lock:
            return sum(self.counts.values())

    def listed(self, start: int, count: int) -> list[JobRecord]:
        """Jobs in the order in which they came."""
        return self._read("ORDER BY number LIMIT ? OFFSET ?", count, start)

    def first_waiting(self, *, films: bool) -> JobRecord | None:
        """The film whose turn it is, or whatever else."""
        found = self._read(
            "WHERE state = 'waiting' AND (kind = 'film') = ? ORDER BY turn LIMIT 1", films
        )
        return found[0] if found else None

    def in_state(self, *states: State) -> list[JobRecord]:
        """All jobs in these states, oldest first."""
        marks = ", ".join("?" * len(states))
        return self._read(f"WHERE state IN ({marks}) ORDER BY number", *states)

    def oldest(self, states: Sequence[State]) -> JobRecord | None:
        """The oldest job in one of these states."""
        marks = ", ".join("?" * len(states))
        found = self._read(f"WHERE state IN ({marks}) ORDER BY number LIMIT 1", *states)
        return found[0] if found else None

    def changed_since(self, version: int, most: int) -> list[JobRecord]:
        """Jobs that were changed after a version, in that order: `most` of them at most."""
        return self._read("WHERE version > ? ORDER BY version LIMIT ?", version, most)

    def positions(self, records: Sequence[JobRecord]) -> dict[str, int]:
        """How many turns it takes until those of them that wait, by their ids: 1 for the next."""
        waiting = [record for record in records if record.state == "waiting"]
        if not waiting:
            return {}
        last = max(record.turn for record in waiting)
        with self._lock:
            turns = self._base.execute(
                "SELECT turn FROM jobs WHERE state = 'waiting' AND turn <= ? ORDER BY turn", (last,)
            ).fetchall()
        places = {turn: place for place, (turn,) in enumerate(turns, 1)}
        return {record.id: places[record.turn] for record in waiting if record.turn in places}

    def _read(self, rest: str, *values: Any) -> list[JobRecord]:
        with self._lock:
            rows = self._base.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM jobs {rest}", values
            ).fetchall()
        return [_record(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _record(row: dict[str, Any]) -> JobRecord:
    row["settings"] = JobSettings(**json.loads(row["settings"]))
    for name, kind in (("source", SourceInfo), ("result", ResultInfo)):
        row[name] = None if row[name] is None else kind(**json.loads(row[name]))
    return JobRecord(**row)
