"""`waifu2x batch INPUT_DIR OUTPUT_DIR`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import click

from waifu2x.batch import Outcome, plan, run
from waifu2x.cli import report
from waifu2x.cli.options import (
    OUTPUT_NAMES,
    check_folder,
    describe,
    open_upscaler,
    output_of,
    upscale_options,
)
from waifu2x.pictures import formats
from waifu2x.pipeline import Job, Note, Stages, make_folder


def _stages(context: Any, parameter: Any, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,2}:[1-9]\d{0,2}:[1-9]\d{0,2}", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected three whole numbers like 1:1:2.")
    return tuple(map(int, value.split(":")))


@click.command(short_help="Enlarge and denoise the pictures of a folder.")
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
    counts = {"done": 0, "skipped": 0, "failed": len(failed)}
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
            _display(len(pictures)) as (on_progress, on_outcome),
            closing(run(pictures, upscaler, output, stages, on_progress, _told_once())) as outcomes,
        ):
            for outcome in outcomes:
                counts[outcome.status] += 1
                if outcome.status == "failed":
                    failed.append(outcome)
                on_outcome(outcome)
                if as_json:
                    click.echo(report.json_line(outcome))
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
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


_Display = tuple[Callable[[Job, float], None], Callable[[Outcome], None]]


@contextmanager
def _display(total: int) -> Iterator[_Display]:
    """What shows progress: a bar with rate and time left on a terminal, else a line a picture."""
    if not sys.stderr.isatty():
        width, finished = len(str(total)), 0

        def print_line(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            report.tell(f"[{finished:{width}}/{total}] {report.text_line(outcome)}")

        yield (lambda job, part: None), print_line
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %  {task.fields[finished]}/{task.total:.0f} pictures"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    pixels = finished = 0
    parts: dict[Job, float] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, finished=0, rate="")

        def advance(job: Job, part: float) -> None:
            parts[job] = parts.get(job, 0.0) + part
            progress.advance(task, part)

        def finish(outcome: Outcome) -> None:
            nonlocal finished, pixels
            finished += 1
            pixels += outcome.height * outcome.width
            # Whatever was not reported while it ran: all of it, for a picture that failed.
            progress.advance(task, 1.0 - parts.pop(outcome.job, 0.0))
            elapsed = progress.tasks[task].elapsed or 0.0
            rate = f"{pixels / elapsed / 1e6:.2f} Mpixel/s" if elapsed and pixels else ""
            progress.update(task, finished=finished, rate=rate)

        yield advance, finish
