"""One picture from file to file: read, enlarged, written, each stage with its seconds."""

from __future__ import annotations

import contextlib
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from waifu2x import picture
from waifu2x.backends import Progress, ignore
from waifu2x.errors import ImageError, OutputError
from waifu2x.files import reason
from waifu2x.upscaler import Upscaler

Existing = Literal["fail", "overwrite", "skip"]
"""What to do about an output that is there already."""
Identity = tuple[int, int]
"""Device and inode of a file."""
STANDARD = Path("-")
"""Standard input as a source, standard output as a target."""


@dataclass(frozen=True)
class Job:
    """One picture to make."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Output:
    """How results are written."""

    extension: str
    quality: int | None
    existing: Existing


@dataclass(frozen=True)
class Made:
    """A picture that was made, and the seconds of each stage."""

    height: int
    width: int
    read: float
    prepare: float
    """Until the upscaler is there and the output's format is known to hold the result."""
    compute: float
    write: float

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return self.read + self.prepare + self.compute + self.write


class Stages:
    """How many pictures may be loaded, processed and saved at a time."""

    def __init__(self, load: int, process: int, save: int) -> None:
        self.pictures = load + process + save
        self.load = threading.BoundedSemaphore(load)
        self.process = threading.BoundedSemaphore(process)
        self.save = threading.BoundedSemaphore(save)


def make(
    job: Job,
    output: Output,
    upscaler: Callable[[], Upscaler],
    *,
    stages: Stages,
    on_progress: Progress = ignore,
    sources: frozenset[Identity] = frozenset(),
) -> Made | None:
    """Reads, enlarges and writes one picture; None if it is there already and may stay.

    `upscaler` is called when the picture has been read. Nothing in `sources` is ever replaced.
    Raises Waifu2xError, OSError, MemoryError.
    """
    if not may_write(job, output.existing, sources):
        return None
    start = time.monotonic()
    with stages.load:
        source = _read(job.source)
    read_at = time.monotonic()
    network = upscaler()
    height, width = (size * network.scale for size in source.pixels.shape[:2])
    name = _name(job.target, "standard output")
    planes = source.pixels.shape[-1] + (source.alpha is not None)
    picture.check_output(output.extension, (height, width, planes), source.transparent, name)
    with stages.process:
        ready_at = time.monotonic()
        result = network.picture(source, on_progress)
    done_at = time.monotonic()
    with stages.save:
        _write(result, job.target, output)
    end = time.monotonic()
    return Made(
        height, width, read_at - start, ready_at - read_at, done_at - ready_at, end - done_at
    )


def may_write(job: Job, existing: Existing, sources: frozenset[Identity] = frozenset()) -> bool:
    """Whether the target is free or may be replaced; False says skip. Raises OutputError.

    Whatever is an input, the job's own or one of `sources`, is never replaced.
    """
    if job.target == STANDARD:
        return True
    try:
        status = job.target.stat()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{job.target}: is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{job.target}: is not a plain file; for stdout give -")
    identity = (status.st_dev, status.st_ino)
    if identity in sources or identity in identities([job]):
        raise OutputError(f"{job.target}: is an input itself: choose another output")
    if existing == "fail":
        raise OutputError(picture.EXISTS.format(job.target))
    return existing == "overwrite"


def identities(jobs: Iterable[Job]) -> frozenset[Identity]:
    """What tells the sources of jobs from other files, whatever their paths."""
    found = set()
    for job in jobs:
        with contextlib.suppress(OSError):
            status = job.source.stat()
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def make_folder(folder: Path) -> None:
    """A folder for outputs and those above it, if need be. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot make the folder: {reason(error)}") from error


def _name(path: Path, standard: str) -> str:
    return standard if path == STANDARD else str(path)


def _read(source: Path) -> picture.Picture:
    if source != STANDARD:
        return picture.read(source)
    if sys.stdin is None:
        raise ImageError("standard input: is closed")
    return picture.decode(sys.stdin.buffer.read(), "standard input")


def _write(result: picture.Picture, target: Path, output: Output) -> None:
    if target != STANDARD:
        make_folder(target.parent)
        replace = output.existing == "overwrite"
        picture.write(result, target, output.extension, output.quality, replace=replace)
        return
    data = picture.encode(result, output.extension, output.quality, "standard output")
    if sys.stdout is None:
        raise OutputError("standard output: is closed")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
