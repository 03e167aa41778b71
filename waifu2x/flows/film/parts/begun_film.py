"""The folder of a film's parts, while one process has them made."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace as changed
from pathlib import Path

from waifu2x.errors import ImageError, OutputError, Sentence
from waifu2x.flows.batch.subset import Shard
from waifu2x.flows.film.parts import manifest
from waifu2x.flows.film.parts.manifest import PartRecord
from waifu2x.flows.film.parts.part_runs import FilmWork, first_part
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import PART_TICKS, THREADS, FilmJob, PreparedFilm, settings
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.system.files import clear_folder, explained, is_temporary, reason, writing
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.locks import HeldElsewhereError, locked

_LOCK = "lock"
_SHARD_LOCK = re.compile(r"shard-\d+-of-\d+\.lock")
_NUMBERS = {THREADS: range(10_000), PART_TICKS: range(1, 1 << 60)}
_NO_LOCKS = (
    "this file system has no locks, so nothing keeps a second run away from these parts: it would"
    " do the same work again, but spoil nothing"
)


def parts_folder(target: Path) -> Path:
    """Returns the folder for the parts of an incomplete film."""
    return target.with_name(f"{target.name}.parts")


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
        return manifest.all_recorded(self.work.folder)

    def forget(self, numbers: frozenset[int]) -> None:
        """Removes parts, which are then made again."""
        with explained(OutputError, f"{self.work.folder}: cannot write"):
            for number in numbers:
                manifest.forget(self.work.folder, number)

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
            (manifest.part_path(self.work.folder, number), there[number].encoded)
            for number in sorted(there)
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
    if not by_whom and not manifest.has_begun(folder):
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
        is_new = job.restart or (is_alone and by_whom and not manifest.has_parts(folder))
        found = manifest.begin(folder, wanted, own=theirs, numbers=_NUMBERS, restart=is_new)
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
            if is_alone and not manifest.has_parts(folder):
                film.remove()
            raise
    if sys.platform == "win32":  # where open files cannot be removed
        _remove_lock(folder)


def _source_of(job: FilmJob) -> Mapping[str, str]:
    """Returns the identity of a film's source. Raises ImageError."""
    with explained(ImageError, f"{job.source}: cannot read"):
        return manifest.source_identity(job.source)


def _is_ours(name: str) -> bool:
    """Returns whether a name in the folder is one of a film's files; the lock is excluded."""
    return manifest.is_own(name) or is_temporary(name) or _SHARD_LOCK.fullmatch(name) is not None


def _remove_lock(folder: Path) -> None:
    with suppress(OSError):
        (folder / _LOCK).unlink()
        folder.rmdir()
