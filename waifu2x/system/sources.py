"""Digests of this package's code, for keys of cached results of that code.

Reading a hundred files takes milliseconds. So the digest is cached, too, by the files' names,
inodes, sizes and times of change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from waifu2x.system import cache

PACKAGE = Path(__file__).parent.parent
_KIND = "digests"
_SETTLED_NS = 2_000_000_000
"""The least age of a change that its time tells apart from the next: file systems count in
steps."""


def digest(patterns: Sequence[str]) -> str:
    """Returns the digest of the files of these patterns, and of their names. A pattern is a path in
    the package; its last part may be `*.py`, the one before that `**`."""
    paths = [path for pattern in patterns for path in sorted(_found(pattern))]
    states, newest = [str(PACKAGE)], 0
    for path in paths:
        status = path.stat()
        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
        state = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        states.append(f"{path} {state}")
    key = cache.digest("code", *states)
    kept = cache.load(_KIND, key)
    if kept is not None:
        return kept.hex()
    parts: list[bytes | str] = []
    for path in paths:
        parts += [path.relative_to(PACKAGE).as_posix(), path.read_bytes()]
    found = cache.digest(*parts)
    if newest < time.time_ns() - _SETTLED_NS:
        cache.store(_KIND, key, bytes.fromhex(found))
    return found


def _found(pattern: str) -> Iterator[Path]:
    folder, _, name = pattern.rpartition("/")
    if name != "*.py":
        yield PACKAGE / pattern
        return
    whole, _, last = folder.rpartition("/")
    deep = last == "**"
    yield from _sources(PACKAGE / (whole if deep else folder), deep)


def _sources(folder: Path, deep: bool) -> Iterator[Path]:
    """Yields a folder's sources; with `deep`, those below it, too."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield folder / entry.name
            elif deep and entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(folder / entry.name, deep)
