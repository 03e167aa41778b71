"""Makes many files as `batch` does, and tells how each ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import takewhile
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

# Imports of NumPy come late: completions and helps need not wait for it.
if TYPE_CHECKING:
    from waifu2x.cli.film.in_batches import BatchFilms
    from waifu2x.flows.batch.plan import JobList, Plan
    from waifu2x.flows.outcome import Outcome


class Files(NamedTuple):
    """The files to be made, and how more of them are found."""

    planned: Plan
    """All files that were found; none of them is ever replaced."""
    wanted: JobList
    """The files to be made."""
    look: Callable[[], Plan] | None = None
    """Plans again, if new files are wanted until an interrupt."""
    is_wanted: Callable[[str, str], bool] = lambda source, target: True
    """Returns whether a new file is wanted, by its name and its target's."""
    films: BatchFilms | None = None
    """Makes those that are films; None: no file is one."""


class BatchOptions(NamedTuple):
    """How a run works on many files."""

    max_pixels: int
    as_json: bool
    in_flight: InFlight | None = None
    fail_fast: bool = False
    page: Path | None = None
    """Where the HTML report goes."""
    address: str | None = None
    """The address of a cluster."""


def make(files: Files, options: dict[str, Any], output: Output, run: BatchOptions) -> bool:
    """Makes files and tells of each; returns whether all were made. A failure stops no other.
    `options` are those of an upscaler. Raises Waifu2xError for what concerns all files."""
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
    if run.page is not None:
        from waifu2x.flows.batch.html_report import HtmlReport, preview_side

        output = replace(output, preview_side=preview_side(None if watching else len(left)))
    work = FileWork(
        arguments,
        output,
        (wanted.folder, target),
        run.max_pixels,
        run.in_flight,
        # An output must replace no input, in any part of the folder.
        identities(planned.jobs) if output.existing == "overwrite" else frozenset(),
        is_many(left),
    )
    films = files.films
    make_film = None if films is None else lambda job, tell: films.make(job, work, tell)
    left, runner = runner_of(work, left, run.address, make_film, watching=watching)
    jobs: Iterable[Job | None] = left
    if files.look is not None:
        from waifu2x.flows.batch.watch import Arrivals, watch

        arrivals = Arrivals(files.look, files.is_wanted, done, _tell_failure)
        jobs = watch(arrivals, work.stopped)
    unreadable = [] if watching else planned.unreadable  # the watch tells of them
    expected = None if watching else len(wanted) + len(unreadable)
    with ExitStack() as stack:
        compute = stack.enter_context(runner) if left or watching else nobody
        paper = None
        if run.page is not None:
            settings = settings_of(click.get_current_context())
            settings += films.settings() if films is not None else []
            paper = HtmlReport(run.page, f"{wanted.folder}, enlarged into {target}", settings)
        reporter = stack.enter_context(
            BatchReporter(expected, planned.passed_over, paper, as_json=run.as_json)
        )
        if run.address is None:  # a cluster has to be told of the end
            stack.enter_context(heard_at_once(reporter.finish, gently=watching))

        def take(outcome: Outcome) -> None:
            reporter.add(outcome)
            if why := _reason_to_stop(outcome, target, run.fail_fast):
                reporter.stopped_for = why
                work.stopped.set()

        for outcome in unreadable:
            take(outcome)
        reporter.skip(wanted.where(lambda _, name: name in done))
        hearers = stack.enter_context(many_pictures(None if watching else left))
        on_progress, on_outcome, on_count = hearers
        if films is not None:
            films.on_count = on_count
        begun = takewhile(lambda job: not work.stopped.is_set(), jobs)
        outcomes = compute(begun, on_progress, told_once())
        stack.enter_context(closing(outcomes))
        stack.enter_context(_stopping(work.stopped, gently=watching))
        for outcome in outcomes:
            take(outcome)
            on_outcome(outcome)
            if watching and outcome.error and not report.is_verbose():
                _tell_failure(outcome)  # the end may be far away
    return not (reporter.tally.troubled or reporter.left)


def _reason_to_stop(outcome: Outcome, target: Path, fail_fast: bool) -> str:
    """Returns why no file is begun after this outcome; empty to go on."""
    if outcome.disk_full:
        return f"{target}: the disk is full; make room and go on with --skip-existing"
    if fail_fast and outcome.status == "failed":
        return "ended at the first failure, as --fail-fast asks for"
    return ""


@contextmanager
def _stopping(stopped: Event, gently: bool) -> Iterator[None]:
    """Sets `stopped` when the block ends, so that nothing waits for jobs. With `gently`, the first
    signal does only that; the next one has its usual effect."""
    names = ("SIGINT", "SIGTERM", "SIGHUP") if gently else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    # Ignored signals, as under nohup, stay ignored.
    before = {number: each for number, each in handlers.items() if each != signal.SIG_IGN}

    def stop(received: int, frame: object) -> None:
        restore()
        stopped.set()
        # Printing is not safe here: the signal may have interrupted it.
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
    """Returns a function that tells each notice once: a folder's files mostly have the same."""
    told, lock = set[str](), Lock()

    def tell(job: Job, notice: str) -> None:
        with lock:
            known = notice in told
            told.add(notice)
        if not known:
            report.tell(f"{job.source}: {notice} (told once)")

    return tell
