"""The folder of a server: its token, its queue, and a folder of files for each job. Only its owner
may enter it. Names in it are the server's: clients' names are never part of a path."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from waifu2x.errors import OutputError
from waifu2x.flows.jobs import ARCHIVES_READ
from waifu2x.formats import film
from waifu2x.serve import names
from waifu2x.serve.jobs import JobRecord
from waifu2x.system import cache
from waifu2x.system.files import open_regular, reason, writing

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_JOB = re.compile(r"[0-9a-f]{16}")
_RESULT = re.compile(r"result-(\d+)\.(\w+)", re.ASCII)
"""The name of a complete result."""
_COPIED = 1 << 20
"""Bytes copied in one go."""
_LEAST_FREE = 256 << 20
"""Bytes of the disk that stay free."""


class Spool:
    """Manages a server's folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises OutputError if it cannot be made, or others can write there."""
        self.folder = folder
        self.database = folder / "queue.sqlite"
        self.lock = folder / "lock"
        self.found = folder / "found"
        """Results of a lost queue."""
        self._jobs = folder / "jobs"
        try:
            for each in (folder, self._jobs):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_own(each)
        except OSError as error:
            raise OutputError(
                f"{folder}: cannot keep a queue here: {reason(error)}",
                f"set {cache.DIRECTORY_VARIABLE} to a folder that can be written",
            ) from error

    def token(self) -> str:
        """Returns the secret that clients must show, made on first use. Raises OutputError."""
        path = self.folder / "token"
        with suppress(OSError, ValueError):
            if sys.platform == "win32" or not path.stat().st_mode & 0o077:
                with open_regular(path) as file:
                    found = file.read(100).decode("ascii")
                if _TOKEN.fullmatch(found):
                    return found
        made = secrets.token_urlsafe(32)
        try:
            path.unlink(missing_ok=True)
            # Never readable for others, not for a moment: so it is not written as results are.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as new:
                new.write(made)
        except OSError as error:
            raise OutputError(f"{path}: cannot write: {reason(error)}") from error
        return made

    def new(self) -> tuple[str, Path]:
        """Makes the folder of a new job; returns its id and the folder. Raises OSError."""
        identity = secrets.token_hex(8)
        folder = self.of(identity)
        folder.mkdir(mode=0o700)
        return identity, folder

    def of(self, identity: str) -> Path:
        """Returns the folder of a job."""
        return self._jobs / identity

    def source(self, record: JobRecord) -> Path:
        """Returns the path of a job's uploaded file."""
        return self.of(record.id) / source_name(record.name)

    def result(self, record: JobRecord, extension: str | None = None) -> Path:
        """Returns the path of a job's result, with `extension` if there is no result yet."""
        found = extension if record.result is None else record.result.format
        return self.of(record.id) / f"result-{record.attempt}.{found}"

    def remove(self, identity: str) -> None:
        """Removes the files of a job, as far as possible now."""
        shutil.rmtree(self.of(identity), ignore_errors=True)

    def sweep(self, kept: Iterable[str]) -> None:
        """Removes the files of all jobs except `kept`."""
        keep = frozenset(kept)
        for path in self._jobs.iterdir():
            if path.name not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def save_results(self, most: int) -> int:
        """Moves the results of all jobs to `found`, named by their jobs; returns how many. Removes
        the oldest there if all take more than `most` bytes."""
        moved = 0
        for folder in self._jobs.iterdir():
            if folder.is_symlink() or not _JOB.fullmatch(folder.name):
                continue
            for path in folder.iterdir():
                match = _RESULT.fullmatch(path.name)
                if match and path.is_file() and not path.is_symlink():
                    self.found.mkdir(mode=0o700, exist_ok=True)
                    path.replace(self.found / f"{folder.name}-{match[1]}.{match[2]}")
                    moved += 1
        if moved:
            size = 0
            newest = sorted(self.found.iterdir(), key=lambda path: -path.stat().st_mtime)
            for path in newest:
                size += path.stat().st_size
                if size > most:
                    path.unlink()
        return moved

    def size_of(self, identity: str) -> int:
        """Returns the size of a job's files in bytes, parts of films included."""
        size = 0
        for folder, _, files in os.walk(self.of(identity)):
            for name in files:
                with suppress(OSError):  # a part may have gone meanwhile
                    size += Path(folder, name).stat(follow_symlinks=False).st_size
        return size

    def has_space(self, size: int) -> bool:
        """Returns whether the disk keeps some free space after `size` more bytes."""
        return self.free() - size >= _LEAST_FREE

    def free(self) -> int:
        """Returns the free bytes of the disk."""
        return shutil.disk_usage(self.folder).free


def source_name(name: str) -> str:
    """Returns the name in the spool for a file that was sent under `name`.

    A picture has no extension: with that of its result, a picture that stays as it is could be
    copied byte for byte, and bytes that a stranger has sent never go out again.
    """
    extension = names.extension(name)
    known = extension in ARCHIVES_READ or extension in film.READABLE
    return f"source.{extension}" if known else "source"


def server_folder() -> Path:
    """Returns the folder of this user's server. Raises OutputError."""
    root = cache.directory()
    if root is None:
        raise OutputError(
            "there is no home directory to keep a queue in",
            f"set {cache.DIRECTORY_VARIABLE} to a folder that can be written",
        )
    return root / "serve"


def _check_own(folder: Path) -> None:
    """Raises OutputError for another user's folder; makes one that others can enter private."""
    if not hasattr(os, "getuid"):
        return  # Windows: a user's profile is private
    status = folder.stat()
    if status.st_uid != os.getuid():
        raise OutputError(f"{folder}: it belongs to another user", "remove it")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def kept_result(content: Path, folder: Path, name: str) -> Path:
    """Copies a result into a folder under its name, or a similar free one; returns the path.
    Replaces nothing. Raises OutputError."""
    stem, suffix = Path(name).stem, Path(name).suffix
    for number in range(1, 10_000):
        path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with content.open("rb") as made, writing(path, replace=False) as file:
                shutil.copyfileobj(made, file, _COPIED)
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"{path}: cannot write: {reason(error)}") from error
        return path
    raise OutputError(f"{folder}: it has too many files called {name}", "choose another folder")
