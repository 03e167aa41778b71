"""Parts of a folder: one share of several machines, or the files that failed before."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from waifu2x.errors import Waifu2xError
from waifu2x.system import stores
from waifu2x.system.files import reason


class Shard(NamedTuple):
    """One of the parts of a folder that is divided by a hash of names."""

    number: int
    """From 1 on."""
    parts: int

    def holds(self, path: str) -> bool:
        """Returns whether a file is in this part, by its path in the folder, with slashes. The hash
        is the same on every machine and independent of other files. Both encodings of accents count
        as one."""
        written = unicodedata.normalize("NFC", path).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(written, digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.parts == self.number - 1


def shard_of(text: str) -> Shard:
    """Parses text like 3/16. Raises ValueError."""
    match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text, re.ASCII)
    if not match or int(match[1]) > int(match[2]):
        raise ValueError(f"Expected a part like 3/16, but got {text!r}")
    return Shard(int(match[1]), int(match[2]))


class Failures:
    """The files of a folder that failed when they were last tried, by the lines of `--json`."""

    def __init__(self, path: Path, folder: Path) -> None:
        """Reads the lines of one or several runs. Raises Waifu2xError for a file that cannot be
        read or has other lines."""
        self._names = {name for name, failed in _last_words(path, folder).items() if failed}

    def __len__(self) -> int:
        return len(self._names)

    def holds(self, name: str) -> bool:
        """Returns whether a file or its folder failed, by its path in the folder, with slashes."""
        while name not in self._names:
            if not name:
                return False
            name = name.rpartition("/")[0]
        return True


def _last_words(path: Path, folder: Path) -> dict[str, bool]:
    """Maps paths in the folder to whether they failed when last tried."""
    base, found = folder.resolve(), dict[str, bool]()
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "not text in UTF-8"
        raise Waifu2xError(f"{path}: cannot read: {why}") from error
    for number, line in enumerate(lines, 1):
        # A run that was killed leaves its last line unfinished...
        if not line.endswith("\n") or line.isspace():
            continue
        try:
            # ...and another run may have written on behind it; in a name, quotes are escaped.
            row = json.loads(line[max(0, line.rfind('{"input":')) :])
            source, status = row["input"], row["status"]
            name = _name_below(source, base)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Waifu2xError(
                f"{path}: line {number} is none that --json writes", "give what a run with it wrote"
            ) from error
        if name is not None:
            found[name] = status == "failed"
    return found


def _name_below(source: str, base: Path) -> str | None:
    """Returns a path relative to a folder, "" for the folder itself, or None if it is elsewhere.
    Raises ValueError, TypeError for an invalid path."""
    if stores.is_url(base):
        return source.removeprefix(f"{base}/") if source.startswith(f"{base}/") else None
    path = Path(source)
    try:
        if path.resolve() == base:
            return ""
        place = path.parent.resolve() / path.name  # the name of a link, not where it leads
    except RuntimeError:  # a loop of links, before Python 3.13
        return None
    return place.relative_to(base).as_posix() if place.is_relative_to(base) else None
