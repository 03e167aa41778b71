"""The work on many files, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from waifu2x.batch.outcome import Outcome, run_one
from waifu2x.pipeline import Job, Note, Output, Stages, identities
from waifu2x.upscaler import Upscaler


def run(
    jobs: Sequence[Job],
    upscaler: Upscaler,
    output: Output,
    stages: Stages,
    on_progress: Callable[[Job, float], None],
    on_note: Note = lambda job, note: None,
) -> Generator[Outcome]:
    """The outcome of each job, as it ends; one picture's failure does not concern the others.

    But where a device has stopped working, and no other is there, the rest fail untouched.

    At most `stages.pictures` pictures are in memory. Closing the iterator, or an interrupt, stops
    the work: finished files stay, unfinished ones leave nothing.
    """
    stopped = threading.Event()
    device_failed = threading.Event()
    sources = identities(jobs)

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

    pool = ThreadPoolExecutor(stages.pictures, thread_name_prefix="waifu2x-batch")
    try:
        futures = [pool.submit(work, job) for job in jobs]
        for future in as_completed(futures):
            yield future.result()
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


class _StoppedError(Exception):
    """Ends the work on a picture from within its progress report."""
