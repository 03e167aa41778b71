"""Makes a film of another: missing parts first, then all of them joined."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.batch.assignments import clear_folder
from waifu2x.flows.batch.shard import Shard
from waifu2x.flows.film import chain, manifest
from waifu2x.flows.film.film_reader import FilmReader
from waifu2x.flows.film.manifest import PartRecord
from waifu2x.flows.film.parts import PartRun, first_part
from waifu2x.flows.film.request import FilmJob, PreparedFilm, settings
from waifu2x.flows.film.runs import (
    Enlarge,
    FilmWork,
    FrameDevice,
    MadeHere,
    OnFrames,
    RunMaker,
    expected_parts,
)
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.packets import MAX_GAPS, Gap
from waifu2x.formats.film.reader import Ending
from waifu2x.system.files import reason, writing
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.locks import HeldElsewhereError, locked

_ROUNDS = 4
"""How often missing parts are made: where seeking comes to other places, once more without it."""
NO_LOCKS = (
    "this file system has no locks, so nothing keeps a second run away from these parts: it would"
    " do the same work again, but spoil nothing"
)


@dataclass(frozen=True)
class MadeFilm:
    """A film that was made."""

    frames: int
    resumed: int
    """Frames of parts that were there already."""
    computed: int
    """Frames of the other parts that the network made."""
    ending: Ending
    lost: tuple[str, ...] = ()
    """What is missing in sounds that were copied from a damaged film, each a clause."""
    notices: tuple[str, ...] = ()
    """What could not be kept, each a clause."""


def parts_folder(target: Path) -> Path:
    """Where the parts of a film are kept until it is complete."""
    return target.with_name(f"{target.name}.parts")


def make_film(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    enlarge: Enlarge,
    *,
    in_flight: int = 2,
    stack: int = 1,
    pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin(),
    restart: bool = False,
    keep_parts: bool = False,
    replace: bool = False,
    on_resumed: Callable[[int], None] = lambda frames: None,
    on_frames: OnFrames = lambda frames, computed: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> MadeFilm:
    """Makes a film in this process, or what is missing of it after a run that was killed.

    The parts that are complete stay, whatever happens, until the film is. `in_flight` stacks of
    frames are under way at a time; `pin` is the device's, `Backend.pin`. `on_resumed` is
    told how many frames are there already, `on_frames` of those whose results are there now,
    `on_notice` what people should know; `reader.stages` tells which stage holds the others.

    Raises ImageError, OutputError, BackendError.
    """
    device = FrameDevice(enlarge, in_flight, stack, pin)
    return make_film_by(
        MadeHere(reader, device, on_frames),
        reader,
        job,
        prepared,
        restart=restart,
        keep_parts=keep_parts,
        replace=replace,
        on_resumed=on_resumed,
        on_notice=on_notice,
    )


def make_film_by(
    maker: RunMaker,
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    *,
    restart: bool = False,
    keep_parts: bool = False,
    replace: bool = False,
    by_whom: bool = True,
    on_resumed: Callable[[int], None] = lambda frames: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> MadeFilm:
    """Makes a film as `make_film` does, its parts by whoever `maker` stands for.

    Unless `by_whom`, parts that are there need not have been made by the networks of this job.
    """
    with _begun(job, prepared, on_notice, restart=restart, by_whom=by_whom) as begun:
        there = begun.there()
        before = frozenset(there)
        on_resumed(sum(len(told.encoded.pts) for told in there.values()))
        for attempt in range(_ROUNDS):
            found = chain.missing(there, begun.first(reader), begun.work.part_ticks)
            begun.forget(found.wrong)
            if not found.runs:
                break
            maker([changed(run, is_sought=not attempt) for run in found.runs], begun.work)
            there = begun.there()
            if not there:
                raise ImageError(f"{job.source}: has no frames between --start and --end")
        else:
            raise ImageError(f"{job.source}: decodes otherwise each time: it is damaged")
        resumed = sum(len(there[number].encoded.pts) for number in before if number in there)
        computed = sum(told.computed for number, told in there.items() if number not in before)
        lost = begun.join(reader, job, prepared, there, replace=replace)
        made = MadeFilm(
            sum(len(told.encoded.pts) for told in there.values()),
            resumed,
            computed,
            _ending(reader.film, there, prepared),
            lost,
        )
    if not keep_parts:
        _remove(begun.work.folder)
    return made


def make_shard(
    maker: RunMaker,
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    shard: Shard,
    *,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> int:
    """Makes the parts of one stretch of a film, of `shard.parts` that are equally long, and leaves
    them for `join_film`; how many parts of it there are now.

    Raises as `make_film`.
    """
    with _begun(job, prepared, on_notice, shard=shard) as begun:
        first, ticks = begun.first(reader), begun.work.part_ticks
        expected = max(0, expected_parts(reader.film, begun.work) - first)
        begin = first + expected * (shard.number - 1) // shard.parts
        until: int | None = first + expected * shard.number // shard.parts
        if shard.number == shard.parts:
            until = None  # the film may be longer than it says

        def mine() -> Mapping[int, PartRecord]:
            return manifest.all_recorded(begun.work.folder, begin, until)

        found = chain.missing(mine(), first, ticks)
        begun.forget(found.wrong)
        runs = chain.within(found.runs, begin, until)
        if runs:
            maker(runs, begun.work)
        return len(mine())


def join_film(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    *,
    keep_parts: bool = False,
    replace: bool = False,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> MadeFilm:
    """Joins parts that are all there. Raises OutputError where some are missing."""

    def refuse(runs: Sequence[PartRun], work: FilmWork) -> None:
        second = work.part_ticks * work.shape.tick
        told = ", ".join(
            f"from {float(run.first * second):g} s to "
            + ("the end" if run.until is None else f"{float(run.until * second):g} s")
            for run in runs
        )
        raise OutputError(
            f"{work.folder}: parts are missing ({told}): make them with --shard, or without --join"
        )

    return make_film_by(
        refuse,
        reader,
        job,
        prepared,
        keep_parts=keep_parts,
        replace=replace,
        by_whom=False,
        on_notice=on_notice,
    )


@dataclass(frozen=True)
class _BegunFilm:
    """A film whose parts are being made by this process, or for it, and by no other."""

    work: FilmWork
    source: Mapping[str, str]
    """What tells its source from others."""

    def first(self, reader: FilmReader) -> int:
        """The number of the part that it begins in."""
        return first_part(reader.film, self.work.selection, self.work.part_ticks)

    def there(self) -> dict[int, PartRecord]:
        """The parts that are complete, by their numbers."""
        return manifest.all_recorded(self.work.folder)

    def forget(self, numbers: frozenset[int]) -> None:
        """Lets parts be made again."""
        try:
            for number in numbers:
                manifest.forget(self.work.folder, number)
        except OSError as error:
            raise OutputError(f"{self.work.folder}: cannot write: {reason(error)}") from error

    def join(
        self,
        reader: FilmReader,
        job: FilmJob,
        prepared: PreparedFilm,
        there: Mapping[int, PartRecord],
        *,
        replace: bool,
    ) -> tuple[str, ...]:
        """Writes the film; what is missing in streams that were copied.

        Raises OutputError, ImageError.
        """
        if manifest.source_identity(job.source) != self.source:
            raise ImageError(f"{job.source}: has changed meanwhile: do it again, with --restart")
        parts = [
            (manifest.part_path(self.work.folder, number), there[number].encoded)
            for number in sorted(there)
        ]
        try:
            with writing(job.target, replace=replace) as file:
                own = Path(file.name)
                try:
                    return reader.join(own, self.work.shape, prepared.plan, parts, job.cut)
                except OutputError as error:
                    raise OutputError(f"{job.target}: {error}") from error
        except OSError as error:
            raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error


@contextmanager
def _begun(
    job: FilmJob,
    prepared: PreparedFilm,
    on_notice: Callable[[str], None],
    *,
    restart: bool = False,
    by_whom: bool = True,
    shard: Shard | None = None,
) -> Iterator[_BegunFilm]:
    """Takes the folder of parts for this process alone, or for it and other shards."""
    folder = parts_folder(job.target)
    try:
        source = manifest.source_identity(job.source)
    except OSError as error:
        raise ImageError(f"{job.source}: cannot read: {reason(error)}") from error
    if not by_whom and not manifest.has_begun(folder):
        raise OutputError(f"{folder}: there are no parts to join: make them with --shard")
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            has_locks = held.enter_context(locked(folder / "lock", shared=shard is not None))
            if shard is not None:
                own = f"shard-{shard.number}-of-{shard.parts}.lock"
                has_locks &= held.enter_context(locked(folder / own))
        except HeldElsewhereError as error:
            raise OutputError(
                f"{job.target}: is being made by {error}: wait for it, or end it"
            ) from error
        except OSError as error:
            raise OutputError(f"{folder}: cannot keep parts here: {reason(error)}") from error
        if not has_locks:
            on_notice(f"{folder}: {NO_LOCKS}")
        wanted = settings(job, prepared, source)
        theirs = set() if job.threads else {"threads"}
        if not by_whom:
            theirs |= {key for key, _ in job.settings}
        found = manifest.begin(folder, wanted, own=theirs, restart=restart)
        if shard is None:
            # What a run that was killed has left.
            clear_folder(folder)
            clear_folder(job.target.resolve().parent)
        shape = changed(prepared.shape, threads=int(found["threads"]))
        work = FilmWork(
            job.source.absolute(),
            folder.absolute(),
            shape,
            prepared.selection,
            prepared.part_ticks,
            job.duplicates,
        )
        yield _BegunFilm(work, source)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be removed: {reason(error)}") from error


def _ending(film: Film, there: Mapping[int, PartRecord], prepared: PreparedFilm) -> Ending:
    """What was found while the parts were decoded, by whomever."""
    shape = prepared.shape
    pts = [one for number in sorted(there) for one in there[number].encoded.pts]
    durations = [one for number in sorted(there) for one in there[number].encoded.durations]
    length = -(-1 // (film.pictures.rate * shape.tick)) or 1
    ends = [time + (lasts or length) for time, lasts in zip(pts, durations, strict=True)]
    is_short = there[max(there)].is_short
    damaged = sum(told.damaged for told in there.values())
    gaps = [
        Gap(end * shape.tick, (following - end) * shape.tick)
        for end, following in zip(ends, pts[1:], strict=False)
        if damaged and following - end > length
    ]
    moved = sum(told.moved for told in there.values())
    return Ending(len(pts), damaged, moved, ends[-1] * shape.tick, is_short, tuple(gaps[:MAX_GAPS]))
