"""The cache folder: entries that may be lost at any time and are made again.

WAIFU2X_CACHE_DIR, else the platform's folder for caches, holds a folder for each kind of entry.
Keys are digests of everything that decides the content. An entry begins with the digest of its
content, so that a damaged one is noticed and made again. A folder that cannot be written, or a
missing home directory, costs time and nothing else.

Entries contain machine code, so folders are made for their owner alone, and a folder that belongs
to another user, or that others can write, is not used. When all entries exceed a limit, the least
recently used go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import platformdirs

from waifu2x.errors import Sentence
from waifu2x.system.files import open_regular, reason, write_atomically
from waifu2x.system.resources import of_user

DIRECTORY_VARIABLE = "WAIFU2X_CACHE_DIR"
KINDS = ("accuracy", "cuda", "digests", "numba", "opencl", "tuning", "vulkan", "weights")
MOST_BYTES = 1 << 30
"""The most bytes that all entries take together."""
_DIGEST_BYTES = 32
_NUMBER = struct.Struct("<d")
# The user chooses the folder, and it may hold other files: only entries, and what a killed
# `write_atomically` leaves, are counted and removed.
_OURS = re.compile(r"[0-9a-f]{40}|\..*[0-9a-f]{12}\.part")


class Usage(NamedTuple):
    """The space that one kind of entry takes."""

    kind: str
    files: int
    size: int
    """Bytes of all its files."""


def directory() -> Path | None:
    """Returns the cache folder, which may not exist yet; None without a home directory."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else of_user(platformdirs.user_cache_path)


def digest(*parts: bytes | str) -> str:
    """Returns a key made of everything that decides the content of an entry."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()[:40]


def load(kind: str, key: str) -> bytes | None:
    """Returns an entry's content, or None if it is absent, unreadable or damaged."""
    folder = _folder(kind)
    if folder is None or not _is_trusted(folder):
        return None
    content = read(folder / key)
    if content is not None:
        with contextlib.suppress(OSError):
            os.utime(folder / key)  # used just now: see _shrink
    return content


def has(kind: str) -> bool:
    """Returns whether there is any entry of a kind that `load` may return."""
    folder = _folder(kind)
    if folder is None or not _is_trusted(folder):
        return False
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return any(_OURS.fullmatch(entry.name) for entry in entries)
    return False


def read(path: Path) -> bytes | None:
    """Returns the content of an entry at any path, or None if it is absent, unreadable or
    damaged."""
    try:
        with open_regular(path) as file:
            stored = file.read()
    except OSError:
        return None
    content = stored[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == stored[:_DIGEST_BYTES] else None


def packed(content: bytes) -> bytes:
    """Returns an entry of that content, as `read` expects it."""
    return hashlib.sha256(content).digest() + content


def store(kind: str, key: str, content: bytes) -> None:
    """Stores an entry, if the folder can be written."""
    folder = _folder(kind)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        _make(folder)
        if _is_trusted(folder):
            write_atomically(folder / key, packed(content))
            _shrink(keep=folder / key)


def obstacle(kind: str) -> Sentence | None:
    """Returns why entries of a kind cannot be stored, and what to do; None if they can."""
    folder = _folder(kind)
    remedy = f"set {DIRECTORY_VARIABLE} to a folder that can be written"
    if folder is None:
        return Sentence("there is no home directory to keep a cache in", remedy)
    why = ""
    try:
        _make(folder)
    except OSError as error:
        why = reason(error)
    else:
        if not os.access(folder, os.W_OK | os.X_OK):
            why = "permission denied"
        elif not _is_trusted(folder):
            why = "others can write there"
    return Sentence(f"nothing can be kept in {folder} ({why})", remedy) if why else None


def _make(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def number(kind: str, key: str, find: Callable[[], float]) -> float:
    """Returns a number from the cache; computes it by `find` the first time."""
    kept = load(kind, key)
    if kept is not None and len(kept) == _NUMBER.size:
        (value,) = _NUMBER.unpack(kept)
        return float(value)
    found = find()
    store(kind, key, _NUMBER.pack(found))
    return found


def distrusted() -> list[Path]:
    """Returns the folders that are not used because others could have written there."""
    folders = [folder for kind in KINDS if (folder := _folder(kind)) is not None]
    return [folder for folder in folders if folder.is_dir() and not _is_trusted(folder)]


def usage() -> list[Usage]:
    """Returns the usage of each kind of entry. Raises OSError for an unreadable folder."""
    kinds = []
    for kind in KINDS:
        sizes = list(_entries(kind).values())
        if sizes:
            kinds.append(Usage(kind, len(sizes), sum(sizes)))
    return kinds


def clear() -> list[Usage]:
    """Removes every entry and returns what was removed. Raises OSError for an entry that cannot be
    removed."""
    removed = usage()
    for kind in KINDS:
        for path in _entries(kind):
            path.unlink(missing_ok=True)
        folder = _folder(kind)
        if folder is not None:
            # It may be absent or hold other files; an empty folder left behind does no harm.
            with contextlib.suppress(OSError):
                folder.rmdir()
    return removed


def _folder(kind: str) -> Path | None:
    if kind not in KINDS:
        raise ValueError(f"Expected one of {', '.join(KINDS)}, but got {kind!r}")
    root = directory()
    return root / kind if root else None


def _is_trusted(folder: Path) -> bool:
    """Returns whether only this user can have written into a folder. Windows has no such modes;
    there, a user's profile is private."""
    if not hasattr(os, "getuid"):
        return True
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _shrink(keep: Path) -> None:
    """Removes the least recently used entries until the rest is small enough."""
    sizes = {path: size for kind in KINDS for path, size in _entries(kind).items()}
    excess = sum(sizes.values()) - MOST_BYTES
    if excess <= 0:
        return
    used = {}
    for path in sizes.keys() - {keep}:
        with contextlib.suppress(OSError):
            used[path] = path.stat().st_mtime_ns
    for path in sorted(used, key=used.__getitem__):
        if excess <= 0:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            excess -= sizes[path]


def _entries(kind: str) -> dict[Path, int]:
    folder = _folder(kind)
    entries: dict[Path, int] = {}
    if folder is None:
        return entries
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return entries
    for path in paths:
        if _OURS.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile by another process
                status = path.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    entries[path] = status.st_size
    return entries
