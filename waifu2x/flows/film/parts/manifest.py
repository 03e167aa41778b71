"""Records of the parts of a film, in files beside them, from which a killed run goes on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from waifu2x.errors import OutputError
from waifu2x.formats.film.reading.selection import MAX_CHANGES, Change
from waifu2x.formats.film.writing.encode import Encoded
from waifu2x.system.files import explained, reason, write_atomically

_VERSION = 4
_MANIFEST = "manifest.json"
_PART = re.compile(r"part-\d{6,}\.(?:mkv|json)")
_MOST_BYTES = 64 << 20
"""The most bytes of a record; a part has some hundreds of pictures."""
_HASHED = 1 << 20
"""Bytes at the beginning and the end of a file that identify it."""
_LARGEST = 1 << 62
_MOST_OF_CHANGE = 80
"""Characters that tell a size and a format."""
_MOST_DIGITS = 18


class PartRecord(NamedTuple):
    """A complete part."""

    encoded: Encoded
    size: int
    """Bytes of its file."""
    fingerprint: str
    before: str
    """Hash of the source's frame before its first one; empty if there is none."""
    last: str
    """Hash of its last source frame."""
    following: int | None
    """Time in ticks of the next frame; None at the end of the film."""
    computed: int
    """Pictures that the network made; the others were held."""
    damaged: int
    """Packets of the source that could not be decoded."""
    moved: int
    """Frames whose time was moved."""
    is_short: bool
    """Whether the film ends here, before it claims to."""
    is_sought: bool
    """Whether its first frame was found by seeking, which may be the wrong place."""
    changes: tuple[Change, ...]
    """Changes of pictures in it, which were given the size of the film."""


def fingerprint(path: Path) -> str:
    """Returns a hash of a file's size, beginning and end. Raises OSError."""
    size = path.stat().st_size
    hashed = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        hashed.update(file.read(_HASHED))
        if size > _HASHED:
            file.seek(max(_HASHED, size - _HASHED))
            hashed.update(file.read(_HASHED))
    return hashed.hexdigest()


def source_identity(path: Path) -> dict[str, str]:
    """Returns values that change with a source. Raises OSError."""
    status = path.stat()
    return {
        "size": str(status.st_size),
        "modified": str(status.st_mtime_ns),
        "content": fingerprint(path),
    }


def begin(
    folder: Path,
    settings: Mapping[str, str],
    *,
    own: Collection[str] = (),
    numbers: Mapping[str, range],
    restart: bool = False,
) -> Mapping[str, str]:
    """Begins an empty folder of parts, or reads the settings with which it was begun; returns them.
    The folder's own values win for the keys in `own`; values of `numbers` have to lie in a range.
    Raises OutputError that names all others that differ."""
    path = folder / _MANIFEST
    with explained(OutputError, f"{folder}: cannot keep parts here"):
        if restart:
            for file in [one for one in folder.iterdir() if is_own(one.name)]:
                file.unlink()
        if not path.exists():
            whole = {"version": _VERSION, "settings": dict(sorted(settings.items()))}
            with suppress(FileExistsError):  # another machine has just begun it
                write_atomically(path, json.dumps(whole, indent=1).encode(), replace=False)
        found = _settings(_read(path), path)
    differing = sorted(
        key
        for key in {*found, *settings}
        if found.get(key) != settings.get(key) and not (key in own and key in found)
    )
    if differing:
        told = "; ".join(
            f"{key} was {found.get(key, 'not there')!r} and is {settings.get(key, 'not there')!r}"
            for key in differing
        )
        way = (
            "--backend and --precision as before" if differing == ["arithmetic"] else "do as before"
        )
        raise OutputError(
            f"{folder}: it holds parts that were made otherwise ({told})",
            f"use --restart, or {way}",
        )
    for key, allowed in numbers.items():
        text = found.get(key, "")
        if not (text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) in allowed):
            raise _damaged(path)
    return found


def has_begun(folder: Path) -> bool:
    """Returns whether a folder is one of parts."""
    return (folder / _MANIFEST).is_file()


def has_parts(folder: Path) -> bool:
    """Returns whether a folder has a part that was complete once."""
    return any(folder.glob("part-*.json"))


