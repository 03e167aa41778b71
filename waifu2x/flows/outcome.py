"""What becomes of one file, whatever goes wrong with it."""

from __future__ import annotations

import logging
import traceback
from contextlib import nullcontext
from typing import Literal

from waifu2x.backends import Progress, ignore
from waifu2x.errors import LESS_MEMORY, BackendError, DeviceError, FaultError, Waifu2xError
from waifu2x.flows.flow import StoppedError
from waifu2x.flows.jobs import Identity, Job, OnNotice, Output, Reserve
from waifu2x.flows.upscaling import Upscaled, upscale_file
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.system.files import is_disk_full, reason
from waifu2x.system.lazy_dataclass import dataclass

_LOG = logging.getLogger(__name__)
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
    """Returns the outcome of a job whose work raised an error; any may be a fault of this program.

    Raises StoppedError where that is the error.
    """
    device_failed = disk_full = False
    if isinstance(error, StoppedError):
        raise error
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
        for line in "".join(traceback.format_exception(error)).splitlines():
            _LOG.debug("%s", line)
        message = str(FaultError(f"{job.source}: {type(error).__name__}: {error}"))
    message = message or repr(error)
    return Outcome(job, error=message, device_failed=device_failed, disk_full=disk_full)


def run_one(
    job: Job,
    enlarger: Enlarger,
    output: Output,
    *,
    max_pixels: int = MAX_PIXELS,
    reserve: Reserve = lambda content: nullcontext(),
    on_progress: Progress = ignore,
    on_notice: OnNotice = lambda job, notice: None,
    sources: frozenset[Identity] = frozenset(),
    in_flight: int = 1,
) -> Outcome:
    """The outcome of one file, which is no archive; errors are a failed outcome.

    Arguments are those of `upscale_file`. Raises StoppedError where it does.
    """
    try:
        made = upscale_file(
            job,
            output,
            lambda: enlarger,
            max_pixels=max_pixels,
            reserve=reserve,
            on_progress=on_progress,
            on_notice=on_notice,
            sources=sources,
            alone=False,
            in_flight=in_flight,
        )
    except Exception as error:
        return outcome_of_error(job, output, error)
    return Outcome(job, made)
