"""Finds the files of a folder, whatever else lies in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waifu2x.system import stores

_JUNK = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini"))
"""Files that systems put beside pictures; macOS hides its own."""
_JUNK_FOLDERS = frozenset(
    ("__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found")
)
"""What systems keep in folders of these names is no picture of the user's, or not to be read."""


class Found(NamedTuple):
    """A file in a folder, or something else that is counted."""

    path: str
    """The path from the folder on, with slashes; "" is the folder itself."""
    is_file: bool = True
    """True also for a link that leads nowhere: whoever reads it says so."""
    error: OSError | None = None
    """Why a folder cannot be read."""


def walk(folder: Path, recursive: bool, excluded: Path) -> Iterator[Found]:
    """Finds what is in a folder, with `recursive` in those in it, too, but no hidden or junk files.

    Links to folders are not followed, nor is a folder entered that it lies in itself, as bind
    mounts can make it, nor `excluded`: they are no files. Folders in it that are entered are not
    told, but for those that cannot be read.
    """
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
            elif recursive and entry.name.lower() not in _JUNK_FOLDERS:
                waiting.append((path, above | {identity}))


def _below(url: Path, recursive: bool, excluded: Path) -> Iterator[Found]:
    for path in stores.listed(url, recursive):
        *folders, name = path.split("/")
        hidden = any(part.startswith(".") for part in (*folders, name))
        junk = name.lower() in _JUNK or any(each.lower() in _JUNK_FOLDERS for each in folders)
        if not hidden and not junk and excluded not in (url / path).parents:
            yield Found(path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # some file systems are asked, and fail: told when it is to be read


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Or a link that leads nowhere; no folder, pipe or device."""
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
