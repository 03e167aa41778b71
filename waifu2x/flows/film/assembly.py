"""Makes a film in parts: the missing ones first, then all of them joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed

from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.batch.subset import Shard
from waifu2x.flows.film.makers.run_maker import RunMaker
from waifu2x.flows.film.parts import manifest
from waifu2x.flows.film.parts.begun_film import begun
from waifu2x.flows.film.parts.manifest import PartRecord
from waifu2x.flows.film.parts.part_runs import (
    FilmWork,
    PartRun,
    expected_parts,
    missing_runs,
    runs_within,
)
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.packets import MAX_GAPS, Gap
from waifu2x.formats.film.reading.selection import MAX_CHANGES, Ending
from waifu2x.system.lazy_dataclass import dataclass

_ROUNDS = 4
"""Attempts to make missing parts; all after the first decode from the beginning,
without seeking."""


@dataclass(frozen=True)
class MadeFilm:
    frames: int
    resumed: int
    """Frames of parts that existed already."""
    computed: int
    """Frames of the other parts that the network made."""
    ending: Ending
    lost: tuple[str, ...] = ()
    """A clause for each loss in sounds copied from a damaged film."""
    notices: tuple[str, ...] = ()
    """A clause for each thing that could not be kept."""


def no_frames(reader: FilmReader, job: FilmJob) -> ImageError:
    """Returns the error for a stretch without frames."""
    seconds = reader.film.seconds
    end = "" if seconds is None else f", and ends at {seconds:.2f} s"
    return ImageError(f"{job.source}: has no frames between --start and --end{end}")


def make_film(
    maker: RunMaker,
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    *,
    by_whom: bool = True,
    on_resumed: Callable[[int], None] = lambda frames: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> MadeFilm:
    """Makes the missing parts of a film by `maker`, then joins all. `on_resumed` is called with the
    frames that exist already, `on_notice` with messages. With `by_whom` False, existing parts may
    come from other networks than this job's. Raises ImageError, OutputError, BackendError; complete
    parts stay until the film is complete."""
    with begun(job, prepared, on_notice, by_whom=by_whom) as film:
        there = film.there()
        before = frozenset(there)
        on_resumed(sum(len(told.encoded.pts) for told in there.values()))
        for attempt in range(_ROUNDS + 1):
            found = missing_runs(there, film.first(reader), film.work.part_ticks)
            film.forget(found.wrong)
            # They may lie behind the film's end, without a replacement.
            there = {number: told for number, told in there.items() if number not in found.wrong}
            before -= found.wrong
            if not found.runs:
                break
            if attempt == _ROUNDS:
                raise ImageError(f"{job.source}: its frames differ at each reading: it is damaged")
            maker([changed(run, is_sought=not attempt) for run in found.runs], film.work)
            there = film.there()
            if not there:
                raise no_frames(reader, job)
        resumed = sum(len(there[number].encoded.pts) for number in before if number in there)
        computed = sum(told.computed for number, told in there.items() if number not in before)
        lost = film.join(reader, job, prepared, there)
        made = MadeFilm(
            sum(len(told.encoded.pts) for told in there.values()),
            resumed,
            computed,
            _ending(reader.film, there, prepared),
            lost,
        )
        if not job.keep_parts and (left := film.remove()):
            on_notice(f"{film.work.folder}: {left}")
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
    """Makes the parts in one of `shard.parts` equal stretches of a film, for `join_film`. Returns
    how many parts of it exist now. Raises as `make_film`."""
    with begun(job, prepared, on_notice, shard=shard) as film:
        first, ticks = film.first(reader), film.work.part_ticks
        expected = max(0, expected_parts(reader.film, film.work) - first)
        begin = first + expected * (shard.number - 1) // shard.parts
        until: int | None = first + expected * shard.number // shard.parts
        if shard.number == shard.parts:
            until = None  # the film may be longer than it says

        def mine() -> Mapping[int, PartRecord]:
            return manifest.all_recorded(film.work.folder, begin, until)

        found = missing_runs(mine(), first, ticks)
        film.forget(found.wrong)
        runs = runs_within(found.runs, begin, until)
        if runs:
            maker(runs, film.work)
        return len(mine())


def join_film(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    *,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> MadeFilm:
    """Joins existing parts. Raises OutputError where some are missing."""

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

    return make_film(refuse, reader, job, prepared, by_whom=False, on_notice=on_notice)


def _ending(film: Film, there: Mapping[int, PartRecord], prepared: PreparedFilm) -> Ending:
    """Returns what decoding has shown while the parts were made."""
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
    noted = [change for number in sorted(there) for change in there[number].changes]
    before = ["", *(change.to for change in noted)]  # a part that is sought may tell one again
    changes = [one for one, last in zip(noted, before, strict=False) if one.to != last]
    return Ending(
        len(pts),
        damaged,
        moved,
        ends[-1] * shape.tick,
        is_short,
        tuple(gaps[:MAX_GAPS]),
        tuple(changes[:MAX_CHANGES]),
    )
