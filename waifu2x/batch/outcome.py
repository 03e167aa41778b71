"""What becomes of one file, whatever goes wrong with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from waifu2x import archive
from waifu2x.backends import Progress
from waifu2x.errors import BackendError, DeviceError, Waifu2xError
from waifu2x.files import reason
from waifu2x.pipeline import Identity, Job, Made, Note, Output, Stages, make
from waifu2x.upscaler import Upscaler


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    status: Literal["done", "copied", "skipped", "failed"]
    """`copied`: it was to stay as it is, and so did its file."""
    seconds: float
    height: int = 0
    width: int = 0
    error: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each stage of what is done."""
    device_failed: bool = False
    """Nothing more can be computed."""


def outcome_of(job: Job, made: Made | None) -> Outcome:
    """What `pipeline.make` gives, as an outcome."""
    if made is None:
        return Outcome(job, "skipped", 0.0)
    spent = made.spent
    status: Literal["done", "copied"] = "copied" if made.copied else "done"
    return Outcome(job, status, spent.total, made.height, made.width, spent=spent.seconds)


def run_one(
    job: Job,
    upscaler: Upscaler,
    output: Output,
    on_progress: Progress,
    stages: Stages,
    sources: frozenset[Identity],
    on_note: Note = lambda job, note: None,
) -> Outcome:
    """How one file ends: `pipeline.make` or `make_archive`, with errors as a failed outcome."""
    start = time.monotonic()
    device_failed = False
    try:
        archived = job.source.suffix[1:].lower() in archive.EXTENSIONS
        work = archive.make_archive if archived else make
        made = work(
            job,
            output,
            lambda: upscaler,
            stages=stages,
            on_progress=on_progress,
            on_note=on_note,
            sources=sources,
        )
    except BackendError as error:
        message = f"{job.source}: {error}"
        device_failed = isinstance(error, DeviceError)
    except Waifu2xError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or job.source}: {reason(error)}"
    except MemoryError:
        message = f"{job.source}: not enough memory for the result: use a smaller scale"
    else:
        return outcome_of(job, made)
    seconds = time.monotonic() - start
    return Outcome(job, "failed", seconds, error=message, device_failed=device_failed)
