"""The work on many files, several at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor

from waifu2x.batch.outcome import Outcome, run_one
from waifu2x.pipeline import Identity, Job, Note, Output, Stages
from waifu2x.upscaler import Upscaler


def run(
    jobs: Iterable[Job],
    upscaler: Upscaler,
    output: Output,
    stages: Stages,
    on_progress: Callable[[Job, float], None],
    on_note: Note = lambda job, note: None,
    sources: frozenset[Identity] = frozenset(),
) -> Generator[Outcome]:
    """The outcome of each job, as it ends; one picture's failure does not concern the others.

    But where a device has stopped working, and no other is there, the rest fail untouched.

    At most `stages.pictures` pictures are in memory, and so many jobs are taken from `jobs`, which
    may let wait for the next. Nothing in `sources` is ever replaced. Closing the iterator, or an
    interrupt, stops the work: finished files stay, unfinished ones leave nothing.
    """
    stopped = threading.Event()
    device_failed = threading.Event()

    def work(job: Job) -> Outcome:
        def report(part: float) -> None:
            if stopped.is_set():
                raise _StoppedError
            on_progress(job, part)

        if device_failed.is_set():
            message = f"{job.source}: not begun, since the device had stopped working"
            return Outcome(job, "failed", 0.0, error=message)
        outcome = run_one(job, upscaler, output, report, stages, sources, on_note)
        if outcome.device_failed:
            device_failed.set()
        return outcome

    waiting, taking = iter(jobs), threading.Lock()
    ended: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
    """None: one of the threads has nothing left to do."""

    def take() -> Job | None:
        with taking:
            return None if stopped.is_set() else next(waiting, None)

    def work_on() -> None:
        try:
            while (job := take()) is not None:
                ended.put(work(job))
        except BaseException as error:
            ended.put(error)
        ended.put(None)

    pool = ThreadPoolExecutor(stages.pictures, thread_name_prefix="waifu2x-batch")
    try:
        for _ in range(stages.pictures):
            pool.submit(work_on)
        working = stages.pictures
        while working:
            item = ended.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                working -= 1
            else:
                yield item
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


class _StoppedError(Exception):
    """Ends the work on a picture from within its progress report."""
