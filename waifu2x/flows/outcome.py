"""The outcome of a job, and the sums of the outcomes of a batch."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from dataclasses import field
from pathlib import Path
from typing import Literal

from waifu2x.errors import (
    LESS_MEMORY,
    BackendError,
    DeviceError,
    FaultError,
    Sentence,
    Waifu2xError,
    shortage,
)
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.flows.upscaling import Upscaled, upscale_file
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.system.files import is_disk_full, reason
from waifu2x.system.lazy_dataclass import dataclass

_LOG = logging.getLogger(__name__)
STOPPED = "stopped"
"""The error of an unwanted job."""
Status = Literal["done", "copied", "skipped", "failed", "damaged"]
"""`copied`: the picture was to stay as it is, so its file was copied. `damaged`: the film is made,
but not all of its source could be read."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job."""

    job: Job
    made: Upscaled | None = None
    """None if the job failed, or the file existed already."""
    error: str = ""
    """A sentence that names the file, also where it is made of a damaged one; empty for success."""
    device_failed: bool = False
    """Whether the device has failed, so that nothing more can be computed."""
    disk_full: bool = False
    """Whether the disk is full, so that nothing more can be written."""

    @property
    def status(self) -> Status:
        if self.error:
            return "damaged" if self.made else "failed"
        if self.made is None:
            return "skipped"
        return "copied" if self.made.copied else "done"


class FailedError(Exception):
    """Ends a job after a part of it has failed elsewhere."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome.error))
        self.outcome = outcome


def outcome_of_error(job: Job, output: Output, error: Exception) -> Outcome:
    """Returns the outcome of a job whose work raised an error; any may be a fault of this program.

    Raises StoppedError where that is the error.
    """
    device_failed = disk_full = False
    if isinstance(error, StoppedError):
        raise error
    if isinstance(error, FailedError):
        return error.outcome
    if isinstance(error, BackendError):
        message = error.sentence.of(job.source)
        device_failed = isinstance(error, DeviceError)
    elif isinstance(error, Waifu2xError):
        if output.existing == "skip" and isinstance(error.__cause__, FileExistsError):
            return Outcome(job)  # another run has made it meanwhile
        message = error.sentence
        disk_full = is_disk_full(error.__cause__)
    elif isinstance(error, OSError):
        disk_full = is_disk_full(error)
        message = Sentence(f"{error.filename or job.source}: {reason(error)}")
    elif isinstance(error, MemoryError):
        message = Sentence(f"{job.source}: not enough memory for the result", LESS_MEMORY)
    elif refused := shortage(error):
        message = refused.of(job.source)
    else:
        for line in "".join(traceback.format_exception(error)).splitlines():
            _LOG.debug("%s", line)
        message = FaultError(f"{job.source}: {type(error).__name__}: {error}").sentence
    return Outcome(job, error=message, device_failed=device_failed, disk_full=disk_full)


def run_one(job: Job, enlarger: Enlarger, output: Output, options: WorkOptions) -> Outcome:
    """Makes one file, which is no archive, and returns its outcome. Raises errors that
    `upscale_file` does not name."""
    try:
        made = upscale_file(job, output, lambda: enlarger, options)
    except Exception as error:
        return outcome_of_error(job, output, error)
    return Outcome(job, made)


@dataclass
class Tally:
    """Counts and sums of the outcomes of a batch, and its failed outcomes."""

    counts: Counter[str] = field(default_factory=Counter)
    """Outcomes of each status but failed."""
    failed: dict[Path, Outcome] = field(default_factory=dict)
    """Failed outcomes by source. A file that has changed and succeeds later is removed."""
    damaged: dict[Path, Outcome] = field(default_factory=dict)
    """Those of files that are made of damaged ones, likewise."""
    spent: Counter[str] = field(default_factory=Counter)
    """Seconds by stage, of all finished pictures."""
    levels: Counter[int | None] = field(default_factory=Counter)
    """JPEGs, also pages, by their chosen noise level."""
    pictures: int = 0
    """Pictures in finished files that are no films."""
    films: int = 0
    frames: int = 0
    """Those of finished films."""
    recomputed: int = 0
    """Those that were computed again in fp32."""
    pixels: int = 0
    start: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Counts an outcome."""
        if outcome.status == "failed":
            self.failed[outcome.job.source] = outcome
            return
        self.failed.pop(outcome.job.source, None)
        self.damaged.pop(outcome.job.source, None)
        if outcome.error:
            self.damaged[outcome.job.source] = outcome
        self.counts[outcome.status] += 1
        if (made := outcome.made) is None:
            return
        self.spent.update(made.spent)
        self.levels.update(choice.level for choice in made.choices)
        if not made.copied:
            self.recomputed += made.recomputed
            self.pixels += made.pixels
        if made.film is not None:
            self.films += not outcome.error
            self.frames += 0 if outcome.error else made.film["frames"]
        elif not made.copied:
            self.pictures += made.pictures

    @property
    def troubled(self) -> list[Outcome]:
        """Returns the outcomes of files that failed or are damaged."""
        return [*self.failed.values(), *self.damaged.values()]

    @property
    def ended(self) -> int:
        """Returns how many files have ended, including failed ones."""
        return self.counts.total() + len(self.failed)

    @property
    def seconds(self) -> float:
        """Returns the seconds since the start."""
        return time.monotonic() - self.start

    @property
    def rate(self) -> float:
        """Returns the megapixels of results a second."""
        return self.pixels / 1e6 / max(self.seconds, 1e-9)
