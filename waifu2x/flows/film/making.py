"""Makes a film: the missing parts first, then all of them joined. A film from or into a pipe or of
numbered pictures is made in one go, without parts: a run that is killed begins anew."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as changed
from pathlib import Path

from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.batch.subset import Shard
from waifu2x.flows.film.frames.frame_device import FrameDevice, OnFrames, enlarge_run
from waifu2x.flows.film.frames.frame_sinks import FrameFilesSink, FrameSink, GifSink, RawSink
from waifu2x.flows.film.frames.frame_source import PlacedFrame, Planes
from waifu2x.flows.film.makers.run_maker import RunMaker
from waifu2x.flows.film.parts import part_files
from waifu2x.flows.film.parts.part_files import PartRecord, begun
from waifu2x.flows.film.parts.part_runs import (
    FilmWork,
    PartRun,
    expected_parts,
    missing_runs,
    runs_within,
)
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.film import is_animation
from waifu2x.formats.film.description import Cut, Film
from waifu2x.formats.film.frame_files import frame_pattern
from waifu2x.formats.film.reading.packets import MAX_GAPS, Gap
from waifu2x.formats.film.reading.selection import MAX_CHANGES, Ending
from waifu2x.formats.film.writing import targets
from waifu2x.formats.film.writing.encode import PartEncoder
from waifu2x.formats.film.writing.header import FilmPlan
from waifu2x.system.files import explained, writing
from waifu2x.system.lazy_dataclass import dataclass

_ROUNDS = 4
"""Attempts to make missing parts; all after the first decode from the beginning,
without seeking."""

_STANDARD_OUTPUT = 1
_WHOLE = 1 << 62
"""Ticks of the only part of such a film."""


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
    """Returns the error for a film, or a stretch of it, without frames."""
    seconds, cut = reader.film.seconds, job.cut
    if cut == Cut():
        return ImageError(f"{job.source}: it has no frames")
    end = "" if seconds is None else f", and ends at {seconds:.2f} s"
    return ImageError(
        f"{job.source}: it has no frames in that stretch{end}", "choose another --start or --end"
    )


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
                raise ImageError(f"{job.source}: damaged: its frames differ at each reading")
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
            on_notice(left.of(film.work.folder))
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
            return part_files.all_recorded(film.work.folder, begin, until)

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
            f"{work.folder}: parts are missing ({told})",
            "make them with --shard, or without --join",
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


def is_live(job: FilmJob) -> bool:
    """Returns whether a film is made in one go."""
    return (
        job.source == STANDARD
        or is_animation(job.source)  # and numbered pictures
        or job.target == STANDARD
        or targets.container_of(job.target, job.form) in targets.RAW
    )


def make_live(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    device: FrameDevice,
    *,
    on_frames: OnFrames = lambda frames, computed: None,
) -> MadeFilm:
    """Makes a film for which `is_live` holds. Raises ImageError, OutputError, BackendError, and
    BrokenPipeError where the reader of standard output is gone."""
    no_folder = Path()
    work = FilmWork(
        job.source, no_folder, prepared.shape, prepared.selection, _WHOLE, job.duplicates
    )
    with _sink(reader, job, prepared) as sink:
        enlarge_run(reader, work, PartRun(0, None), sink, device, on_frames)
        if not sink.frames:
            raise no_frames(reader, job)
    return MadeFilm(sink.frames, 0, sink.computed, reader.ending, sink.lost, sink.notices)


@contextmanager
def _sink(reader: FilmReader, job: FilmJob, prepared: PreparedFilm) -> Iterator[FrameSink]:
    """Gives the sink for the results. A file gets its name only at the end of the context."""
    shape, plan = prepared.shape, prepared.plan
    pattern = frame_pattern(job.target)
    if pattern is not None:
        colours = reader.film.pictures.said(shape.colours)
        yield FrameFilesSink(
            pattern, job.source, shape, colours, reader.stages, replace=job.overwrite
        )
        return
    if plan.container == "gif":
        yield GifSink(job.target, shape, reader.stages, replace=job.overwrite)
        return
    with explained(OutputError, f"{job.target}: cannot write"), ExitStack() as held:
        target: Path | int = _STANDARD_OUTPUT
        descriptor = _STANDARD_OUTPUT
        if job.target != STANDARD:
            file = held.enter_context(writing(job.target, replace=job.overwrite))
            target, descriptor = Path(file.name), file.fileno()
        elif sys.stdout is None:
            raise OutputError("standard output: it is closed")
        name = "standard output" if job.target == STANDARD else str(job.target)
        if plan.container == "y4m":
            how = prepared.selection.deinterlacing
            fields = reader.film.pictures.interlaced and how == "off"
            yield RawSink(descriptor, name, shape, reader.stages, interlaced=fields)
        else:
            yield LiveSink(reader, target, FilmPlan(reader.film, shape, plan, job.cut, name))


class LiveSink(FrameSink):
    """Encodes results as one part. The process that reads the film writes it beside the other
    streams, as it comes."""

    def __init__(self, reader: FilmReader, target: Path | int, plan: FilmPlan) -> None:
        """`target` is an existing file or a descriptor. Raises OutputError, BrokenPipeError."""
        super().__init__(reader.stages)
        self._reader = reader
        header = io.BytesIO()
        self._encoder = PartEncoder(header, plan.shape, reader.add_picture)
        try:
            reader.begin_live(target, plan, self._encoder.template(header))
        except BaseException:
            self.abort()
            raise

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        self._encoder.add(planes, placed.frame.pts, placed.frame.duration)

    def close(self) -> None:
        with self._stages.at_work("encoding"):
            self._encoder.close()
        self.lost = self._reader.finish_live()

    def abort(self) -> None:
        self._encoder.abort()
