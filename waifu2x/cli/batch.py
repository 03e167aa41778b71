"""`waifu2x batch INPUT_DIR OUTPUT_DIR`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from waifu2x.cli import report
from waifu2x.cli.files import make_files, nobody, tell_failure
from waifu2x.cli.options import (
    OUTPUT_NAMES,
    CommandWithTta,
    Location,
    arguments_of,
    check_folder,
    output_of,
    upscale_options,
)
from waifu2x.cli.reporter import BatchReporter
from waifu2x.cli.runners import LOCAL, FileWork, is_many, runner_of
from waifu2x.flows.batch import outputs
from waifu2x.flows.batch.plan import Plan, plan
from waifu2x.flows.batch.shard import Shard, shard_of
from waifu2x.flows.jobs import InFlight, Job, Output, identities, make_folder
from waifu2x.formats import table
from waifu2x.system import stores

_SCHEDULER = re.compile(r"(tcp|tls|ucx|wss?)://\S+:\d+", re.ASCII)
"""An address of Dask's."""


def _jobs(context: Any, parameter: Any, value: str) -> InFlight | None:
    if value == "auto":
        return None
    if not re.fullmatch(r"[1-9]\d{0,2}:[1-9]\d{0,2}:[1-9]\d{0,2}", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected auto, or three whole numbers like 1:1:2.")
    load, process, save = map(int, value.split(":"))
    return InFlight(load + process + save, process)


def _address(context: Any, parameter: Any, value: str | None) -> str | None:
    if value in (None, LOCAL) or _SCHEDULER.fullmatch(value or ""):
        return value
    raise click.BadParameter(f"{value!r}: expected {LOCAL}, or like tcp://host:8786.")


def _shard(context: Any, parameter: Any, value: str | None) -> Shard | None:
    try:
        return None if value is None else shard_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a part like 3/16.") from error


@click.command(cls=CommandWithTta, short_help="Enlarge and denoise the pictures of a folder.")
@click.argument("folder", metavar="INPUT_DIR", type=Location())
@click.argument("target", metavar="OUTPUT_DIR", type=Location())
@click.option("-r", "--recursive", is_flag=True, help="Folders in it too; the tree is kept.")
@click.option(
    "-f",
    "--format",
    "extension",
    type=click.Choice(table.WRITABLE),
    default="png",
    show_default=True,
    help="Format of the outputs.",
)
@click.option(
    "-j",
    "--jobs",
    "in_flight",
    callback=_jobs,
    metavar="auto|LOAD:PROC:SAVE",
    default="auto",
    show_default=True,
    help="Pictures under way at a time: so many in all, PROC of them in the network. auto: as many"
    " as keep the network busy, as far as cores and memory go.",
)
@click.option(
    "--shard",
    callback=_shard,
    metavar="N/PARTS",
    help="Only this part of the pictures, for several machines; new files move none.",
)
@click.option(
    "--retry-failed",
    "retried",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Only what failed in an earlier run, by what its --json wrote.",
)
@click.option("--fail-fast", is_flag=True, help="Begin nothing more after the first failure.")
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Go on with what arrives in INPUT_DIR, as soon as it is whole, until interrupted.",
)
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="A page for browsers: what failed, and every picture before and after.",
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
    in_flight: InFlight | None,
    shard: Shard | None,
    retried: Path | None,
    fail_fast: bool,
    watching: bool,
    page: Path | None,
    address: str | None,
    max_pixels: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the pictures in INPUT_DIR into OUTPUT_DIR, which is made if need be.

    Either may be a URL, such as s3://bucket/folder. A bad picture does not stop the others:
    failures are listed at the end, and the exit code is 1.
    """
    output = output_of(extension, **{name: options.pop(name) for name in OUTPUT_NAMES})
    output = replace(output, previews=page is not None)
    _check(folder, target, output, watching, retried)
    arguments = arguments_of(**options)
    if address is not None:  # workers have working folders of their own
        folder, target = folder.absolute(), target.absolute()
    if watching and output.existing == "fail":
        output = replace(output, existing="skip")
    failures = None
    if retried is not None:
        from waifu2x.flows.batch.retry import Failures

        failures = Failures(retried, folder)

    def look() -> Plan:
        return plan(folder, target, extension, recursive)

    def is_chosen(source: str, _: str) -> bool:
        mine = shard is None or shard.holds(source)
        return mine and (failures is None or failures.holds(source))

    planned = look()
    if not (planned.jobs or planned.unreadable or watching):
        hint = "" if recursive else "; for folders in it give --recursive"
        report.tell(f"{folder}: no pictures here{hint}")
        return
    wanted = planned.jobs.where(is_chosen)
    if failures is not None and not wanted:
        report.tell(f"{retried}: nothing that failed is in {folder}")
    make_folder(target)
    check_folder(target)
    if removed := outputs.sweep(wanted):
        files = "file" if removed == 1 else "files"
        report.tell(f"{target}: {removed} unfinished {files} of a killed run removed")
    done = outputs.present(wanted) if output.existing == "skip" else frozenset[str]()
    left = wanted.where(lambda _, name: name not in done)
    work = FileWork(
        arguments,
        output,
        (folder, target),
        max_pixels,
        in_flight,
        # What is replaced must be no input, of whichever part of the folder.
        identities(planned.jobs) if output.existing == "overwrite" else frozenset(),
        is_many(left),
    )
    left, runner = runner_of(work, left, address, watching=watching)
    jobs: Iterable[Job | None] = left
    if watching:
        from waifu2x.flows.batch.watch import Arrivals, watch

        arrivals = Arrivals(look, is_chosen, done, tell_failure)
        jobs = watch(arrivals, work.stopped)
    unreadable = [] if watching else planned.unreadable  # whoever watches tells of them
    paper = None
    if page is not None:
        from waifu2x.flows.batch.html_report import HtmlReport

        paper = HtmlReport(page, f"{folder}, enlarged into {target}")
    expected = None if watching else len(wanted) + len(unreadable)
    reporter = BatchReporter(expected, planned.passed_over, paper, as_json=as_json)
    make_files(
        work,
        runner if left or watching else nullcontext(nobody),
        jobs,
        reporter,
        None if watching else left,
        unreadable=unreadable,
        skipped=wanted.where(lambda _, name: name in done),
        fail_fast=fail_fast,
        # A cluster has to be told that nobody waits any more.
        ends_at_once=address is None,
    )


def _check(
    folder: Path, target: Path, output: Output, watching: bool, retried: Path | None
) -> None:
    """Usage errors for what makes no sense."""
    urls = [stores.is_url(each) for each in (folder, target)]
    if not (stores.is_folder(folder) if urls[0] else folder.is_dir()):
        raise click.UsageError(f"{folder}: not a folder; for one picture use `waifu2x upscale`.")
    if folder == target or (not any(urls) and target.exists() and target.samefile(folder)):
        raise click.UsageError("OUTPUT_DIR must be another folder than INPUT_DIR.")
    if output.copy_times and any(urls):
        raise click.UsageError("--copy-times is for paths: URLs have dates of their own.")
    if watching and any(urls):
        raise click.UsageError("--watch is for paths, not for URLs.")
    if watching and retried is not None:
        raise click.UsageError("--watch and --retry-failed exclude each other.")
    if watching and target.resolve() in folder.resolve().parents:
        raise click.UsageError("--watch: INPUT_DIR must not be in OUTPUT_DIR.")
