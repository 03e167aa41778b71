"""A folder of pictures: what goes where, and the work on several pictures at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from waifu2x import picture
from waifu2x.backends import Progress
from waifu2x.errors import ImageError, OutputError, Waifu2xError
from waifu2x.files import reason
from waifu2x.upscaler import Upscaler

Existing = Literal["fail", "overwrite", "skip"]
"""What to do about an output that is there already."""


@dataclass(frozen=True)
class Job:
    """One picture to make."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    status: Literal["done", "skipped", "failed"]
    seconds: float
    height: int = 0
    width: int = 0
    error: str = ""


@dataclass(frozen=True)
class Output:
    """How results are written."""

    extension: str
    quality: int | None
    existing: Existing


class Stages:
    """How many pictures may be loaded, processed and saved at a time."""

    def __init__(self, load: int, process: int, save: int) -> None:
        self.pictures = load + process + save
        self.load = threading.BoundedSemaphore(load)
        self.process = threading.BoundedSemaphore(process)
        self.save = threading.BoundedSemaphore(save)


def plan(folder: Path, target: Path, extension: str, recursive: bool) -> list[Job]:
    """The pictures of a folder in order of path, each with a target of its own.

    Hidden files, other file types and the target folder itself are passed over. Pictures of one
    name and different types (a.jpg, a.png) keep their type in the target's name (a.jpg.png).
    Raises ImageError if the folder cannot be read.
    """
    try:
        found = [
            path
            for path in _walk(folder, recursive, target.resolve())
            if path.suffix[1:].lower() in picture.EXTENSIONS
        ]
    except OSError as error:
        raise ImageError(f"{folder}: cannot read the folder: {reason(error)}") from error
    # Case does not tell files apart everywhere.
    names = Counter(str(path.with_suffix("")).lower() for path in found)
    jobs = []
    for path in sorted(found):
        relative = path.relative_to(folder)
        alone = names[str(path.with_suffix("")).lower()] == 1
        stem = relative.stem if alone else relative.name
        jobs.append(Job(path, target / relative.parent / f"{stem}.{extension}"))
    return jobs


def run_one(
    job: Job,
    upscaler: Upscaler,
    output: Output,
    on_progress: Progress,
    stages: Stages | None = None,
) -> Outcome:
    """Reads, enlarges and writes one picture; errors become a failed outcome."""
    stages = stages or Stages(1, 1, 1)
    start = time.monotonic()
    try:
        if not may_write(job, output.existing):
            return Outcome(job, "skipped", 0.0)
        with stages.load:
            source = picture.read(job.source)
        height, width = (size * upscaler.scale for size in source.pixels.shape[:2])
        name = str(job.target)
        picture.check_output(output.extension, height, width, source.alpha is not None, name)
        with stages.process:
            result = upscaler.picture(source, on_progress)
        with stages.save:
            _make_folder(job.target.parent)
            picture.write(result, job.target, output.extension, output.quality)
    except Waifu2xError as error:
        return Outcome(job, "failed", time.monotonic() - start, error=str(error))
    except MemoryError:
        message = f"{job.source}: not enough memory for the result: use a smaller scale"
        return Outcome(job, "failed", time.monotonic() - start, error=message)
    return Outcome(job, "done", time.monotonic() - start, height, width)


def may_write(job: Job, existing: Existing) -> bool:
    """Whether the target is free or may be replaced; False says skip. Raises OutputError."""
    if not job.target.exists():
        return True
    if job.target.is_dir():
        raise OutputError(f"{job.target}: is a folder, not a file")
    if job.source.exists() and job.target.samefile(job.source):
        raise OutputError(f"{job.target}: is the input itself: choose another output")
    if existing == "fail":
        raise OutputError(f"{job.target}: exists already: use --overwrite or --skip-existing")
    return existing == "overwrite"


def run(
    jobs: Sequence[Job],
    upscaler: Upscaler,
    output: Output,
    stages: Stages,
    on_progress: Callable[[Job, float], None],
) -> Generator[Outcome]:
    """The outcome of each job, as it ends; one picture's failure does not concern the others.

    At most `stages.pictures` pictures are in memory. Closing the iterator, or an interrupt, stops
    the work: finished files stay, unfinished ones leave nothing.
    """
    stopped = threading.Event()

    def work(job: Job) -> Outcome:
        def report(part: float) -> None:
            if stopped.is_set():
                raise _StoppedError
            on_progress(job, part)

        return run_one(job, upscaler, output, report, stages)

    pool = ThreadPoolExecutor(stages.pictures, thread_name_prefix="waifu2x-batch")
    try:
        futures = [pool.submit(work, job) for job in jobs]
        for future in as_completed(futures):
            yield future.result()
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot make the folder: {reason(error)}") from error


class _StoppedError(Exception):
    """Ends the work on a picture from within its progress report."""


def _walk(folder: Path, recursive: bool, excluded: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if recursive and path.resolve() != excluded and not path.is_symlink():
                yield from _walk(path, recursive, excluded)
        elif path.is_file():
            yield path
