"""Downloads: results as one ZIP, and one-time addresses that a browser saves to its disk.

A page would hold in memory what it fetches with a token in a header, and a link has no header. So a
page that has the token asks for a secret address, which works once and briefly.
"""

from __future__ import annotations

import io
import secrets
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from waifu2x.errors import Waifu2xError

SECONDS = 60
"""How long an address works."""
_MOST = 1000
"""The most addresses that are valid together; the oldest end first."""
_READ = 1 << 18
"""Bytes read from a result in one go."""


class _Pipe(io.RawIOBase):
    """A file that collects what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """Returns what was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def zipped(members: Sequence[tuple[str, Path]]) -> Iterator[bytes]:
    """Yields a ZIP of files piece by piece; `members` are names in the archive, and paths. Skips a
    file that is gone when its turn comes."""
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as archive:
        for name, path in members:
            try:
                file = path.open("rb")
            except OSError:
                continue
            with file:
                info = zipfile.ZipInfo.from_file(path, name)
                info.external_attr = 0o644 << 16
                with archive.open(info, "w") as member:
                    while data := file.read(_READ):
                        member.write(data)
                        yield pipe.taken()
    yield pipe.taken()


def member_names(names: Sequence[str]) -> list[str]:
    """Makes names unique in an archive by numbers in front."""
    digits = max(3, len(str(len(names))))
    return [f"{number:0{digits}} {name}" for number, name in enumerate(names, 1)]


class UnknownAddressError(Waifu2xError):
    """An address is unknown, was used before, or is too old."""


class Downloads:
    """Holds the addresses that were given out, each for the results of some jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offered: dict[str, tuple[float, tuple[str, ...]]] = {}

    def offer(self, ids: Sequence[str]) -> str:
        """Returns a new address for the results of these jobs."""
        name = secrets.token_urlsafe(24)
        self._offered[name] = (self._clock() + SECONDS, tuple(ids))
        while len(self._offered) > _MOST:
            del self._offered[next(iter(self._offered))]
        return name

    def take(self, name: str) -> tuple[str, ...]:
        """Returns the jobs of an address, and ends it. Raises UnknownAddressError."""
        until, ids = self._offered.pop(name, (-1.0, ()))
        if self._clock() > until:
            raise UnknownAddressError("This address is no longer valid: download it on the page.")
        return ids
