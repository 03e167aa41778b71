"""One picture from file to file: read, enlarged, written, each stage with its seconds."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.errors import ImageError, OutputError
from waifu2x.files import reason
from waifu2x.pictures import formats
from waifu2x.pictures.adapt import Wishes, adapt, check_results, finish
from waifu2x.pictures.limits import MAX_PIXELS
from waifu2x.pictures.picture import Frames, Picture
from waifu2x.pictures.profiles import in_srgb_tone
from waifu2x.pictures.read import decode, read
from waifu2x.pictures.write import EXISTS, encode, write
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


Note = Callable[[Job, str], None]
"""What is told of a job in words."""


@dataclass(frozen=True)
class Output:
    """How results are written."""

    extension: str
    quality: int | None
    existing: Existing
    wishes: Wishes = field(default_factory=Wishes)
    copy_times: bool = False
    """Whether a result gets the dates of its source."""


@dataclass(frozen=True)
class Made:
    """A picture that was made, and the seconds of each stage."""

    height: int
    width: int
    """Of the first picture, where there are several."""
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
    """How many files may be loaded, processed and saved at a time, and how large one may be."""

    def __init__(self, load: int, process: int, save: int, max_pixels: int = MAX_PIXELS) -> None:
        self.max_pixels = max_pixels
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
    on_note: Note = lambda job, note: None,
    sources: frozenset[Identity] = frozenset(),
) -> Made | None:
    """Reads, enlarges and writes one file; None if it is there already and may stay.

    `upscaler` is called when the file has been read; `on_note` before the work, with a line about
    what the output does not keep, if there is anything. Nothing in `sources` is ever replaced.
    Raises Waifu2xError, OSError, MemoryError.
    """
    if not may_write(job, output.existing, sources):
        return None
    start = time.monotonic()
    with stages.load:
        source = _read(job.source, stages.max_pixels)
    read_at = time.monotonic()
    network = upscaler()
    source = prepared(source, network, output, _name(job.target, "standard output"), job, on_note)
    with stages.process:
        ready_at = time.monotonic()
        result = enlarged(source, network, on_progress)
    done_at = time.monotonic()
    with stages.save:
        result = finished(result, output)
        _write(result, job, output)
    end = time.monotonic()
    height, width = result.pictures[0].pixels.shape[:2]
    return Made(
        height, width, read_at - start, ready_at - read_at, done_at - ready_at, end - done_at
    )


def prepared(
    source: Frames, network: Upscaler, output: Output, name: str, job: Job, on_note: Note
) -> Frames:
    """What is to be enlarged of a file; `name` is the output's. Raises OutputError if it is no use.

    Tells what the output will not keep.
    """
    form = formats.of(output.extension)
    source, notes = adapt(source, form, output.wishes)
    shapes = [_result_shape(picture, network) for picture in source.pictures]
    check_results(form, shapes, source.pictures[0].pixels.dtype.itemsize, name)
    if notes:
        on_note(job, "; ".join(notes))
    return source


def _result_shape(picture: Picture, network: Upscaler) -> tuple[int, int, int]:
    """Rows, columns and planes of what becomes of a picture, transparency among them."""
    height, width, planes = picture.pixels.shape
    return height * network.scale, width * network.scale, planes + (picture.alpha is not None)


def finished(result: Frames, output: Output) -> Frames:
    """Results as they are written."""
    form = formats.of(output.extension)
    pictures = (finish(picture, form, output.wishes) for picture in result.pictures)
    return replace(result, pictures=tuple(pictures))


def enlarged(source: Frames, network: Upscaler, on_progress: Progress) -> Frames:
    """Every picture enlarged; those of an animation that repeat, once."""
    share = scaled(on_progress, 1 / len(source.pictures))
    done: dict[bytes, Picture] = {}
    results = []
    for picture in source.pictures:
        digest = _digest(picture) if source.animated else b""
        found = done.get(digest)
        if found is None:
            found = in_srgb_tone(picture, partial(network.picture, on_progress=share))
            if source.animated:
                done[digest] = found
        else:
            share(1.0)
        results.append(found)
    return replace(source, pictures=tuple(results))


def _digest(picture: Picture) -> bytes:
    digest = hashlib.blake2b(picture.pixels.data, digest_size=16)
    if picture.alpha is not None:
        digest.update(picture.alpha.data)
    return digest.digest()


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
        raise OutputError(EXISTS.format(job.target))
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


def copy_times(job: Job, output: Output) -> None:
    """Gives a result the dates of its source, if that is wished for."""
    if output.copy_times and job.source != STANDARD:
        status = job.source.stat()
        os.utime(job.target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _name(path: Path, standard: str) -> str:
    return standard if path == STANDARD else str(path)


def _read(source: Path, max_pixels: int) -> Frames:
    if source != STANDARD:
        return read(source, max_pixels)
    if sys.stdin is None:
        raise ImageError("standard input: is closed")
    return decode(sys.stdin.buffer.read(), "standard input", max_pixels)


def _write(result: Frames, job: Job, output: Output) -> None:
    if job.target != STANDARD:
        make_folder(job.target.parent)
        overwrite = output.existing == "overwrite"
        write(result, job.target, output.extension, output.quality, replace=overwrite)
        copy_times(job, output)
        return
    if sys.stdout is None:
        raise OutputError("standard output: is closed")
    content = io.BytesIO()  # a pipe cannot be sought
    encode(result, output.extension, output.quality, "standard output", content)
    sys.stdout.buffer.write(content.getbuffer())
    sys.stdout.buffer.flush()
