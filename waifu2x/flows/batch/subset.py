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
    """One part of a folder that is divided by a hash of its files' names."""

    number: int
    """From 1 on."""
    parts: int

    def holds(self, path: str) -> bool:
        """Whether a file is in this part, by its path in the folder, with slashes. A hash of the
        path decides, the same on every machine, so another file moves none. Systems write accents
        in two ways, which count as one."""
        written = unicodedata.normalize("NFC", path).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(written, digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.parts == self.number - 1


def shard_of(text: str) -> Shard:
    """The part that text like 3/16 means. Raises ValueError."""
    match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text, re.ASCII)
    if not match or int(match[1]) > int(match[2]):
        raise ValueError(f"Expected a part like 3/16, but got {text!r}")
    return Shard(int(match[1]), int(match[2]))


class Failures:
    """The files of a folder that failed when they were last tried, by the lines of `--json`."""

    def __init__(self, path: Path, folder: Path) -> None:
        """Several runs may have written to the file: the last word on an input counts. Raises
        Waifu2xError if it cannot be read, or is no such file."""
        self._names = {name for name, failed in _last_words(path, folder).items() if failed}

    def __len__(self) -> int:
        return len(self._names)

    def holds(self, name: str) -> bool:
        """Whether a file failed, by its path in the folder, with slashes, or a folder of it."""
        while name not in self._names:
            if not name:
                return False
            name = name.rpartition("/")[0]
        return True


def _last_words(path: Path, folder: Path) -> dict[str, bool]:
    """Whether what there was of a folder failed, by its path there."""
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
                f"{path}: line {number} is none that --json writes: give what a run with it wrote"
            ) from error
        if name is not None:
            found[name] = status == "failed"
    return found


def _name_below(source: str, base: Path) -> str | None:
    """The path of something in a folder; "" is the folder. None if it is not in it. Raises
    ValueError, TypeError for what is no path."""
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