def is_own(name: str) -> bool:
    """Returns whether a name is that of a part, a record or the settings."""
    return name == _MANIFEST or _PART.fullmatch(name) is not None


def part_path(folder: Path, number: int) -> Path:
    """Returns the file of a part."""
    return folder / f"part-{number:06d}.mkv"


def record(folder: Path, number: int, told: PartRecord) -> None:
    """Marks a part as complete. Raises OSError."""
    whole = {"version": _VERSION, **told.encoded._asdict(), **told._asdict()}
    del whole["encoded"]
    path = part_path(folder, number).with_suffix(".json")
    write_atomically(path, json.dumps(whole, separators=(",", ":")).encode())


def forget(folder: Path, number: int) -> None:
    """Removes a part, which is then made again. Raises OSError."""
    path = part_path(folder, number)
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def all_recorded(folder: Path, first: int = 0, until: int | None = None) -> dict[int, PartRecord]:
    """Returns the complete parts from `first` up to and without `until`, by their numbers. Raises
    OutputError for a damaged record."""
    numbers = sorted(
        int(path.stem[5:]) for path in folder.glob("part-*.json") if path.stem[5:].isdecimal()
    )
    found = {
        number: recorded(folder, number)
        for number in numbers
        if first <= number and (until is None or number < until)
    }
    return {number: told for number, told in found.items() if told is not None}


def recorded(folder: Path, number: int) -> PartRecord | None:
    """Returns a part if it is complete and unchanged. Raises OutputError for a damaged record."""
    file = part_path(folder, number)
    path = file.with_suffix(".json")
    try:
        told = _record(_read(path), path)
        whole = file.stat().st_size == told.size and fingerprint(file) == told.fingerprint
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: cannot read: {reason(error)}") from error
    return told if whole else None


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        found = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise _damaged(path)
    return found


def _settings(found: Mapping[str, Any], path: Path) -> dict[str, str]:
    settings = found.get("settings")
    if (
        found.keys() != {"version", "settings"}
        or not isinstance(settings, dict)
        or not all(isinstance(value, str) for value in settings.values())
    ):
        raise _damaged(path)
    return settings


_FACTS = PartRecord._fields[1:]


def _record(found: Mapping[str, Any], path: Path) -> PartRecord:
    if found.keys() != {"version", *Encoded._fields, *_FACTS}:
        raise _damaged(path)
    pts, durations, following = found["pts"], found["durations"], found["following"]
    numbers = [found[key] for key in ("depth", "size", "computed", "damaged", "moved")]
    times = [] if following is None else [following]
    texts = [found["fingerprint"], found["before"], found["last"]]
    facts = [found["is_short"], found["is_sought"]]
    if (
        not isinstance(pts, list)
        or not isinstance(durations, list)
        or not all(
            type(one) is int and abs(one) < _LARGEST for one in (*pts, *durations, *numbers, *times)
        )
        or not all(isinstance(one, str) for one in texts)
        or not all(isinstance(one, bool) for one in facts)
        or not pts
        or len(pts) != len(durations)
        or min(numbers) < 0
        or min(durations) < 0
        or found["depth"] > len(pts)
        or any(later <= earlier for earlier, later in pairwise([*pts, *times]))
        or not _are_changes(found["changes"])
    ):
        raise _damaged(path)
    encoded = Encoded(tuple(pts), tuple(durations), found["depth"])
    changes = tuple(Change(*one) for one in found["changes"])
    told = {name: found[name] for name in _FACTS} | {"changes": changes}
    return PartRecord(encoded, **told)


def _are_changes(found: Any) -> bool:
    return (
        isinstance(found, list)
        and len(found) <= MAX_CHANGES
        and all(isinstance(one, list) and len(one) == 2 for one in found)
        and all(type(pts) is int and abs(pts) < _LARGEST for pts, _ in found)
        and all(isinstance(to, str) and len(to) <= _MOST_OF_CHANGE for _, to in found)
    )


def _damaged(path: Path) -> OutputError:
    return OutputError(f"{path}: damaged, or of another version", "use --restart")
