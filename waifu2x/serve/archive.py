"""Results as one ZIP, made while it is sent: nothing of it lies in memory or on the disk."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
