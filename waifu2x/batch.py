"""A folder of pictures: what goes where, and the work on several pictures at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from waifu2x import picture
from waifu2x.backends import Progress
from waifu2x.errors import BackendError, DeviceError, Waifu2xError
from waifu2x.files import reason
from waifu2x.pipeline import Identity, Job, Made, Output, Stages, identities, make
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


@dataclass(frozen=True)
class Plan:
    """What is to be done about a folder."""

    jobs: list[Job]
    unreadable: list[Outcome]
    """Folders in it that could not be looked into, as failed outcomes."""
    passed_over: int
    """Files that are no pictures by their names, and links to folders; hidden ones do not count."""


def plan(folder: Path, target: Path, extension: str, recursive: bool) -> Plan:
    """The pictures of a folder in order of path, each with a target of its own.

    Hidden files, other file types, links to folders and the target folder itself are passed over.
    Pictures whose targets would be one (a.jpg, a.png) keep their type in the target's name
    (a.jpg.png, a.png.png).
    """
    unreadable: list[Outcome] = []
    sources: list[Path] = []
    passed_over = 0
    for path, error in _walk(folder, recursive, target.resolve()):
        if error is not None:
            message = f"{path}: cannot read the folder: {reason(error)}"
            unreadable.append(Outcome(Job(path, target), "failed", 0.0, error=message))
        elif path.suffix[1:].lower() in picture.EXTENSIONS:
            sources.append(path.relative_to(folder))
        else:
            passed_over += 1
    names = _target_names(sorted(sources), extension)
    jobs = [Job(folder / source, target / name) for source, name in names.items()]
    return Plan(jobs, unreadable, passed_over)


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
) -> Outcome:
    """How one picture ends: `pipeline.make`, with errors as a failed outcome."""
    start = time.monotonic()
    device_failed = False
    try:
        made = make(
            job, output, lambda: upscaler, stages=stages, on_progress=on_progress, sources=sources
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


def run(
    jobs: Sequence[Job],
    upscaler: Upscaler,
    output: Output,
    stages: Stages,
    on_progress: Callable[[Job, float], None],
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
        outcome = run_one(job, upscaler, output, report, stages, sources)
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


def _target_names(sources: Sequence[Path], extension: str) -> dict[Path, Path]:
    """A name for each source: its stem with the new type, or its whole name where that clashes."""
    with_type: set[Path] = set()
    while True:
        names = {
            source: source.with_name(
                f"{source.name if source in with_type else source.stem}.{extension}"
            )
            for source in sources
        }
        # Case does not tell files apart everywhere.
        counts = Counter(str(name).lower() for name in names.values())
        clashing = {source for source in sources if counts[str(names[source]).lower()] > 1}
        if clashing <= with_type:
            return names
        with_type |= clashing


def _walk(folder: Path, recursive: bool, excluded: Path) -> Iterator[tuple[Path, OSError | None]]:
    """Files of a folder, links to folders, and folders that cannot be read with the reason."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        yield folder, error
        return
    for path in entries:
        if path.name.startswith("."):
            continue
        if not path.is_dir() or path.is_symlink():
            yield path, None
        elif recursive and path.resolve() != excluded:
            yield from _walk(path, recursive, excluded)
