"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from waifu2x.system import stores

if sys.platform != "win32":
    import fcntl

_TEMPORARY = re.compile(r"\.waifu2x-([0-9a-f]{8})-[0-9a-f]{12}\.part")
"""Names of temporary files: the machine, then random digits. The cache knows them, too."""
_FOREIGN_SECONDS = 24 * 3600.0
"""The age at which a temporary file of another machine, or one that cannot be locked, counts as
abandoned."""
_WRITTEN_BACK = 1 << 25
"""Bytes after which the system is told to begin writing them to the disk."""
_unfinished: dict[Path, Path] = {}
"""The temporary files that this process is writing, and the paths that they are for."""
_NEVER_WAITS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags of open(2): a pipe opens without a writer; the other is Windows'."""
_CLOSED_SECONDS = 60.0
"""The age at which a closed temporary file counts as abandoned, where files are closed before they
are renamed."""


def read_bytes(path: Path) -> bytes:
    """Returns the content of the file at a path or URL. Raises OSError."""
    return stores.read_bytes(path) if stores.is_url(path) else path.read_bytes()


def open_regular(path: Path) -> IO[bytes]:
    """Opens a regular file for reading. Raises OSError, without waiting, for pipes and devices,
    which might never begin or never end."""
    descriptor = os.open(path, os.O_RDONLY | _NEVER_WAITS)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def write_atomically(path: Path, data: bytes, *, replace: bool | None = True) -> None:
    """Writes a file that appears under its name when it is complete, as `writing` does."""
    with writing(path, replace=replace) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path, *, replace: bool | None = True) -> Iterator[IO[bytes]]:
    """Gives a temporary file beside `path`, to write, read and seek, and then renames it to `path`.

    If that fails or is interrupted, a file at `path` is unchanged, and the temporary file is
    removed. Follows symbolic links, and keeps the mode of a file that it replaces. For a URL, the
    temporary file is on this machine, and is uploaded at the end. If `replace` is None, a file that
    exists at `path` by then stays. Raises OSError, and FileExistsError for it if `replace` is
    False.
    """
    if stores.is_url(path):
        with stores.uploading(path, replace=replace) as file:
            yield file
        return
    try:
        target = path.resolve()
    except RuntimeError as error:  # a loop of links, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    # A signal may come at any point: so a file is recorded before it is made.
    temporary = _temporary(target)
    try:
        _unfinished[temporary] = path
        while (opened := _opened(temporary)) is None:
            del _unfinished[temporary]
            temporary = _temporary(target)
            _unfinished[temporary] = path
        with opened as file:
            if replace and target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            # A crash after the rename must not leave an empty file where a picture was.
            os.fsync(file.fileno())
            if sys.platform != "win32":
                _rename(temporary, target, replace)  # before the lock goes
        if sys.platform == "win32":
            _rename(temporary, target, replace)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        _unfinished.pop(temporary, None)


def remove_unfinished(path: Path | None = None) -> None:
    """Removes the temporary files that this process is writing, for `path` or for any.

    For an end without unwinding, and for threads that cannot be ended: their files then never get
    their names. Windows removes no open file.
    """
    for temporary, wanted in list(_unfinished.items()):
        if path is None or wanted == path:
            with contextlib.suppress(OSError):
                temporary.unlink()


class _AbandonedError(Exception):
    """Ends the writing of a file without giving it its name."""


def abandon(held: contextlib.ExitStack) -> None:
    """Ends the contexts in `held`, so that `writing` among them leaves nothing."""
    error = _AbandonedError()
    with contextlib.suppress(OSError):  # data that could not be written is unwanted
        held.__exit__(type(error), error, None)


def is_temporary(name: str) -> bool:
    """Returns whether a file name is that of a temporary file of `writing`."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_abandoned(path: Path) -> bool:
    """Removes a temporary file of `writing` if its program is gone; returns whether it did.

    A program holds a lock on its file. Where locks may not reach, on file systems that other
    machines share, only the age decides. Raises nothing.
    """
    name = _TEMPORARY.fullmatch(path.name)
    if name is None:
        return False
    own, needed = name[1] == _machine(), _FOREIGN_SECONDS
    try:
        if sys.platform == "win32":
            # One that is open cannot be removed.
            needed = _CLOSED_SECONDS if own else needed
        elif own:
            with path.open("r+b") as file:
                is_locked = lock(file)
                if is_locked:
                    path.unlink()
                if is_locked is not None:
                    return is_locked
        if time.time() - path.stat().st_mtime < needed:
            return False
        path.unlink()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def explained(kind: type[Exception], failure: str) -> Iterator[None]:
    """Raises `kind`, which says `failure` and the reason, for an OSError but BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"{failure}: {reason(error)}") from error


def clear_folder(folder: Path) -> int:
    """Removes the temporary files that ended programs have left in a folder; returns how many.

    Raises nothing.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [Path(entry.path) for entry in entries if is_temporary(entry.name)]
        return sum(map(remove_abandoned, left))
    return 0


@functools.cache
def _machine() -> str:
    """Returns eight digits that stand for this machine."""
    return hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()


def _temporary(target: Path) -> Path:
    return target.with_name(f".waifu2x-{_machine()}-{os.urandom(6).hex()}.part")


class _File(io.FileIO):
    """A file that begins to go to the disk while the rest is made, so that `fsync` waits little."""

    _waiting = 0

    def write(self, content: Any) -> int:
        written = super().write(content)
        self._waiting += written
        if self._waiting >= _WRITTEN_BACK and sys.platform == "linux":
            self._waiting = 0
            # The advice also means that the file is not read soon, which is true of large ones.
            with contextlib.suppress(OSError):  # it is only advice
                os.posix_fadvise(self.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return written


def _opened(temporary: Path) -> IO[bytes] | None:
    """Opens and locks a new file; returns None if another program has taken it for abandoned and
    removed it meanwhile."""
    # Not tempfile, whose files are private to the user: results have the usual mode.
    file = io.BufferedRandom(_File(temporary, "x+"))
    if sys.platform == "win32" or (lock(file) is not False and temporary.exists()):
        return file
    file.close()
    temporary.unlink(missing_ok=True)
    return None


if sys.platform != "win32":

    def lock(file: IO[bytes], *, shared: bool = False) -> bool | None:
        """Locks an open file until it is closed, without waiting. Returns False if another program
        holds the lock, None if the file system has no locks."""
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return None
        return True


def _rename(temporary: Path, target: Path, replace: bool | None) -> None:
    if replace:
        temporary.replace(target)
        return
    try:
        _rename_to_new(temporary, target)
    except FileExistsError:
        if replace is False:
            raise
        temporary.unlink()


def _rename_to_new(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: the check and the rename leave a moment between them.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        temporary.replace(target)
    else:
        temporary.unlink()


def reason(error: OSError) -> str:
    """Returns the system's message for an error, without number and path."""
    return (error.strerror or str(error)).lower()


def is_disk_full(error: BaseException | None) -> bool:
    """Returns whether an error means that the disk, or the user's quota, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
