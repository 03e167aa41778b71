"""Plans the work on a folder: finds its pictures and films, and names the result of each."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, overload

from waifu2x.flows.jobs import ARCHIVES, ARCHIVES_READ, Job, result_extension
from waifu2x.flows.outcome import Outcome
from waifu2x.formats import film, table
from waifu2x.system import stores
from waifu2x.system.files import open_regular, reason
from waifu2x.system.lazy_dataclass import dataclass

NameOf = Callable[[Path, str, str], str]
"""Names a result by its source, by a unique stem, and by its extension."""

_TAKEN = frozenset((*table.READABLE, *ARCHIVES, *film.READABLE))
_JUNK = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini"))
"""Files that systems put beside pictures; macOS hides its own."""
_JUNK_FOLDERS = frozenset(
    ("__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found")
)
"""Folders of systems, which hold no pictures of the user's."""


class JobList(Sequence[Job]):
    """Jobs from the files of one folder to their results in another. Names are kept as text: a
    folder may have hundreds of thousands, and a Job takes half a KiB."""

    def __init__(self, folder: Path, target: Path, names: Sequence[tuple[str, str]]) -> None:
        """`names` are paths in the two folders, with slashes."""
        self.folder = folder
        self.target = target
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> JobList: ...
    def __getitem__(self, at: int | slice) -> Job | JobList:
        if isinstance(at, slice):
            return JobList(self.folder, self.target, self.names[at])
        return self.job(*self.names[at])

    def __iter__(self) -> Iterator[Job]:
        return (self.job(*names) for names in self.names)

    def job(self, source: str, target: str) -> Job:
        return Job(self.folder / source, self.target / target)

    def where(self, wanted: Callable[[str, str], bool]) -> JobList:
        """Returns the jobs for whose names, of source and target, `wanted` is true."""
        return JobList(self.folder, self.target, [names for names in self.names if wanted(*names)])


@dataclass(frozen=True)
class Plan:
    """The jobs of a folder."""

    jobs: JobList
    unreadable: list[Outcome]
    """Unreadable subfolders, as failed outcomes."""
    passed_over: int
    """Files that are neither pictures nor films by name, and links to folders; not hidden or junk
    files."""


def plan(
    folder: Path,
    target: Path,
    extension: str,
    recursive: bool,
    name_of: NameOf = lambda source, stem, extension: f"{stem}.{extension}",
) -> Plan:
    """Plans the pictures and films of a folder in order of path, each with a unique target.

    Hidden files, other types, links to folders and the target folder are passed over. Pictures
    whose targets coincide (a.jpg, a.png) keep their type in the name (a.jpg.png, a.png.png). If
    only case or the encoding of accents differs, which some file systems ignore, they are numbered
    (a.jpg.2.png). `name_of` has to name different stems differently.
    """
    unreadable: list[Outcome] = []
    sources: list[str] = []
    passed_over = 0
    for found in walk(folder, recursive, target):
        if found.error is not None:
            path = folder / found.path
            message = f"{path}: cannot read the folder: {reason(found.error)}"
            unreadable.append(Outcome(Job(path, target), error=message))
        elif found.is_file and _is_taken(folder, found.path):
            sources.append(found.path)
        else:
            passed_over += 1
    sources.sort()

    def named(source: str, base: str) -> str:
        place, slash, stem = base.rpartition("/")
        return f"{place}{slash}{name_of(folder / source, stem, _type(source, extension))}"

    targets = _target_names(sources, named)
    names = list(zip(sources, targets, strict=True))
    return Plan(JobList(folder, target, names), unreadable, passed_over)


