"""The cache folder: entries that can be lost at any time and are made again.

WAIFU2X_CACHE_DIR, else the platform's folder for caches, holds one folder for each kind of entry.
Keys are digests of everything that decides the content. An entry begins with the digest of its
content, so that a damaged one is seen and made again. A folder that cannot be written costs time
and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import platformdirs

from waifu2x.files import write_atomically

DIRECTORY_VARIABLE = "WAIFU2X_CACHE_DIR"
_DIGEST_BYTES = 32


class Usage(NamedTuple):
    """What one kind of entry takes."""

    kind: str
    files: int
    size: int
    """Bytes."""


def directory() -> Path:
    """The cache folder; it may not exist yet."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_cache_path("waifu2x-kernels", False)


def digest(*parts: bytes | str) -> str:
    """A key from everything that decides the content of an entry."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:40]


def load(kind: str, key: str) -> bytes | None:
    """An entry's content, or None if it is absent, unreadable or damaged."""
    try:
        stored = (directory() / kind / key).read_bytes()
    except OSError:
        return None
    content = stored[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == stored[:_DIGEST_BYTES] else None


def store(kind: str, key: str, content: bytes) -> None:
    """Keeps an entry, if the folder can be written."""
    with contextlib.suppress(OSError):
        folder = directory() / kind
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / key, hashlib.sha256(content).digest() + content)


def usage() -> list[Usage]:
    """What each kind of entry takes, by name."""
    kinds = []
    if directory().is_dir():
        for folder in sorted(entry for entry in directory().iterdir() if entry.is_dir()):
            sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
            kinds.append(Usage(folder.name, len(sizes), sum(sizes)))
    return kinds


def clear() -> None:
    """Removes every entry. Raises OSError for one that cannot be removed."""
    for kind in usage():
        shutil.rmtree(directory() / kind.kind)
