"""The work on many files as people see it: signals, progress, outcomes, the summary."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event, Lock

from waifu2x.cli import report
from waifu2x.cli.drawing import clear_line
from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.progress import many_pictures
from waifu2x.cli.reporter import BatchReporter
from waifu2x.cli.runners import FileWork, OnProgress, Runner
from waifu2x.flows.batch.plan import JobList
from waifu2x.flows.jobs import Job, OnNotice
from waifu2x.flows.outcome import Outcome


def make_files(
    work: FileWork,
    runner: AbstractContextManager[Runner],
    jobs: Iterable[Job | None],
    reporter: BatchReporter,
    known: JobList | None,
    *,
    unreadable: Iterable[Outcome] = (),
    skipped: JobList | None = None,
    fail_fast: bool = False,
    ends_at_once: bool = True,
) -> None:
    """Makes files, tells how each ends, and exits with 1 where not all are done.

    `known` are all jobs, or None where they come for as long as nobody interrupts it: then the
    first signal ends it gently. `unreadable` and `skipped` have ended before the work.
    `ends_at_once`: a signal does not wait for whoever makes the files.
    """
    target, watching = work.folders[1], known is None
    with ExitStack() as stack:
        run = stack.enter_context(runner)
        stack.enter_context(reporter)
        if ends_at_once:
            stack.enter_context(heard_at_once(reporter.finish, gently=watching))

        def take(outcome: Outcome) -> None:
            reporter.add(outcome)
            if why := _reason_to_stop(outcome, target, fail_fast):
                reporter.stopped_for = why
                work.stopped.set()

        for outcome in unreadable:
            take(outcome)
        if skipped is not None:
            reporter.skip(skipped)
        on_progress, on_outcome = stack.enter_context(many_pictures(known))
        outcomes = run(_until(work.stopped, jobs), on_progress, _told_once())
        stack.enter_context(closing(outcomes))
        stack.enter_context(_stopping(work.stopped, gently=watching))
        for outcome in outcomes:
            take(outcome)
            on_outcome(outcome)
            if watching and outcome.status == "failed" and not report.is_verbose():
                tell_failure(outcome)  # the end may be far away
    if reporter.tally.failed or reporter.left:
        sys.exit(1)


def nobody(
    jobs: Iterable[Job | None], on_progress: OnProgress, on_notice: OnNotice
) -> Generator[Outcome, None, None]:
    """A runner where nothing is left to do."""
    yield from ()


def tell_failure(outcome: Outcome) -> None:
    """Tells of what failed as soon as it has."""
    report.error(report.text_line(outcome))


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
