"""`waifu2x upscale IN [OUT]`, which `waifu2x IN [OUT]` means, too."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli import completions
from waifu2x.cli.command import Command
from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.options.arguments import (
    OUTPUT_NAMES,
    arguments_of,
    check_format,
    describe,
    naming_of,
    opened,
    output_of,
    request_of,
)
from waifu2x.cli.options.inputs import (
    Words,
    check_job,
    check_names,
    check_no_films,
    extension_of,
    jobs_of,
    words_of,
)
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output import report
from waifu2x.cli.output.progress import many_pictures, one_picture
from waifu2x.errors import ImageError, Waifu2xError
from waifu2x.flows.jobs import IN_FLIGHT, STANDARD, Job, Output, is_archive
from waifu2x.formats import table

if TYPE_CHECKING:
    from waifu2x.flows.outcome import Outcome
    from waifu2x.imaging.enlarger import Enlarger
    from waifu2x.imaging.sizes import Request
    from waifu2x.imaging.streams import Header


@click.command(cls=Command, short_help="Enlarge and denoise pictures.")
@click.argument("words", metavar="IN... [OUT]", nargs=-1, shell_complete=completions.pictures)
@takes_settings("upscale")
def upscale(
    words: tuple[str, ...],
    inputs: tuple[str, ...],
    output: str | None,
    template: str | None,
    max_pixels: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the picture IN into the new file OUT, or several into a folder.

    \b
    waifu2x in.png                          beside it: in-2x.png
    waifu2x in.png out.webp                 under another name, in another format
    waifu2x -s 4 photo.jpg large.png        four times as large
    waifu2x -n 3 -s 1 photo.jpg clean.png   only remove noise
    waifu2x *.png -o large/                 several into a folder
    waifu2x - - < in.png > out.png          "-" is stdin or stdout
    """
    extension = options.pop("format")
    named = words_of(words, inputs, output)
    check_names(named)
    check_no_films(named)
    how = {name: options.pop(name) for name in OUTPUT_NAMES}
    several = len(named.inputs) > 1
    naming = partial(naming_of, extension=extension, max_pixels=max_pixels, several=several)
    jobs = jobs_of(named, partial(naming, **options), template)
    extensions = dict.fromkeys(extension_of(job, extension) for job in jobs)
    written, *_ = [output_of(each, **how) for each in extensions]
    written = replace(written, pages=extension)
    request = request_of(**options)
    if as_json and jobs[0].target == STANDARD:
        raise click.UsageError("--json and the picture cannot share stdout.")
    shown: dict[str, Any] = {"max_pixels": max_pixels, "as_json": as_json}
    if several:
        for each in filter(None, extensions):
            check_format(each)
        _several(jobs, named, written, options, **shown)
    elif is_archive(jobs[0].source):
        _archive(jobs[0], named, written, options, **shown)
    else:
        _one(jobs[0], named, written, request, options, **shown)


def _several(
    jobs: Sequence[Job],
    named: Words,
    output: Output,
    options: dict[str, Any],
    **shown: Any,
) -> None:
    # With NumPy: late, so that a help need not wait for it.
    from waifu2x.cli.output.batch_messages import BatchOptions, Files, make
    from waifu2x.flows.batch.plan import JobList, Plan

    names = [(str(job.source), job.target.name) for job in jobs]
    wanted = JobList(Path(), Path(named.output or ""), names)
    if not make(Files(Plan(wanted, [], 0), wanted), options, output, BatchOptions(**shown)):
        sys.exit(1)


def _one(
    job: Job,
    named: Words,
    output: Output,
    request: Request,
    options: dict[str, Any],
    *,
    max_pixels: int,
    as_json: bool,
) -> None:
    with report.failure_as_json(_failed(job), as_json), heard_at_once(), ExitStack() as stack:
        (source,) = named.inputs
        check_job(job, named, output.existing)
        check_format(output.extension)
        # With NumPy: late, so that a help need not wait for it.
        from waifu2x.flows.outcome import Outcome
        from waifu2x.flows.picture_work import WorkOptions
        from waifu2x.flows.upscaling import upscale_file
        from waifu2x.formats.adapt import check_sides

        def check(header: Header) -> None:
            form = table.of(output.extension)
            for height, width, _ in header.extents:
                try:
                    planned = request.plan(height, width, math.ceil)
                except ImageError as error:
                    raise error.of(source) from error
                if not request.leaves(height, width):
                    check_sides(form, planned.height, planned.width, str(job.target))

        def enlarger() -> Enlarger:
            upscaler = stack.enter_context(opened(arguments_of(**options)))
            report.detail(describe(upscaler))
            return upscaler.enlarger

        with one_picture(job.source.name) as (on_size, on_progress):
            made = upscale_file(
                job,
                output,
                enlarger,
                WorkOptions(
                    max_pixels=max_pixels,
                    in_flight=IN_FLIGHT,
                    check=check,
                    on_size=on_size,
                    on_progress=on_progress,
                    on_notice=lambda notice: report.tell(f"{source}: {notice}"),
                ),
            )
    _finish(Outcome(job, made), as_json)


def _archive(
    job: Job,
    named: Words,
    output: Output,
    options: dict[str, Any],
    *,
    max_pixels: int,
    as_json: bool,
) -> None:
    """Makes an archive, as `batch` makes one: several pages together."""
    from waifu2x.cli.output.batch_messages import told_once
    from waifu2x.cli.workers import FileWork, runner_of
    from waifu2x.flows.batch.plan import JobList

    with report.failure_as_json(_failed(job), as_json), heard_at_once():
        check_job(job, named, output.existing)
        if output.pages is not None:
            check_format(output.pages)
        folders = Path(), job.target.parent
        jobs = JobList(*folders, [(str(job.source), job.target.name)])
        work = FileWork(arguments_of(**options), output, folders, max_pixels, many=True)
        jobs, runner = runner_of(work, jobs, None, watching=False)
        with runner as run, many_pictures(jobs) as (on_progress, *_):
            (outcome,) = run(jobs, on_progress, told_once())
        if outcome.error:
            raise Waifu2xError(outcome.error)
    _finish(outcome, as_json)


def _failed(job: Job) -> dict[str, str]:
    return {"input": str(job.source), "output": str(job.target), "status": "failed"}


def _finish(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        report.show(report.json_line(outcome))
    job, made = outcome.job, outcome.made
    if made is not None:
        report.detail(report.stages_line(made.spent))
        if not as_json:
            for line in report.noise_lines(job.source, made, verbose=report.is_verbose()):
                report.say(line)
    if made is not None and not made.copied:
        report.say(report.success_line(job, made))
    else:
        report.tell(report.text_line(outcome))
