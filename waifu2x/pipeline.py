"""One picture from file to file: read, enlarged, written, each with its seconds."""

from __future__ import annotations

import contextlib
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from waifu2x import picture
from waifu2x.backends import Progress, ignore
from waifu2x.errors import ImageError, OutputError
from waifu2x.files import reason, write_atomically
from waifu2x.stopwatch import Stopwatch
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
    """A picture that was made, and what it took."""

    height: int
    width: int
    spent: Stopwatch
    """Seconds of `read`, of `prepare`, until the upscaler is there and the output's format is known
    to hold the result, of what the upscaler tells, and of `write`."""
    copied: bool = False
    """Whether it stays as it is, and so does its file."""


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
    on_size: Callable[[int, int], None] = lambda height, width: None,
    on_progress: Progress = ignore,
    sources: frozenset[Identity] = frozenset(),
) -> Made | None:
    """Reads, enlarges and writes one picture; None if it is there already and may stay.

    `upscaler` is called when the picture has been read, `on_size` with the size of the result
    before the work. Nothing in `sources` is ever replaced. Raises Waifu2xError, OSError,
    MemoryError.
    """
    if not may_write(job, output.existing, sources):
        return None
    spent = Stopwatch()
    with stages.load, spent("read"):
        source = _read(job.source)
    with spent("prepare"):
        network = upscaler()
        size = source.pixels.shape[0], source.pixels.shape[1]
        height, width = _result_size(network, size, _name(job.source, "standard input"))
    if network.leaves(*size) and _is_file_of(job, output.extension):
        with stages.save, spent("write"):
            _copy(job, output)
        return Made(height, width, spent, copied=True)
    name = _name(job.target, "standard output")
    planes = source.pixels.shape[-1] + (source.alpha is not None)
    picture.check_output(output.extension, (height, width, planes), source.transparent, name)
    on_size(height, width)
    with stages.process:
        result = network.picture(source, on_progress, spent)
    with stages.save, spent("write"):
        _write(result, job.target, output)
    return Made(height, width, spent)


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


def _result_size(network: Upscaler, size: tuple[int, int], name: str) -> tuple[int, int]:
    """Of a picture of that size; errors name it."""
    try:
        return network.result_size(*size)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error


def _is_file_of(job: Job, extension: str) -> bool:
    """Whether a job is from file to file, and the source is of that format by its name."""
    suffix = job.source.suffix[1:].lower()
    known = suffix in picture.EXTENSIONS and picture.same_format(suffix, extension)
    return known and STANDARD not in (job.source, job.target)


def _copy(job: Job, output: Output) -> None:
    """The source's file as the target's, to the byte."""
    try:
        data = job.source.read_bytes()
    except OSError as error:
        raise ImageError(f"{job.source}: cannot read: {reason(error)}") from error
    make_folder(job.target.parent)
    try:
        write_atomically(job.target, data, replace=output.existing == "overwrite")
    except FileExistsError as error:
        raise OutputError(picture.EXISTS.format(job.target)) from error
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error


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
