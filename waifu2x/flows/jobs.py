"""Jobs: a file to make of another, its output options, and whether it may be written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from waifu2x.errors import ExistsError, OutputError
from waifu2x.formats import film, table
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.system import stores
from waifu2x.system.files import explained, reason
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.imaging.streams import Allocate

Existing = Literal["fail", "overwrite", "skip", "keep"]
"""The handling of an existing output; `keep`: the work is done, and the file stays."""
Identity = tuple[int, int] | str
"""Device and inode of a file, or its URL, which identify it under any path."""
ARCHIVES = ("cbz", "zip")
"""Extensions of archives, whose pictures are enlarged one by one."""
ARCHIVES_READ = (*ARCHIVES, "cbr")
"""A .cbr should be a RAR, but many are ZIPs; a result is a .cbz then."""
STANDARD = Path("-")
"""Standard input as a source, standard output as a target."""

IN_FLIGHT = 2
"""Pictures under way of a file that is made alone: one is decoded, one computed, one encoded."""


@dataclass(frozen=True)
class Job:
    """A file to read, and the file to make of it."""

    source: Path
    target: Path
    repeated: bool = False
    """Whether a lost process may have made the file already."""


@dataclass(frozen=True)
class Output:
    """Options of the output."""

    extension: str
    quality: Quality
    existing: Existing
    options: OutputOptions = OutputOptions()
    copy_times: bool = False
    """Whether a result gets the dates of its source."""
    preview_side: int = 0
    """Side in pixels of previews of source and result; 0 for none."""
    pages: str | None = None
    """Extension of the pages of archives; None: each keeps its format."""
    pages_only: bool = False
    """Whether of an archive's other files only ComicInfo.xml goes into the result, written anew:
    the archive is a stranger's."""

    @property
    def replaces(self) -> bool | None:
        """Returns whether an existing file is replaced; None: it stays, and is no error."""
        return None if self.existing == "keep" else self.existing == "overwrite"

    def again(self, job: Job) -> Output:
        """Returns the options for a job: the file that a lost process has made of it stays, unless
        it may be replaced."""
        if job.repeated and self.existing != "overwrite":
            return replace(self, existing="keep")
        return self

    def of(self, target: Path) -> Output:
        """Returns the options for a target: the extension of its name decides its
        format, if known."""
        suffix = target.suffix[1:].lower()
        if suffix in table.WRITABLE and suffix != self.extension:
            return replace(self, extension=suffix)
        return self


@dataclass(frozen=True)
class InFlight:
    """Pictures under way, and how many of them in the network."""

    pictures: int
    in_network: int


OnNotice = Callable[[Job, str], None]
"""Called with a job and a message for people."""
Reserve = Callable[[bytes], "AbstractContextManager[Allocate | None]"]
"""Waits for the memory that a file with that content and its result need. The context frees it at
its end, and gives the function that allocates pictures; None: any memory will do."""


def is_archive(path: Path) -> bool:
    """Returns whether a name is that of an archive of pictures."""
    return path.suffix[1:].lower() in ARCHIVES_READ


def result_extension(suffix: str) -> str | None:
    """Returns the extension of an archive's or a film's result by that of its source, both without
    dots; None for what is neither."""
    if suffix in film.READABLE:
        return film.result_extension(suffix)
    if suffix not in ARCHIVES_READ:
        return None
    return suffix if suffix in ARCHIVES else ARCHIVES[0]


def may_write(job: Job, existing: Existing, sources: frozenset[Identity] = frozenset()) -> bool:
    """Returns whether the target is free or may be replaced; False means skip. Inputs, the job's
    own and `sources`, are never replaced. Raises OutputError."""
    if job.target == STANDARD:
        return True
    try:
        status = stores.stat(job.target) if stores.is_url(job.target) else job.target.stat()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise OutputError(f"{job.target}: cannot write: {reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{job.target}: it is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{job.target}: it is not a plain file; for stdout give -")
    identity = _identity(job.target, status)
    if identity in sources or identity in identities([job]):
        raise OutputError(f"{job.target}: it is an input itself", "choose another output")
    if existing == "fail":
        raise ExistsError(job.target)
    return existing != "skip"


def identities(jobs: Iterable[Job]) -> frozenset[Identity]:
    """Returns the identities of the sources of jobs."""
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
    """Makes a folder and its parents. Raises OutputError."""
    if stores.is_url(folder):
        return  # object stores have none
    with explained(OutputError, f"{folder}: cannot make the folder"):
        folder.mkdir(parents=True, exist_ok=True)


def copy_times(job: Job, output: Output) -> None:
    """Gives a result the dates of its source, if `output` says so."""
    if output.copy_times and job.source != STANDARD:
        status = job.source.stat()
        os.utime(job.target, ns=(status.st_atime_ns, status.st_mtime_ns))
