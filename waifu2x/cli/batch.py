"""`waifu2x batch INPUT_DIR OUTPUT_DIR`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import click

from waifu2x.batch.plan import plan
from waifu2x.batch.run import run
from waifu2x.cli import report
from waifu2x.cli.options import (
    OUTPUT_NAMES,
    CommandWithTta,
    check_folder,
    describe,
    open_upscaler,
    output_of,
    upscale_options,
)
from waifu2x.cli.progress import many_pictures
from waifu2x.pictures import formats
from waifu2x.pipeline import Job, Note, Stages, make_folder


def _stages(context: Any, parameter: Any, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,2}:[1-9]\d{0,2}:[1-9]\d{0,2}", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected three whole numbers like 1:1:2.")
    return tuple(map(int, value.split(":")))


@click.command(cls=CommandWithTta, short_help="Enlarge and denoise the pictures of a folder.")
@click.argument("folder", metavar="INPUT_DIR", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUTPUT_DIR", type=click.Path(path_type=Path))
@click.option("-r", "--recursive", is_flag=True, help="Folders in it too; the tree is kept.")
@click.option(
    "-f",
    "--format",
    "extension",
    type=click.Choice(formats.WRITABLE),
    default="png",
    show_default=True,
    help="Of the outputs.",
)
@click.option(
    "-j",
    "--jobs",
    "jobs",
    callback=_stages,
    metavar="LOAD:PROC:SAVE",
    default="1:1:2",
    show_default=True,
    help="Pictures read, computed and written at a time; each --device computes one.",
)
@upscale_options
def batch(
    folder: Path,
    target: Path,
    recursive: bool,
    extension: str,
    jobs: tuple[int, int, int],
    max_pixels: int,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the pictures in INPUT_DIR into OUTPUT_DIR, which is made if need be.

    A bad picture does not stop the others: failures are listed at the end, and the exit code is 1.
    """
    output = output_of(extension, **{name: options.pop(name) for name in OUTPUT_NAMES})
    if not folder.is_dir():
        raise click.UsageError(f"{folder}: not a folder; for one picture use `waifu2x upscale`.")
    if target.exists() and target.samefile(folder):
        raise click.UsageError("OUTPUT_DIR must be another folder than INPUT_DIR.")
    planned = plan(folder, target, extension, recursive)
    pictures, failed = planned.jobs, planned.unreadable
    counts = Counter(failed=len(failed))
    spent: Counter[str] = Counter()
    if not pictures and not failed:
        hint = "" if recursive else "; for folders in it give --recursive"
        report.tell(f"{folder}: no pictures here{hint}")
        return
    make_folder(target)
    check_folder(target)
    load, process, save = jobs
    stages = Stages(load, max(process, len(options["device"])), save, max_pixels)
    with open_upscaler(**options) as upscaler:
        if verbose:
            report.tell(describe(upscaler))
        with (
            many_pictures(len(pictures)) as (on_progress, on_outcome),
            closing(run(pictures, upscaler, output, stages, on_progress, _told_once())) as outcomes,
        ):
            for outcome in outcomes:
                counts[outcome.status] += 1
                spent.update(outcome.spent)
                if outcome.status == "failed":
                    failed.append(outcome)
                on_outcome(outcome)
                if as_json:
                    click.echo(report.json_line(outcome))
    if verbose and spent:
        report.tell(f"all pictures: {report.stages_line(spent)}")
    statuses = ["done", *(["copied"] if counts["copied"] else []), "skipped", "failed"]
    summary = ", ".join(f"{counts[status]} {status}" for status in statuses)
    others = f"; {planned.passed_over} other files passed over" if planned.passed_over else ""
    report.tell(summary + others)
    for outcome in failed:
        report.tell(report.text_line(outcome))
    if failed:
        sys.exit(1)


def _told_once() -> Note:
    """What tells a note with the first file that it is about: a folder's are mostly the same."""
    told, lock = set[str](), Lock()

    def tell(job: Job, note: str) -> None:
        with lock:
            known = note in told
            told.add(note)
        if not known:
            report.tell(f"{job.source}: {note} (told once)")

    return tell
