"""The folder of a film's parts: their records, from which a killed run goes on, the settings that
they were begun with, and a lock, since one process alone has them made."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from waifu2x.errors import ImageError, OutputError, Sentence
from waifu2x.flows.batch.subset import Shard
from waifu2x.flows.film.parts.part_runs import FilmWork, first_part
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import PART_TICKS, THREADS, FilmJob, PreparedFilm, settings
from waifu2x.formats.film import PARTS
from waifu2x.formats.film.reading.selection import MAX_CHANGES, Change
from waifu2x.formats.film.writing.encode import Encoded
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.system.files import (
    clear_folder,
    explained,
    is_temporary,
    reason,
    write_atomically,
    writing,
)
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.locks import HeldElsewhereError, locked

_VERSION = 4
_MANIFEST = "manifest.json"
_PART = re.compile(r"part-\d{6,}\.(?:mkv|json)")
_MOST_BYTES = 64 << 20
"""The most bytes of a record; a part has some hundreds of pictures."""
_HASHED = 1 << 20
"""Bytes at the beginning and the end of a file that identify it."""
_LARGEST = 1 << 62
_MOST_OF_CHANGE = 80
"""Characters that tell a size and a format."""
_MOST_DIGITS = 18
_LOCK = "lock"
_SHARD_LOCK = re.compile(r"shard-\d+-of-\d+\.lock")
_NUMBERS = {THREADS: range(10_000), PART_TICKS: range(1, 1 << 60)}
_NO_LOCKS = (
    "this file system has no locks, so nothing keeps a second run away from these parts: it would"
    " do the same work again, but spoil nothing"
)


class PartRecord(NamedTuple):
    """A complete part."""

    encoded: Encoded
    size: int
    """Bytes of its file."""
    fingerprint: str
    before: str
    """Hash of the source's frame before its first one; empty if there is none."""
    last: str
    """Hash of its last source frame."""
    following: int | None
    """Time in ticks of the next frame; None at the end of the film."""
    computed: int
    """Pictures that the network made; the others were held."""
    damaged: int
    """Packets of the source that could not be decoded."""
    moved: int
    """Frames whose time was moved."""
    is_short: bool
    """Whether the film ends here, before it claims to."""
    is_sought: bool
    """Whether its first frame was found by seeking, which may be the wrong place."""
    changes: tuple[Change, ...]
    """Changes of pictures in it, which were given the size of the film."""


def fingerprint(path: Path) -> str:
    """Returns a hash of a file's size, beginning and end. Raises OSError."""
    size = path.stat().st_size
    hashed = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        hashed.update(file.read(_HASHED))
        if size > _HASHED:
            file.seek(max(_HASHED, size - _HASHED))
            hashed.update(file.read(_HASHED))
    return hashed.hexdigest()


def source_identity(path: Path) -> dict[str, str]:
    """Returns values that change with a source. Raises OSError."""
    status = path.stat()
    return {
        "size": str(status.st_size),
        "modified": str(status.st_mtime_ns),
        "content": fingerprint(path),
    }


def _agreed_settings(
    folder: Path,
    settings: Mapping[str, str],
    *,
    own: Collection[str] = (),
    numbers: Mapping[str, range],
    restart: bool = False,
) -> Mapping[str, str]:
    """Begins an empty folder of parts, or reads the settings with which it was begun; returns them.
    The folder's own values win for the keys in `own`; values of `numbers` have to lie in a range.
    Raises OutputError that names all others that differ."""
    path = folder / _MANIFEST
    with explained(OutputError, f"{folder}: cannot keep parts here"):
        if restart:
            for file in [one for one in folder.iterdir() if is_own(one.name)]:
                file.unlink()
        if not path.exists():
            whole = {"version": _VERSION, "settings": dict(sorted(settings.items()))}
            with suppress(FileExistsError):  # another machine has just begun it
                write_atomically(path, json.dumps(whole, indent=1).encode(), replace=False)
        found = _settings(_read(path), path)
    differing = sorted(
        key
        for key in {*found, *settings}
        if found.get(key) != settings.get(key) and not (key in own and key in found)
    )
    if differing:
        told = "; ".join(
            f"{key} was {found.get(key, 'not there')!r} and is {settings.get(key, 'not there')!r}"
            for key in differing
        )
        way = (
            "--backend and --precision as before" if differing == ["arithmetic"] else "do as before"
        )
        raise OutputError(
            f"{folder}: it holds parts that were made otherwise ({told})",
            f"use --restart, or {way}",
        )
    for key, allowed in numbers.items():
        text = found.get(key, "")
        if not (text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) in allowed):
            raise _damaged(path)
    return found