def _target_names(sources: Sequence[str], named: Callable[[str, str], str]) -> list[str]:
    """Names each source by its path without the extension, or with it where names clash."""
    names = [named(source, source.rpartition(".")[0]) for source in sources]
    with_type: set[int] = set()
    while True:
        clashing = set(_clashing(names))
        if clashing <= with_type:
            break
        for at in clashing - with_type:
            names[at] = named(sources[at], sources[at])
        with_type |= clashing
    taken = {_folded(name) for name in names}
    first: set[str] = set()
    for at in sorted(clashing):
        if _folded(names[at]) not in first:
            first.add(_folded(names[at]))
            continue
        number = 2
        while _folded(name := named(sources[at], f"{sources[at]}.{number}")) in taken:
            number += 1
        names[at] = name
        taken.add(_folded(name))
    return names


def _clashing(names: Iterable[str]) -> Iterator[int]:
    """Yields indices of names that are equal to some file system."""
    folded = [_folded(name) for name in names]
    counts = Counter(folded)
    return (at for at, name in enumerate(folded) if counts[name] > 1)


def _folded(name: str) -> str:
    """Returns a name without differences that some file systems ignore."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name.casefold())


def _type(source: str, extension: str) -> str:
    """Returns the extension of a source's target; archives and films stay what they are."""
    return result_extension(_extension(source)) or extension


def _is_taken(folder: Path, name: str) -> bool:
    """Returns whether a file is a picture, an archive or a film: by its extension, and where that
    is of other files as well, by its first bytes."""
    extension = _extension(name)
    if extension in _TAKEN:
        return extension not in film.READABLE or not film.is_text(folder / name)
    if extension not in ARCHIVES_READ or stores.is_url(folder):
        return False
    try:
        with open_regular(folder / name) as file:
            return file.read(4) == b"PK\3\4"
    except OSError:
        return False


def _extension(path: str) -> str:
    name, _, extension = path.rpartition(".")
    return extension.lower() if name and "/" not in extension else ""


class Found(NamedTuple):
    """A file in a folder, or something else to count."""

    path: str
    """The path in the folder, with slashes; "" is the folder itself."""
    is_file: bool = True
    """True also for a broken link, which fails when it is read."""
    error: OSError | None = None
    """Why a folder cannot be read."""


def walk(folder: Path, recursive: bool, excluded: Path) -> Iterator[Found]:
    """Lists the files in a folder, recursively if `recursive`, without hidden and junk files. Skips
    links to folders, `excluded`, parts of unfinished films, and folders that lie in themselves, as
    bind mounts can make them. Yields a subfolder only if it cannot be read."""
    if stores.is_url(folder):
        yield from _below(folder, recursive, excluded)
        return
    left_out = _identity(excluded)
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        place, above = waiting.pop()
        try:
            status = (folder / place).stat()
            with os.scandir(folder / place) as scanned:
                entries = list(scanned)
        except OSError as error:
            yield Found(place, False, error)
            continue
        identity = status.st_dev, status.st_ino
        if place and identity == left_out:
            continue
        if identity in above:
            yield Found(place, False)
            continue
        for entry in entries:
            path = f"{place}/{entry.name}" if place else entry.name
            if entry.name.startswith(".") or entry.name.lower() in _JUNK:
                continue
            if not _is_folder(entry):
                yield Found(path, _is_file(entry))
            elif recursive and not _is_passed_over(entry.name):
                waiting.append((path, above | {identity}))


def _below(url: Path, recursive: bool, excluded: Path) -> Iterator[Found]:
    for path in stores.listed(url, recursive):
        *folders, name = path.split("/")
        hidden = any(part.startswith(".") for part in (*folders, name))
        junk = name.lower() in _JUNK or any(map(_is_passed_over, folders))
        if not hidden and not junk and excluded not in (url / path).parents:
            yield Found(path)


def _is_passed_over(folder: str) -> bool:
    return folder.lower() in _JUNK_FOLDERS or film.holds_parts(folder)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # some file systems fail here: reading it will tell


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Returns whether an entry is a file or a broken link."""
    try:
        return entry.is_file() or (entry.is_symlink() and not Path(entry).exists())
    except OSError:
        return True  # links in a circle


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
