"""Many files, made as `batch` makes them: several at a time, each with an outcome of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.options.arguments import arguments_of, check_folder
from waifu2x.cli.output import report
from waifu2x.cli.output.drawing import clear_line
from waifu2x.cli.output.progress import many_pictures
from waifu2x.cli.workers import FileWork, is_many, nobody, runner_of
from waifu2x.flows.jobs import InFlight, Job, OnNotice, Output, identities, make_folder

# What imports NumPy is imported where it is used: completions and helps need not wait for it.
if TYPE_CHECKING:
    from waifu2x.flows.batch.plan import JobList, Plan
    from waifu2x.flows.outcome import Outcome


class Files(NamedTuple):
    """Which files are to be made of which."""

    planned: Plan
    """All that was found; of its files, none is ever replaced."""
    wanted: JobList
    """Those of them that are to be made."""
    look: Callable[[], Plan] | None = None
    """Looks again, where files may arrive that are wanted, too: until an interrupt."""
    is_wanted: Callable[[str, str], bool] = lambda source, target: True
    """Whether a file that arrives is wanted, by the names of it and of its target."""


def make(
    files: Files,
    options: dict[str, Any],
    output: Output,
    *,
    max_pixels: int,
    as_json: bool,
    in_flight: InFlight | None = None,
    fail_fast: bool = False,
    page: Path | None = None,
    address: str | None = None,
) -> bool:
    """Makes files and tells of each; whether all were made. One that fails does not stop others.

    `options` are those of an upscaler, `page` is where a report goes, `address` that of a cluster.
    Raises Waifu2xError for what concerns all files.
    """
    from waifu2x.cli.output.reporter import BatchReporter, settings_of
    from waifu2x.flows.batch import listings

    planned, wanted, watching = files.planned, files.wanted, files.look is not None
    target = wanted.target
    arguments = arguments_of(**options)
    make_folder(target)
    check_folder(target)
    if removed := listings.sweep(wanted):
        unfinished = "file" if removed == 1 else "files"
        report.tell(f"{target}: {removed} unfinished {unfinished} of a killed run removed")
    done = listings.present(wanted) if output.existing == "skip" else frozenset[str]()
    left = wanted.where(lambda _, name: name not in done)
    if page is not None:
        from waifu2x.flows.batch.html_report import HtmlReport, preview_side

        output = replace(output, preview_side=preview_side(None if watching else len(left)))
    work = FileWork(
        arguments,
        output,
        (wanted.folder, target),
        max_pixels,
        in_flight,
        # What is replaced must be no input, of whichever part of the folder.
        identities(planned.jobs) if output.existing == "overwrite" else frozenset(),
        is_many(left),
    )
    left, runner = runner_of(work, left, address, watching=watching)
    jobs: Iterable[Job | None] = left
    if files.look is not None:
        from waifu2x.flows.batch.watch import Arrivals, watch

        arrivals = Arrivals(files.look, files.is_wanted, done, _tell_failure)
        jobs = watch(arrivals, work.stopped)
    unreadable = [] if watching else planned.unreadable  # whoever watches tells of them
    expected = None if watching else len(wanted) + len(unreadable)
    with ExitStack() as stack:
        run = stack.enter_context(runner) if left or watching else nobody
        paper = None
        if page is not None:
            settings = settings_of(click.get_current_context())
            paper = HtmlReport(page, f"{wanted.folder}, enlarged into {target}", settings)
        reporter = stack.enter_context(
            BatchReporter(expected, planned.passed_over, paper, as_json=as_json)
        )
        if address is None:  # a cluster has to be told that nobody waits any more
            stack.enter_context(heard_at_once(reporter.finish, gently=watching))

        def take(outcome: Outcome) -> None:
            reporter.add(outcome)
            if why := _reason_to_stop(outcome, target, fail_fast):
                reporter.stopped_for = why
                work.stopped.set()

        for outcome in unreadable:
            take(outcome)
        reporter.skip(wanted.where(lambda _, name: name in done))
        on_progress, on_outcome = stack.enter_context(many_pictures(None if watching else left))
        outcomes = run(_until(work.stopped, jobs), on_progress, told_once())
        stack.enter_context(closing(outcomes))
        stack.enter_context(_stopping(work.stopped, gently=watching))
        for outcome in outcomes:
            take(outcome)
            on_outcome(outcome)
            if watching and outcome.status == "failed" and not report.is_verbose():
                _tell_failure(outcome)  # the end may be far away
    return not (reporter.tally.failed or reporter.left)


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
        clear_line()
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


def _tell_failure(outcome: Outcome) -> None:
    report.error(report.text_line(outcome))


def told_once() -> OnNotice:
    """Tells each notice once, with the first file it is about: a folder's are mostly the same."""
    told, lock = set[str](), Lock()

    def tell(job: Job, notice: str) -> None:
        with lock:
            known = notice in told
            told.add(notice)
        if not known:
            report.tell(f"{job.source}: {notice} (told once)")

    return tell