def has_begun(folder: Path) -> bool:
    """Returns whether a folder is one of parts."""
    return (folder / _MANIFEST).is_file()


def has_parts(folder: Path) -> bool:
    """Returns whether a folder has a part that was complete once."""
    return any(folder.glob("part-*.json"))


def is_own(name: str) -> bool:
    """Returns whether a name is that of a part, a record or the settings."""
    return name == _MANIFEST or _PART.fullmatch(name) is not None


def part_path(folder: Path, number: int) -> Path:
    """Returns the file of a part."""
    return folder / f"part-{number:06d}.mkv"


def record(folder: Path, number: int, told: PartRecord) -> None:
    """Marks a part as complete. Raises OSError."""
    whole = {"version": _VERSION, **told.encoded._asdict(), **told._asdict()}
    del whole["encoded"]
    path = part_path(folder, number).with_suffix(".json")
    write_atomically(path, json.dumps(whole, separators=(",", ":")).encode())


def forget(folder: Path, number: int) -> None:
    """Removes a part, which is then made again. Raises OSError."""
    path = part_path(folder, number)
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def all_recorded(folder: Path, first: int = 0, until: int | None = None) -> dict[int, PartRecord]:
    """Returns the complete parts from `first` up to and without `until`, by their numbers. Raises
    OutputError for a damaged record."""
    numbers = sorted(
        int(path.stem[5:]) for path in folder.glob("part-*.json") if path.stem[5:].isdecimal()
    )
    found = {
        number: recorded(folder, number)
        for number in numbers
        if first <= number and (until is None or number < until)
    }
    return {number: told for number, told in found.items() if told is not None}


def recorded(folder: Path, number: int) -> PartRecord | None:
    """Returns a part if it is complete and unchanged. Raises OutputError for a damaged record."""
    file = part_path(folder, number)
    path = file.with_suffix(".json")
    try:
        told = _record(_read(path), path)
        whole = file.stat().st_size == told.size and fingerprint(file) == told.fingerprint
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: cannot read: {reason(error)}") from error
    return told if whole else None


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        found = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise _damaged(path)
    return found


def _settings(found: Mapping[str, Any], path: Path) -> dict[str, str]:
    settings = found.get("settings")
    if (
        found.keys() != {"version", "settings"}
        or not isinstance(settings, dict)
        or not all(isinstance(value, str) for value in settings.values())
    ):
        raise _damaged(path)
    return settings


_FACTS = PartRecord._fields[1:]


def _record(found: Mapping[str, Any], path: Path) -> PartRecord:
    if found.keys() != {"version", *Encoded._fields, *_FACTS}:
        raise _damaged(path)
    pts, durations, following = found["pts"], found["durations"], found["following"]
    numbers = [found[key] for key in ("depth", "size", "computed", "damaged", "moved")]
    times = [] if following is None else [following]
    texts = [found["fingerprint"], found["before"], found["last"]]
    facts = [found["is_short"], found["is_sought"]]
    if (
        not isinstance(pts, list)
        or not isinstance(durations, list)
        or not all(
            type(one) is int and abs(one) < _LARGEST for one in (*pts, *durations, *numbers, *times)
        )
        or not all(isinstance(one, str) for one in texts)
        or not all(isinstance(one, bool) for one in facts)
        or not pts
        or len(pts) != len(durations)
        or min(numbers) < 0
        or min(durations) < 0
        or found["depth"] > len(pts)
        or any(later <= earlier for earlier, later in pairwise([*pts, *times]))
        or not _are_changes(found["changes"])
    ):
        raise _damaged(path)
    encoded = Encoded(tuple(pts), tuple(durations), found["depth"])
    changes = tuple(Change(*one) for one in found["changes"])
    told = {name: found[name] for name in _FACTS} | {"changes": changes}
    return PartRecord(encoded, **told)


def _are_changes(found: Any) -> bool:
    return (
        isinstance(found, list)
        and len(found) <= MAX_CHANGES
        and all(isinstance(one, list) and len(one) == 2 for one in found)
        and all(type(pts) is int and abs(pts) < _LARGEST for pts, _ in found)
        and all(isinstance(to, str) and len(to) <= _MOST_OF_CHANGE for _, to in found)
    )


def _damaged(path: Path) -> OutputError:
    return OutputError(f"{path}: damaged, or of another version", "use --restart")


def parts_folder(target: Path) -> Path:
    """Returns the folder for the parts of an incomplete film."""
    return target.with_name(f"{target.name}{PARTS}")


