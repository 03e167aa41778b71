"""The outcome of one file, whatever goes wrong with it, and the sums of those of a batch."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import field
from pathlib import Path
from typing import Literal

from waifu2x.errors import LESS_MEMORY, BackendError, DeviceError, Waifu2xError
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.flows.upscaling import Upscaled, upscale_file
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.system.files import is_disk_full, reason
from waifu2x.system.lazy_dataclass import dataclass

STOPPED = "stopped"
"""The error of a job that nobody wants any more."""
Status = Literal["done", "copied", "skipped", "failed"]
"""`copied`: it was to stay as it is, and so did its file."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    made: Upscaled | None = None
    """What was made; None where nothing was, since the file is there already or the job failed."""
    error: str = ""
    """Why the job failed, a sentence that names its file; empty where it did not."""
    device_failed: bool = False
    """Whether the device failed, so that nothing more can be computed."""
    disk_full: bool = False
    """Whether the disk is full, so that nothing more can be written."""

    @property
    def status(self) -> Status:
        """How it ended, in a word."""
        if self.error:
            return "failed"
        if self.made is None:
            return "skipped"
        return "copied" if self.made.copied else "done"


class FailedError(Exception):
    """Ends the work on a job, of which a part has failed elsewhere."""

    def __init__(self, outcome: Outcome) -> None:
        """`outcome` is how the job ends with that."""
        super().__init__(outcome.error)
        self.outcome = outcome


def outcome_of_error(job: Job, output: Output, error: Exception) -> Outcome:
    """The outcome of a job whose work raised an error. Raises the error itself if it is none that
    `upscale_file` or `upscale_archive` names."""
    device_failed = disk_full = False
    if isinstance(error, FailedError):
        return error.outcome
    if isinstance(error, BackendError):
        message = f"{job.source}: {error}"
        device_failed = isinstance(error, DeviceError)
    elif isinstance(error, Waifu2xError):
        if output.existing == "skip" and isinstance(error.__cause__, FileExistsError):
            return Outcome(job)  # another run has made it meanwhile
        message = str(error)
        disk_full = is_disk_full(error.__cause__)
    elif isinstance(error, OSError):
        disk_full = is_disk_full(error)
        message = f"{error.filename or job.source}: {reason(error)}"
    elif isinstance(error, MemoryError):
        message = f"{job.source}: not enough memory for the result: {LESS_MEMORY}"
    else:
        raise error
    message = message or repr(error)
    return Outcome(job, error=message, device_failed=device_failed, disk_full=disk_full)


def run_one(
    job: Job,
    enlarger: Enlarger,
    output: Output,
    options: WorkOptions,
) -> Outcome:
    """The outcome of one file, which is no archive; errors are a failed outcome. Arguments are
    those of `upscale_file`. Raises what is none of the errors that it names."""
    try:
        made = upscale_file(job, output, lambda: enlarger, options)
    except Exception as error:
        return outcome_of_error(job, output, error)
    return Outcome(job, made)


@dataclass
class Tally:
    """Counts and sums of the outcomes of a batch; failed outcomes are kept."""

    counts: Counter[str] = field(default_factory=Counter)
    """How many outcomes there are of each status but failed."""
    failed: dict[Path, Outcome] = field(default_factory=dict)
    """Failed outcomes by source. A file that has changed and is done after all counts as done."""
    spent: Counter[str] = field(default_factory=Counter)
    """Seconds by stage, of all pictures that are done."""
    levels: Counter[int | None] = field(default_factory=Counter)
    """JPEGs, pages of archives too, by the noise level that was chosen for them."""
    pictures: int = 0
    """How many pictures the files that are done hold: a file may have many."""
    recomputed: int = 0
    """How many of them were computed again in fp32."""
    pixels: int = 0
    """Pixels of all results."""
    start: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Counts how one more ended."""
        if outcome.status == "failed":
            self.failed[outcome.job.source] = outcome
            return
        self.failed.pop(outcome.job.source, None)
        self.counts[outcome.status] += 1
        if (made := outcome.made) is None:
            return
        self.spent.update(made.spent)
        self.levels.update(choice.level for choice in made.choices)
        if not made.copied:
            self.pictures += made.pictures
            self.recomputed += made.recomputed
            self.pixels += made.pixels

    @property
    def ended(self) -> int:
        """How many files have ended, failed ones among them."""
        return self.counts.total() + len(self.failed)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def rate(self) -> float:
        """Megapixels of results a second."""
        return self.pixels / 1e6 / max(self.seconds, 1e-9)
