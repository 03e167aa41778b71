"""`waifu2x video IN OUT`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from waifu2x.cli import completions
from waifu2x.cli.command import Command, is_of_settings
from waifu2x.cli.film.names import film_jobs
from waifu2x.cli.film.options import wanted_film
from waifu2x.cli.film.work import (
    WantedFilm,
    film_maker,
    made_film,
    opened_enlarger,
    prepared_film,
)
from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.options.arguments import check_folder
from waifu2x.cli.options.inputs import Words, check_input, check_names, is_folder
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output import report
from waifu2x.errors import ExistsError, Waifu2xError
from waifu2x.flows.jobs import STANDARD, Existing, Job, make_folder, may_write

if TYPE_CHECKING:
    from waifu2x.flows.batch.subset import Shard
    from waifu2x.flows.film.request import FilmJob


@click.command(cls=Command, short_help="Enlarge and denoise a film.")
@click.argument(
    "words",
    metavar="IN... [OUT|DIR/]",
    nargs=-1,
    required=True,
    shell_complete=completions.films,
)
@takes_settings("video")
def video(words: tuple[str, ...], preview: Fraction | None, as_json: bool, **options: Any) -> None:
    """Enlarge and denoise the film IN into the new film OUT, or several into a folder.

    \b
    waifu2x video film.mkv                                    beside it: film-2x.mkv
    waifu2x video -c av1 in.mkv out.mp4                       .mkv, .mp4, .mov, .webm or .gif
    waifu2x video *.mkv season/ large/                        several, or all of a folder
    waifu2x video film.mkv - | mpv -                          "-" is stdin or stdout
    waifu2x video film.mkv frames/%06d.png                    pictures, or pictures as IN

    Sound, subtitles, fonts and chapters are copied. A run that was interrupted goes on.
    """
    run = _RunOptions(**{name: options.pop(name) for name in _RunOptions._fields})
    names = ("width", "height", "longer_side", "shorter_side", "min_size", "max_height")
    others = any(options[name] is not None for name in names)
    jobs = film_jobs(words, None if others else options["scale"] or Fraction(2))
    if preview is not None and len(jobs) > 1:
        raise click.UsageError("--preview shows a frame of one film; name one.")
    folder = Path(words[-1]) if len(words) > 1 and is_folder(words[-1]) else None
    is_whole = True
    for job in jobs:
        try:
            is_whole &= _one(job, folder, run, preview, dict(options), as_json=as_json)
        except (Waifu2xError, MemoryError, OSError) as error:
            if len(jobs) == 1:
                raise
            report.error(report.message_of(error))
            is_whole = False
    if not is_whole:
        sys.exit(1)


def _one(
    named: Job,
    folder: Path | None,
    run: _RunOptions,
    preview: Fraction | None,
    options: dict[str, Any],
    *,
    as_json: bool,
) -> bool:
    """Makes a film, or the preview of one; returns False if something of the source could not be
    read. `folder` is made if it is missing."""
    wanted = wanted_film(named, options)
    job = replace(
        wanted.job, overwrite=run.overwrite, restart=run.restart, keep_parts=run.keep_parts
    )
    wanted = wanted._replace(job=job)
    existing: Existing = "overwrite" if run.overwrite else "fail"
    if preview is not None:
        run.check_preview(as_json)
        _check_preview(job, existing)
        with heard_at_once():
            _preview(wanted, preview, run.overwrite)
        return True
    # With NumPy: late, so that a help need not wait for it.
    from waifu2x.cli.film.messages import Interrupted
    from waifu2x.flows.film.making import is_live

    run.check()
    _check_target(job, folder, existing)
    if as_json and job.target == STANDARD:
        raise click.UsageError("--json and the film cannot share stdout.")
    if (run.restart or run.keep_parts) and is_live(job):
        raise click.UsageError(
            "--restart and --keep-parts: a film of a pipe or frames has no parts."
        )
    failed = {"status": "failed", "input": str(job.source), "output": str(job.target)}
    interrupted = Interrupted(job.target)
    with (
        report.failure_as_json(failed, as_json),
        interrupted.told(),
        heard_at_once(interrupted.tell),
    ):
        return _make(wanted, run, as_json)


class _RunOptions(NamedTuple):
    """How a film is made, and where."""

    overwrite: bool
    restart: bool
    keep_parts: bool
    shard: Shard | None
    join: bool
    address: str | None
    """The address of a cluster; None for none."""

    def check(self) -> None:
        if self.join and (self.shard or self.restart or self.address):
            raise click.UsageError("--join makes nothing; leave out --shard, --restart, --cluster.")
        if self.shard and self.restart:
            raise click.UsageError(
                "--shard keeps what others make; remove OUT.parts to begin anew."
            )

    def check_preview(self, as_json: bool) -> None:
        """Raises UsageError for options that a single picture does not use; settings are
        ignored."""
        given = {
            "--json": as_json,
            "--restart": self.restart,
            "--keep-parts": self.keep_parts and not is_of_settings("keep_parts"),
            "--shard": self.shard is not None,
            "--join": self.join,
            "--cluster": self.address is not None and not is_of_settings("address"),
        }
        if useless := [name for name, is_given in given.items() if is_given]:
            raise click.UsageError(
                f"--preview makes one picture, here; leave out {', '.join(useless)}."
            )

    def check_live(self) -> None:
        if self.join or self.shard or self.address:
            raise click.UsageError(
                "--shard, --join and --cluster make parts, of a file and into a file."
            )


def _check_target(job: FilmJob, folder: Path | None, existing: Existing) -> None:
    """Raises an error for a film that cannot be made, as far as is known at once. Makes the folder
    of its target if it was named with a slash at its end."""
    from waifu2x.formats.film.frame_files import frame_pattern
    from waifu2x.formats.film.writing import targets

    source, target = job.source, job.target
    _check_names(source, target)
    targets.container_of(target, job.form)
    if folder is not None:
        make_folder(folder)
    pattern = frame_pattern(target)
    if pattern is not None:
        pattern.check_free(source, replace=existing == "overwrite")
    elif target != STANDARD:
        _check_free(source, target, existing)


def _check_preview(job: FilmJob, existing: Existing) -> None:
    source, target = job.source, job.target
    _check_names(source, target)
    if STANDARD in (source, target):
        raise click.UsageError("--preview needs a file to seek in, and one to write.")
    if target.suffix.lower() != ".png":
        raise click.UsageError(f"{target}: --preview makes a picture; end it in .png.")
    _check_free(source, target, existing)


def _check_names(source: Path, target: Path) -> None:
    from waifu2x.formats.film.frame_files import frame_pattern

    check_names(Words((str(source),), str(target)))
    if frame_pattern(source) is None:
        check_input(str(source), str(target))


def _check_free(source: Path, target: Path, existing: Existing) -> None:
    check_folder(target.parent)
    try:
        may_write(Job(source, target), existing)
    except ExistsError as error:
        raise ExistsError(error.path, "use --overwrite, or another name") from error


def _make(wanted: WantedFilm, run: _RunOptions, as_json: bool) -> bool:
    """Makes the film; returns False if something of the source could not be read."""
    from waifu2x.cli.film import messages
    from waifu2x.cli.film.progress import FilmProgress, told
    from waifu2x.flows.film.frames.frame_enlarger import device_of
    from waifu2x.flows.film.making import is_live, join_film, make_live, make_shard

    start = time.monotonic()
    with prepared_film(wanted) as ready:
        reader, prepared, film = ready.reader, ready.prepared, ready.reader.film
        progress = FilmProgress(
            ready.job.source.name, messages.frame_count(film), reader.stages.times
        )
        if is_live(ready.job):
            run.check_live()
            with told(progress, as_json=as_json) as add, opened_enlarger(ready) as enlarge:
                device = device_of(enlarge, film)
                made = make_live(reader, ready.job, prepared, device, on_frames=add)
        elif run.join:
            made = join_film(reader, ready.job_of(), prepared, on_notice=report.tell)
        elif run.shard is not None:
            with (
                told(progress, as_json=as_json) as add,
                film_maker(ready, run.address, add) as maker,
            ):
                job = ready.job_of(maker.arithmetic, is_gpu=maker.is_gpu)
                parts = make_shard(
                    maker.make, reader, job, prepared, run.shard, on_notice=report.tell
                )
            messages.tell_shard(ready.job, run.shard, parts, as_json=as_json)
            return True
        else:
            with told(progress, as_json=as_json) as add:
                made = made_film(ready, run.address, add, progress.resume)
        times = reader.stages.times()
    seconds = time.monotonic() - start
    finished = messages.FinishedFilm(ready.job, prepared, film, made, times, seconds)
    return messages.tell_end(finished, as_json=as_json)


def _preview(wanted: WantedFilm, start: Fraction, overwrite: bool) -> None:
    from waifu2x.flows.film.trials import preview
    from waifu2x.formats.film.description import Cut
    from waifu2x.formats.film.writing.codecs import Wish
    from waifu2x.formats.write import write_picture
    from waifu2x.imaging.picture import Picture

    target = wanted.job.target
    # In place of the film's codec, one that takes all pictures.
    job = replace(wanted.job, target=target.with_suffix(".mkv"), wish=Wish("ffv1"))
    job = replace(job, drop_unsupported=True, cut=Cut(start))
    wanted = wanted._replace(job=job)
    with prepared_film(wanted, is_preview=True) as ready, opened_enlarger(ready) as enlarge:
        how = ready.prepared.selection.deinterlacing
        name = str(wanted.arguments["model"])
        sheet = preview(ready.reader, enlarge, start, how, name)
    write_picture(Picture(sheet), target, "png", replace=overwrite)
    report.say(f"{target}: {sheet.shape[1]}x{sheet.shape[0]}")
