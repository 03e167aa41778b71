"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a temporary file beside `path`, then renames it over `path`.

    If that fails or is interrupted, whatever stood at `path` still does, and the temporary file is
    gone. Follows symbolic links. Raises OSError.
    """
    try:
        target = path.resolve()
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    # Not tempfile: its files are private to the user, and results should have the usual mode.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_BINARY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            # A crash after the rename must not leave an empty file where a picture was.
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


_O_BINARY = getattr(os, "O_BINARY", 0)


def reason(error: OSError) -> str:
    """What the system says is wrong, without the number and the path."""
    return (error.strerror or str(error)).lower()
