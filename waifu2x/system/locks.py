"""Locks on files, which end with the program that holds them."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from waifu2x.errors import printable

if sys.platform == "win32":
    import msvcrt
else:
    from waifu2x.system.files import lock

_MOST = 200
"""The most bytes that are read of a holder's description."""
_UNKNOWN = "another process"


class HeldElsewhereError(Exception):
    """Another program holds the lock. The text names it, if it is known."""


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Holds a lock on the file at a path, which is made; gives whether the file system has locks.

    Any number of programs may hold a `shared` lock, but no other one meanwhile. The system ends a
    lock with its program; on a network file system, the server does so when it sees the machine
    again or has not heard of it for long enough (NFS 4: 90 seconds, mostly). The file stays. Raises
    HeldElsewhereError at once, and OSError if the file cannot be made.
    """
    with _opened(path, shared) as (file, has_locks):
        if not has_locks:
            yield False
            return
        own = f"{platform.node()}, process {os.getpid()}".encode()
        _write(file, own)
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):
                file.seek(0)
                if file.read(_MOST) == own:  # the last one of shared locks is named
                    _write(file, b"")


@contextlib.contextmanager
def _opened(path: Path, shared: bool) -> Iterator[tuple[IO[bytes], bool]]:
    while True:
        with path.open("a+b") as file:
            taken = _take(file, shared)
            if taken is False:
                raise HeldElsewhereError(_holder(path))
            if taken is None:
                yield file, False
                return
            if _is_there(file, path):
                yield file, True
                return


def _is_there(file: IO[bytes], path: Path) -> bool:
    """Returns whether an open file is still the one at a path: its last holder may have removed
    it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _take(file: IO[bytes], shared: bool) -> bool | None:
    """Locks a file until it is closed; returns None where there are no locks."""
    if sys.platform == "win32":
        if shared:
            return None  # Windows has exclusive ones only
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    return lock(file, shared=shared)


def _write(file: IO[bytes], own: bytes) -> None:
    file.seek(0)
    file.truncate()
    file.write(own)
    file.flush()


def _holder(path: Path) -> str:
    """Returns the name of the lock's holder. A killed program has left its name: it does not
    count."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST).decode("utf-8", "replace")
    except OSError:
        return _UNKNOWN
    node, _, number = text.rpartition(", process ")
    if node == platform.node() and not (number.isdecimal() and _is_alive(int(number))):
        return _UNKNOWN
    return printable(text) or _UNKNOWN


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return True  # there is no way to know
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # another user's process
    return True
