"""`waifu2x batch INPUT_DIR OUTPUT_DIR`."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import click

from waifu2x.backends import device_numbers
from waifu2x.cli import completions, report
from waifu2x.cli.interrupts import heard_at_once
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
from waifu2x.flows.batch.shard import Shard, shard_of
from waifu2x.flows.jobs import ARCHIVES, Identity, Job, OnNotice, Output, identities, make_folder
from waifu2x.formats import table
from waifu2x.system import stores

# What imports NumPy is imported where it is used: completions and helps need not wait for it.
if TYPE_CHECKING:
    from waifu2x.flows.batch.devices import DeviceProcesses
    from waifu2x.flows.batch.driver import InFlight
    from waifu2x.flows.batch.listings import Listings
    from waifu2x.flows.batch.plan import JobList, Plan
    from waifu2x.flows.outcome import Outcome

_MANY = 50
"""Pictures for which processes may well be wanted, as are those of an archive: starting them takes
as long as a device does."""
_EACH = 8
"""Files for each of several devices from which on they get a process each."""
_LOCAL = "local"
"""Stands for an address: processes of this machine."""
_SCHEDULER = re.compile(r"(tcp|tls|ucx|wss?)://\S+:\d+", re.ASCII)
"""An address of Dask's."""


def _jobs(context: Any, parameter: Any, value: str) -> InFlight | None:
    if value == "auto":
        return None
    if not re.fullmatch(r"[1-9]\d{0,2}:[1-9]\d{0,2}:[1-9]\d{0,2}", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected auto, or three whole numbers like 1:1:2.")
    from waifu2x.flows.batch.driver import InFlight

    load, process, save = map(int, value.split(":"))
    return InFlight(load + process + save, process)


def _address(context: Any, parameter: Any, value: str | None) -> str | None:
    if value in (None, _LOCAL) or _SCHEDULER.fullmatch(value or ""):
        return value
    raise click.BadParameter(f"{value!r}: expected {_LOCAL}, or like tcp://host:8786.")


def _shard(context: Any, parameter: Any, value: str | None) -> Shard | None:
    try:
        return None if value is None else shard_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a part like 3/16.") from error


@click.command(cls=CommandWithTta, short_help="Enlarge and denoise the pictures of a folder.")
@click.argument("folder", metavar="INPUT_DIR", type=Location(), shell_complete=completions.folders)
@click.argument("target", metavar="OUTPUT_DIR", type=Location(), shell_complete=completions.folders)
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
    shell_complete=completions.files(".html"),
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
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Enlarge and denoise the pictures in INPUT_DIR into OUTPUT_DIR, which is made if need be.

    Either may be a URL, such as s3://bucket/folder. A bad picture does not stop the others:
    failures are listed at the end, and the exit code is 1.
    """
    from waifu2x.cli.reporter import BatchReporter
    from waifu2x.flows.batch import outputs, worker
    from waifu2x.flows.batch.plan import plan

    output = output_of(extension, **{name: options.pop(name) for name in OUTPUT_NAMES})
    output = replace(output, previews=page is not None)
    _check(folder, target, output, watching, retried)
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
        report.tell(f"{target}: {removed} unfinished files of a killed run removed")
    done = outputs.present(wanted) if output.existing == "skip" else frozenset[str]()
    left = wanted.where(lambda _, name: name not in done)
    stopped = Event()
    jobs: Iterable[Job | None] = left
    if watching:
        from waifu2x.flows.batch.watch import Arrivals, watch

        jobs = watch(Arrivals(look, is_chosen, done, _tell), stopped)
    # What is replaced must be no input, of whichever part of the folder.
    sources = identities(planned.jobs) if output.existing == "overwrite" else frozenset()
    unreadable = [] if watching else planned.unreadable  # whoever watches tells of them
    expected = None if watching else len(wanted) + len(unreadable)
    has_archive = len(left) < _MANY and any(
        job.source.suffix[1:].lower() in ARCHIVES for job in left
    )
    many = address is None and (len(left) >= _MANY or has_archive)
    numbers = () if address is not None else _devices_of(options, len(left), watching)
    if numbers:
        worker.prepare("waifu2x.flows.batch.device_worker")
        jobs = jobs if watching else _archives_first(left)
    elif many:
        worker.prepare()
    with ExitStack() as stack:
        work: _Work = _nobody
        if left or watching:
            opened = partial(_here, many)
            if address is not None:
                opened = partial(_on_cluster, address, (folder, target))
            elif numbers:
                opened = partial(_on_devices, many, numbers, (folder, target), stopped)
            work = stack.enter_context(
                opened(options, output, in_flight, max_pixels, sources, verbose=verbose)
            )
        paper = None
        if page is not None:
            from waifu2x.flows.batch.html_report import HtmlReport

            paper = HtmlReport(page, f"{folder}, enlarged into {target}")
        reporter = stack.enter_context(
            BatchReporter(expected, planned.passed_over, paper, as_json=as_json, verbose=verbose)
        )
        if address is None:  # a cluster has to be told that nobody waits any more
            stack.enter_context(heard_at_once(reporter.finish, gently=watching))

        def take(outcome: Outcome) -> None:
            reporter.add(outcome)
            if why := _reason_to_stop(outcome, target, fail_fast):
                reporter.stopped_for = why
                stopped.set()

        for outcome in unreadable:
            take(outcome)
        reporter.skip(wanted.where(lambda _, name: name in done))
        on_progress, on_outcome = stack.enter_context(
            many_pictures(None if watching else len(left), reporter.tally)
        )
        outcomes = work(_until(stopped, jobs), on_progress, _told_once())
        stack.enter_context(closing(outcomes))
        stack.enter_context(_stopping(stopped, gently=watching))
        for outcome in outcomes:
            take(outcome)
            on_outcome(outcome)
    if reporter.tally.failed or reporter.left:
        sys.exit(1)


_Work = Callable[
    [Iterable[Job | None], Callable[[Job, float], None], OnNotice], "Generator[Outcome, None, None]"
]
"""Makes outcomes of jobs, and tells of progress and of notices."""


@contextmanager
def _here(
    many: bool,
    options: dict[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    sources: frozenset[Identity],
    *,
    verbose: bool,
) -> Iterator[_Work]:
    """By this process and those that it starts."""
    from waifu2x.flows.batch.run import run

    with open_upscaler(**options) as upscaler:
        if verbose:
            report.tell(describe(upscaler))
        yield lambda jobs, on_progress, on_notice: run(
            jobs,
            upscaler,
            output,
            in_flight=in_flight,
            many=many,
            max_pixels=max_pixels,
            sources=sources,
            on_progress=on_progress,
            on_notice=on_notice,
        )


@contextmanager
def _on_devices(
    many: bool,
    numbers: Sequence[int],
    folders: tuple[Path, Path],
    stopped: Event,
    options: dict[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    sources: frozenset[Identity],
    *,
    verbose: bool,
) -> Iterator[_Work]:
    """By a process for each of several devices."""
    from waifu2x.flows.batch.devices import DeviceProcesses
    from waifu2x.flows.batch.listings import Listings
    from waifu2x.flows.batch.session import SessionSettings

    def tell_of(described: str) -> None:
        if verbose:
            report.tell(described)

    def settings(number: int, sharing: int) -> SessionSettings:
        own = {**arguments, "device": (number,)}
        return SessionSettings(own, output, share, max_pixels, "", sharing, many)

    from waifu2x.flows.batch.driver import InFlight

    arguments, parts = arguments_of(**options), len(numbers)
    share = in_flight
    if in_flight is not None:
        share = InFlight(-(-in_flight.pictures // parts), -(-in_flight.in_network // parts))
    processes = DeviceProcesses(
        [settings(number, parts) for number in numbers],
        [f"device {number}" for number in numbers],
        settings(numbers[0], 1) if arguments["backend"] == "auto" else None,
        on_device=tell_of,
        on_news=report.tell,
    )
    with closing(processes):
        processes.open()
        yield partial(_run_on, processes, Listings(folders, output.existing, sources), stopped)


def _run_on(
    processes: DeviceProcesses,
    listings: Listings,
    stopped: Event,
    jobs: Iterable[Job | None],
    on_progress: Callable[[Job, float], None],
    on_notice: OnNotice,
) -> Generator[Outcome, None, None]:
    return processes.run(jobs, listings, stopped, on_progress=on_progress, on_notice=on_notice)


def _devices_of(options: dict[str, Any], count: int, watching: bool) -> Sequence[int]:
    """The numbers of the devices that get a process each for so many files; none where one process
    does it all: for one device, and for so few files that devices would have to share one."""
    from waifu2x.flows.batch import worker

    device = options["device"]
    if not (watching or count >= 2 * _EACH) or not worker.may_start_processes():
        return ()
    numbers = device_numbers(options["backend"]) if device == "all" else device
    return numbers if len(numbers) > 1 and (watching or count >= _EACH * len(numbers)) else ()


def _archives_first(jobs: JobList) -> JobList:
    """The jobs in another order: one process makes all pages of an archive, and is not to begin
    with one when the others have nothing more to do."""
    from waifu2x.flows.batch.plan import JobList

    names = sorted(jobs.names, key=lambda names: not names[0].lower().endswith(ARCHIVES))
    return JobList(jobs.folder, jobs.target, names)


@contextmanager
def _on_cluster(
    address: str,
    folders: tuple[Path, Path],
    options: dict[str, Any],
    output: Output,
    in_flight: InFlight | None,
    max_pixels: int,
    sources: frozenset[Identity],
    *,
    verbose: bool,
) -> Iterator[_Work]:
    """By the workers of a cluster."""
    from waifu2x.flows.batch import cluster

    def tell_of(worker: str, device: str) -> None:
        if verbose:
            report.tell(f"worker {worker}: {device}")

    arguments, is_local = arguments_of(**options), address == _LOCAL
    with cluster.connected(None if is_local else address) as client:
        sharing = cluster.LOCAL_WORKERS if is_local else 1
        settings, model_files = cluster.settings_of(
            arguments, output, in_flight, max_pixels, folders, sharing
        )
        yield lambda jobs, on_progress, on_notice: cluster.run(
            client,
            jobs,
            settings,
            model_files,
            sources=sources,
            on_worker=tell_of,
            on_news=report.tell,
            on_notice=on_notice,
        )


def _nobody(
    jobs: Iterable[Job | None], on_progress: Callable[[Job, float], None], on_notice: OnNotice
) -> Generator[Outcome, None, None]:
    """Where nothing is left to do."""
    yield from ()


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


def _reason_to_stop(outcome: Outcome, target: Path, fail_fast: bool) -> str:
    """Why no file is begun after one that ended so; empty if there is no reason."""
    if outcome.disk_full:
        return f"{target}: the disk is full: make room and go on with --skip-existing"
    if fail_fast and outcome.status == "failed":
        return "ended at the first failure, as --fail-fast asks for"
    return ""


def _until(stopped: Event, jobs: Iterable[Job | None]) -> Iterator[Job | None]:
    for job in jobs:
        if stopped.is_set():
            return
        yield job


@contextmanager
def _stopping(stopped: Event, gently: bool) -> Iterator[None]:
    """Sets `stopped` at the end, whatever it is: nothing waits for jobs any more.

    `gently`: the first signal that ends programs does only that, the next is what it always is.
    """
    names = ("SIGINT", "SIGTERM", "SIGHUP") if gently else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    # What is to be ignored, as under nohup, stays so.
    before = {number: each for number, each in handlers.items() if each != signal.SIG_IGN}

    def stop(received: int, frame: object) -> None:
        restore()
        stopped.set()
        # Printing is not safe here: it may be what was interrupted.
        os.write(2, b"Ending when what has been begun is done; once more to drop it.\n")

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
        stopped.set()


def _tell(outcome: Outcome) -> None:
    report.tell(report.text_line(outcome))


def _told_once() -> OnNotice:
    """Tells each notice once, with the first file it is about: a folder's are mostly the same."""
    told, lock = set[str](), Lock()

    def tell(job: Job, notice: str) -> None:
        with lock:
            known = notice in told
            told.add(notice)
        if not known:
            report.tell(f"{job.source}: {notice} (told once)")

    return tell
