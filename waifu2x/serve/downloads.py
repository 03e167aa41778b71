"""Downloads: results as one ZIP, and addresses that a browser saves by itself, to its disk."""

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
"""Addresses at a time; the oldest ones end first."""
_READ = 1 << 18
"""Bytes that are read of a result at a time."""


class _Pipe(io.RawIOBase):
    """A file that is written on one side and taken from the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """Takes bytes."""
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """What was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def zipped(members: Sequence[tuple[str, Path]]) -> Iterator[bytes]:
    """The bytes of an archive of files, each with its name there, in some pieces.

    A file that is gone by the time that its turn comes is left out.
    """
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
    """Names in an archive, each another one: numbers in front, by their order."""
    digits = max(3, len(str(len(names))))
    return [f"{number:0{digits}} {name}" for number, name in enumerate(names, 1)]


class UnknownAddressError(Waifu2xError):
    """An address was used before, is too old, or never was."""


class Downloads:
    """Addresses that were given out, each for some jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offered: dict[str, tuple[float, tuple[str, ...]]] = {}

    def offer(self, ids: Sequence[str]) -> str:
        """The name of a new address for the results of these jobs."""
        name = secrets.token_urlsafe(24)
        self._offered[name] = (self._clock() + SECONDS, tuple(ids))
        while len(self._offered) > _MOST:
            del self._offered[next(iter(self._offered))]
        return name

    def take(self, name: str) -> tuple[str, ...]:
        """The jobs of an address, which ends by this. Raises UnknownAddressError."""
        until, ids = self._offered.pop(name, (-1.0, ()))
        if self._clock() > until:
            raise UnknownAddressError("This address is no longer valid: download it on the page.")
        return ids
