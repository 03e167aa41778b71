"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from waifu2x import stores


def read_bytes(path: Path) -> bytes:
    """The content of a file, or of what is at a URL. Raises OSError."""
    return stores.read_bytes(path) if stores.is_url(path) else path.read_bytes()


def write_atomically(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Writes a file at once; see `writing`."""
    with writing(path, replace=replace) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path, *, replace: bool = True) -> Iterator[IO[bytes]]:
    """A temporary file beside `path`, to write, read and seek, which then gets the name `path`.

    If that fails or is interrupted, whatever stood at `path` still does, and the temporary file is
    gone. Follows symbolic links, and keeps the mode of a file that it replaces. For a URL, the
    temporary file is on this machine, and is uploaded then. Raises OSError, and FileExistsError if
    there is a file at `path` by then and `replace` is false.
    """
    if stores.is_url(path):
        with stores.uploading(path, replace=replace) as file:
            yield file
        return
    try:
        target = path.resolve()
    except RuntimeError as error:  # a loop of links, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    temporary = target.with_name(f".waifu2x-{secrets.token_hex(6)}.part")
    # Not tempfile: its files are private to the user, and results should have the usual mode.
    opened = temporary.open("x+b")
    try:
        with opened as file:
            if replace and target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            # A crash after the rename must not leave an empty file where a picture was.
            os.fsync(file.fileno())
        if replace:
            temporary.replace(target)
        else:
            _rename_to_new(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _rename_to_new(temporary: Path, target: Path) -> None:
    """Renames, or raises FileExistsError: a plain rename would replace."""
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
    """What the system says is wrong, without the number and the path."""
    return (error.strerror or str(error)).lower()
