"""Digests of models, as keys of caches: they cover all that decides a result.

Hashing all weights takes as long as reading them, tens of milliseconds for a large network. So a
model that was read from files is identified by theirs, and the digest of a file is kept under its
path, inode, size and times of change.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from waifu2x.networks.activations import Activation
from waifu2x.networks.model import Model
from waifu2x.system import cache

_KIND = "digests"
_FORMAT = "1"
_SETTLED_NS = 2_000_000_000
"""A file that changed longer ago gets other times at its next change: file systems count in
steps."""


class FileState(NamedTuple):
    """Path, inode, size and times of a file."""

    path: str
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


_FILES: WeakKeyDictionary[Model, tuple[FileState, ...]] = WeakKeyDictionary()
_DIGESTS: WeakKeyDictionary[Model, str] = WeakKeyDictionary()


def file_states(paths: Sequence[Path]) -> tuple[FileState, ...]:
    """Returns the states of files; empty if one of them cannot be found."""
    states = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            return ()
        times = status.st_mtime_ns, status.st_ctime_ns
        states.append(FileState(str(path.absolute()), status.st_ino, status.st_size, *times))
    return tuple(states)


def note_files(model: Model, states: tuple[FileState, ...]) -> None:
    """Remembers the files that a model was read from, in the states that they had before."""
    _FILES[model] = states


def note_rewritten(model: Model, source: Model) -> None:
    """Remembers that a model computes what another one does, in other nodes."""
    _FILES[model] = _FILES.get(source, ())


def model_digest(model: Model) -> str:
    """Returns a digest; models of equal digests compute the same, if the same code reads them."""
    if model not in _DIGESTS:
        _DIGESTS[model] = _of_files(_FILES.get(model, ())) or _of_content(model)
    return _DIGESTS[model]


def _of_content(model: Model) -> str:
    parts: list[bytes | str] = [repr(model.in_planes), repr(model.padding), model.border]
    parts.append(repr(model.multiple))
    if model.frames > 1:
        parts.append(f"{model.frames} frames, {model.surround}")
    for node in model.nodes:
        parts.append(type(node).__name__)
        for field in fields(node):
            parts += _parts_of(getattr(node, field.name))
    return cache.digest(_FORMAT, "content", *parts)


def _parts_of(value: Any) -> list[bytes | str]:
    """Returns a field of a node as parts of a key (`cache.digest`)."""
    match value:
        case np.ndarray():
            return [repr(value.shape), value.tobytes()]
        case Activation():
            return [repr(value.function), value.slopes.tobytes()]
        case _:
            return [repr(value)]


def _of_files(states: tuple[FileState, ...]) -> str | None:
    """Returns the digest of files, if they are still in those states."""
    if not states or file_states([Path(state.path) for state in states]) != states:
        return None
    try:
        return cache.digest(_FORMAT, "files", *map(_of_file, states))
    except OSError:
        return None


def known_content(path: Path) -> bytes | None:
    """Returns the SHA-256 of a file that was hashed before and has the same state; else None."""
    states = file_states([path])
    return cache.load(_KIND, _key(states[0])) if states else None


def note_content(states: tuple[FileState, ...], content: bytes) -> bytes:
    """Returns the SHA-256 of what a file holds, and keeps it.

    `states` has the file's state before it was read; empty, nothing is kept.
    """
    found = hashlib.sha256(content).digest()
    for state in states:
        _keep(state, found)
    return found


def _of_file(state: FileState) -> bytes:
    kept = cache.load(_KIND, _key(state))
    if kept is not None:
        return kept
    with Path(state.path).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").digest()
    _keep(state, found)
    return found


def _key(state: FileState) -> str:
    return cache.digest(_FORMAT, *map(str, state))


def _keep(state: FileState, found: bytes) -> None:
    """Keeps the digest of a file, unless its next change could leave its times as they are."""
    if max(state.modified_ns, state.changed_ns) < time.time_ns() - _SETTLED_NS:
        cache.store(_KIND, _key(state), found)
