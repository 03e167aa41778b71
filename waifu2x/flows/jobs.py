"""A file to make of another: what it is called, and whether it may be written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from waifu2x.errors import ExistsError, OutputError
from waifu2x.formats import table
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.system import stores
from waifu2x.system.files import reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.imaging.streams import Allocate

Existing = Literal["fail", "overwrite", "skip"]
"""What to do about an output that is there already."""
Identity = tuple[int, int] | str
"""Device and inode of a file, or its URL: what tells it from others, whatever its path."""
ARCHIVES = ("cbz", "zip")
"""Extensions of files whose pictures are enlarged, each as a file of its own."""
STANDARD = Path("-")
"""Standard input as a source, standard output as a target."""

IN_FLIGHT = 2
"""Pictures of a file that is worked on alone: one is computed while the one before it is encoded
and the next decoded."""


@dataclass(frozen=True)
class Job:
    """A file to read, and the file to make of it."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Output:
    """How results are written."""

    extension: str
    quality: Quality
    existing: Existing
    options: OutputOptions = OutputOptions()
    copy_times: bool = False
    """Whether a result gets the dates of its source."""
    preview_side: int = 0
    """Pixels a side of small pictures of source and result that are wanted, too; 0 for none."""
    pages: str | None = None
    """Extension of the pages of archives; None: each keeps its format."""

    def of(self, target: Path) -> Output:
        """As a target is written: the extension of its name is that of the format, if it is one."""
        suffix = target.suffix[1:].lower()
        if suffix in table.WRITABLE and suffix != self.extension:
            return replace(self, extension=suffix)
        return self


@dataclass(frozen=True)
class InFlight:
    """How many pictures are under way at a time, and how many of them in the network."""

    pictures: int
    in_network: int


OnNotice = Callable[[Job, str], None]
"""Told of a job in words, for people."""
Reserve = Callable[[bytes], "AbstractContextManager[Allocate | None]"]
"""Waits until there is memory for the picture of a file with that content, and all that becomes of
it; the memory is free again when the context ends. The context gives what makes the arrays of
pictures; None: any memory will do."""


def is_archive(path: Path) -> bool:
    """Whether a file is an archive of pictures, by its name."""
    return path.suffix[1:].lower() in ARCHIVES


def may_write(job: Job, existing: Existing, sources: frozenset[Identity] = frozenset()) -> bool:
    """Whether the target is free or may be replaced; False says skip. Raises OutputError. Whatever
    is an input, the job's own or one of `sources`, is never replaced."""
    if job.target == STANDARD:
        return True
    try:
        status = stores.stat(job.target) if stores.is_url(job.target) else job.target.stat()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{job.target}: is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{job.target}: is not a plain file; for stdout give -")
    identity = _identity(job.target, status)
    if identity in sources or identity in identities([job]):
        raise OutputError(f"{job.target}: is an input itself: choose another output")
    if existing == "fail":
        raise ExistsError(job.target)
    return existing == "overwrite"


def identities(jobs: Iterable[Job]) -> frozenset[Identity]:
    """What tells the sources of jobs from other files, whatever their paths."""
    found = set()
    for job in jobs:
        with suppress(OSError):
            found.add(_identity(job.source))
    return frozenset(found)


def _identity(path: Path, status: os.stat_result | None = None) -> Identity:
    if stores.is_url(path):
        return str(path)
    status = status or path.stat()
    return status.st_dev, status.st_ino


def make_folder(folder: Path) -> None:
    """Makes a folder for outputs, and those above it, if they are missing. Raises OutputError."""
    if stores.is_url(folder):
        return  # object stores have none
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot make the folder: {reason(error)}") from error


def copy_times(job: Job, output: Output) -> None:
    """Gives a result the dates of its source, if that is asked for."""
    if output.copy_times and job.source != STANDARD:
        status = job.source.stat()
        os.utime(job.target, ns=(status.st_atime_ns, status.st_mtime_ns))
