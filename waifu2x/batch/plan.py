"""What is to be done about a folder: which files, and what each is to be called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from waifu2x import archive
from waifu2x.batch.outcome import Outcome
from waifu2x.files import reason
from waifu2x.pictures import formats
from waifu2x.pipeline import Job


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
        elif path.suffix[1:].lower() in (*formats.READABLE, *archive.EXTENSIONS):
            sources.append(path.relative_to(folder))
        else:
            passed_over += 1
    names = _target_names(sorted(sources), extension)
    jobs = [Job(folder / source, target / name) for source, name in names.items()]
    return Plan(jobs, unreadable, passed_over)


def _target_names(sources: Sequence[Path], extension: str) -> dict[Path, Path]:
    """A name for each source: its stem with the new type, or its whole name where that clashes."""
    with_type: set[Path] = set()
    while True:
        names = {
            source: source.with_name(
                f"{source.name if source in with_type else source.stem}.{_type(source, extension)}"
            )
            for source in sources
        }
        # Case does not tell files apart everywhere.
        counts = Counter(str(name).lower() for name in names.values())
        clashing = {source for source in sources if counts[str(names[source]).lower()] > 1}
        if clashing <= with_type:
            return names
        with_type |= clashing


def _type(source: Path, extension: str) -> str:
    """Of a source's target: an archive stays one, with pictures of the new type in it."""
    suffix = source.suffix[1:].lower()
    return suffix if suffix in archive.EXTENSIONS else extension


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
