"""`waifu2x batch INPUT_DIR OUTPUT_DIR`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import click

from waifu2x import stores
from waifu2x.batch import cluster
from waifu2x.batch.outcome import Outcome
from waifu2x.batch.plan import plan
from waifu2x.batch.run import run
from waifu2x.cli import report
from waifu2x.cli.options import (
    OUTPUT_NAMES,
    CommandWithTta,
    Location,
    arguments_of,
    check_folder,
    describe,
    open_upscaler,
    output_of,
    upscale_options,
)
from waifu2x.cli.progress import many_pictures
from waifu2x.pictures import formats
from waifu2x.pipeline import Job, Note, Output, Stages, make_folder


def _stages(context: Any, parameter: Any, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,2}:[1-9]\d{0,2}:[1-9]\d{0,2}", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected three whole numbers like 1:1:2.")
    return tuple(map(int, value.split(":")))


def _address(context: Any, parameter: Any, value: str | None) -> str | None:
    if value in (None, cluster.LOCAL) or re.fullmatch(r"[a-z]+://\S+:\d+", value or "", re.ASCII):
        return value
    raise click.BadParameter(f"{value!r}: expected {cluster.LOCAL}, or like tcp://host:8786.")


@click.command(cls=CommandWithTta, short_help="Enlarge and denoise the pictures of a folder.")
@click.argument("folder", metavar="INPUT_DIR", type=Location())
@click.argument("target", metavar="OUTPUT_DIR", type=Location())
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
@click.option(
    "--cluster",
    "address",
    callback=_address,
    metavar="tcp://HOST:PORT|local",
    help="Let the workers of a Dask cluster do it, whose scheduler has this address; local: two"
    " processes here. INPUT_DIR and OUTPUT_DIR are paths that all machines share, or URLs.",
)
@upscale_options
def batch(
    folder: Path,
    target: Path,
    recursive: bool,
    extension: str,
    jobs: tuple[int, int, int],
    address: str | None,
    max_pixels: int,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the pictures in INPUT_DIR into OUTPUT_DIR, which is made if need be.

    Either may be a URL, such as s3://bucket/folder. A bad picture does not stop the others:
    failures are listed at the end, and the exit code is 1.
    """
    output = output_of(extension, **{name: options.pop(name) for name in OUTPUT_NAMES})
    _check_folders(folder, target, output)
    if address is not None:  # workers have working folders of their own
        folder, target = folder.absolute(), target.absolute()
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
    stages = load, max(process, len(options["device"])), save, max_pixels
    if address is None:
        opened = _here(options, output, stages, verbose)
    else:
        opened = _on_cluster(address, options, output, stages, (folder, target), verbose)
    with (
        opened as work,
        many_pictures(len(pictures)) as (on_progress, on_outcome),
        closing(work(pictures, on_progress, _told_once())) as outcomes,
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


_Work = Callable[[Sequence[Job], Callable[[Job, float], None], Note], Generator[Outcome]]
"""What makes outcomes of jobs, and is told of progress and notes."""


@contextmanager
def _here(
    options: dict[str, Any], output: Output, stages: tuple[int, int, int, int], verbose: bool
) -> Iterator[_Work]:
    """By this process."""
    with open_upscaler(**options) as upscaler:
        if verbose:
            report.tell(describe(upscaler))
        yield lambda jobs, on_progress, on_note: run(
            jobs, upscaler, output, Stages(*stages), on_progress, on_note
        )


@contextmanager
def _on_cluster(
    address: str,
    options: dict[str, Any],
    output: Output,
    stages: tuple[int, int, int, int],
    folders: tuple[Path, Path],
    verbose: bool,
) -> Iterator[_Work]:
    """By the workers of a cluster."""

    def tell_of(worker: str, device: str) -> None:
        if verbose:
            report.tell(f"worker {worker}: {device}")

    arguments = arguments_of(**options)
    with cluster.connected(address) as client:
        settings, weights = cluster.settings_of(arguments, output, stages, folders)
        yield lambda jobs, on_progress, on_note: cluster.run(
            client, jobs, settings, weights, tell_of, report.tell, on_note
        )


def _check_folders(folder: Path, target: Path, output: Output) -> None:
    """Raises a usage error for folders that cannot be what is meant."""
    urls = [stores.is_url(each) for each in (folder, target)]
    if not (stores.is_folder(folder) if urls[0] else folder.is_dir()):
        raise click.UsageError(f"{folder}: not a folder; for one picture use `waifu2x upscale`.")
    if folder == target or (not any(urls) and target.exists() and target.samefile(folder)):
        raise click.UsageError("OUTPUT_DIR must be another folder than INPUT_DIR.")
    if output.copy_times and any(urls):
        raise click.UsageError("--copy-times is for paths: URLs have dates of their own.")


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