@dataclass(frozen=True)
class BegunFilm:
    """A film whose parts are made by this process or for it, and by no other."""

    work: FilmWork
    source: Mapping[str, str]

    def first(self, reader: FilmReader) -> int:
        """Returns the number of the first part."""
        return first_part(reader.film, self.work.selection, self.work.part_ticks)

    def there(self) -> dict[int, PartRecord]:
        """Returns the complete parts by their numbers."""
        return all_recorded(self.work.folder)

    def forget(self, numbers: frozenset[int]) -> None:
        """Removes parts, which are then made again."""
        with explained(OutputError, f"{self.work.folder}: cannot write"):
            for number in numbers:
                forget(self.work.folder, number)

    def remove(self) -> Sentence:
        """Removes the files of the film, and the folder if it is empty; returns what stays. The
        lock goes last, while it is held, so that another run begins another folder."""
        folder = self.work.folder
        try:
            others = []
            for path in folder.iterdir():
                if _is_ours(path.name):
                    path.unlink()
                elif path.name != _LOCK:
                    others.append(path.name)
        except OSError as error:
            return Sentence(f"cannot remove it: {reason(error)}", "remove it yourself")
        if sys.platform != "win32":
            _remove_lock(folder)
        stays = f"it stays, with what is not of the film: {min(others)}" if others else ""
        return Sentence(stays)

    def join(
        self,
        reader: FilmReader,
        job: FilmJob,
        prepared: PreparedFilm,
        there: Mapping[int, PartRecord],
    ) -> tuple[str, ...]:
        """Writes the film; returns a clause for each loss in copied streams. Raises OutputError,
        ImageError."""
        if _source_of(job) != self.source:
            raise ImageError(
                f"{job.source}: it has changed meanwhile", "do it again, with --restart"
            )
        parts = [
            (part_path(self.work.folder, number), there[number].encoded) for number in sorted(there)
        ]
        with (
            explained(OutputError, f"{job.target}: cannot write"),
            writing(job.target, replace=job.overwrite) as file,
        ):
            plan = FilmPlan(reader.film, self.work.shape, prepared.plan, job.cut, str(job.target))
            return reader.join(Path(file.name), plan, parts)


@contextmanager
def begun(
    job: FilmJob,
    prepared: PreparedFilm,
    on_notice: Callable[[str], None],
    *,
    by_whom: bool = True,
    shard: Shard | None = None,
) -> Iterator[BegunFilm]:
    """Locks the folder of parts for this process alone, or for it and other shards."""
    folder = parts_folder(job.target)
    source = _source_of(job)
    if not by_whom and not has_begun(folder):
        raise OutputError(f"{folder}: there are no parts to join", "make them with --shard")
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            has_locks = held.enter_context(locked(folder / _LOCK, shared=shard is not None))
            if shard is not None:
                own = f"shard-{shard.number}-of-{shard.parts}.lock"
                has_locks &= held.enter_context(locked(folder / own))
        except HeldElsewhereError as error:
            raise OutputError(
                f"{job.target}: it is being made by {error}", "wait for it, or end it"
            ) from error
        except OSError as error:
            raise OutputError(f"{folder}: cannot keep parts here: {reason(error)}") from error
        if not has_locks:
            on_notice(f"{folder}: {_NO_LOCKS}")
        wanted = settings(job, prepared, source)
        theirs = {PART_TICKS} if job.threads else {PART_TICKS, THREADS}
        if not by_whom:
            theirs |= {key for key, _ in job.settings}
        is_alone = shard is None
        # Settings of a run that ended before its first part bind no other.
        is_new = job.restart or (is_alone and by_whom and not has_parts(folder))
        found = _agreed_settings(folder, wanted, own=theirs, numbers=_NUMBERS, restart=is_new)
        if is_alone:
            # Files of killed runs.
            clear_folder(folder)
            clear_folder(job.target.resolve().parent)
        shape = changed(prepared.shape, threads=int(found[THREADS]))
        work = FilmWork(
            job.source.absolute(),
            folder.absolute(),
            shape,
            prepared.selection,
            int(found[PART_TICKS]),
            job.duplicates,
        )
        film = BegunFilm(work, source)
        try:
            yield film
        except BaseException:
            if is_alone and not has_parts(folder):
                film.remove()
            raise
    if sys.platform == "win32":  # where open files cannot be removed
        _remove_lock(folder)


def _source_of(job: FilmJob) -> Mapping[str, str]:
    """Returns the identity of a film's source. Raises ImageError."""
    with explained(ImageError, f"{job.source}: cannot read"):
        return source_identity(job.source)


def _is_ours(name: str) -> bool:
    """Returns whether a name in the folder is one of a film's files; the lock is excluded."""
    return is_own(name) or is_temporary(name) or _SHARD_LOCK.fullmatch(name) is not None


def _remove_lock(folder: Path) -> None:
    with suppress(OSError):
        (folder / _LOCK).unlink()
        folder.rmdir()
