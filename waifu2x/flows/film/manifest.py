"""What is known of the parts of a film: files beside them, so that a killed run can go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from waifu2x.errors import OutputError
from waifu2x.formats.film.encode import Encoded
from waifu2x.system.files import reason, write_atomically

_VERSION = 1
_MANIFEST = "manifest.json"
_MOST_BYTES = 64 << 20
"""The most bytes of a record: a part has some hundreds of pictures."""
_HASHED = 1 << 20
"""Bytes at the beginning and the end of a file that tell it from others."""
_LARGEST = 1 << 62


class PartRecord(NamedTuple):
    """A part that is complete."""

    encoded: Encoded
    size: int
    """Bytes of its file."""
    fingerprint: str
    last: str
    """A hash of the planes of the last frame that it was made of."""
    computed: int
    """How many of its pictures the network has made; the others were held."""


def fingerprint(path: Path) -> str:
    """A hash of a file's size, beginning and end. Raises OSError."""
    size = path.stat().st_size
    hashed = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        hashed.update(file.read(_HASHED))
        if size > _HASHED:
            file.seek(max(_HASHED, size - _HASHED))
            hashed.update(file.read(_HASHED))
    return hashed.hexdigest()


def source_identity(path: Path) -> dict[str, str]:
    """What tells whether a source has changed. Raises OSError."""
    status = path.stat()
    return {
        "size": str(status.st_size),
        "modified": str(status.st_mtime_ns),
        "content": fingerprint(path),
    }


def begin(folder: Path, settings: Mapping[str, str], *, restart: bool) -> None:
    """Makes the folder of parts, or finds it made with the same settings.

    Raises OutputError where they differ, and names what does.
    """
    path = folder / _MANIFEST
    try:
        if restart and path.exists():
            for file in folder.glob("part-*"):
                file.unlink()
            path.unlink()
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            whole = {"version": _VERSION, "settings": dict(sorted(settings.items()))}
            write_atomically(path, json.dumps(whole, indent=1).encode())
            return
        found = _settings(_read(path), path)
    except OSError as error:
        raise OutputError(f"{folder}: cannot keep parts here: {reason(error)}") from error
    differing = sorted(key for key in {*found, *settings} if found.get(key) != settings.get(key))
    if differing:
        told = "; ".join(
            f"{key} was {found.get(key, 'not there')!r} and is {settings.get(key, 'not there')!r}"
            for key in differing
        )
        raise OutputError(
            f"{folder}: holds parts that were made otherwise ({told}): "
            "use --restart, or do as before"
        )


def part_path(folder: Path, number: int) -> Path:
    """The file of a part."""
    return folder / f"part-{number:06d}.mkv"


def record(folder: Path, number: int, told: PartRecord) -> None:
    """Marks a part as complete. Raises OSError."""
    whole = {
        "version": _VERSION,
        "pts": told.encoded.pts,
        "durations": told.encoded.durations,
        "depth": told.encoded.depth,
        "size": told.size,
        "fingerprint": told.fingerprint,
        "last": told.last,
        "computed": told.computed,
    }
    path = part_path(folder, number).with_suffix(".json")
    write_atomically(path, json.dumps(whole, separators=(",", ":")).encode())


def recorded(folder: Path, number: int) -> PartRecord | None:
    """A part, if it is complete and as it was written. Raises OutputError for a damaged record."""
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


def _record(found: Mapping[str, Any], path: Path) -> PartRecord:
    if found.keys() != {
        "version", "pts", "durations", "depth", "size", "fingerprint", "last", "computed"
    }:  # fmt: skip
        raise _damaged(path)
    pts, durations = found["pts"], found["durations"]
    numbers = [found["depth"], found["size"], found["computed"]]
    texts = [found["fingerprint"], found["last"]]
    if (
        not isinstance(pts, list)
        or not isinstance(durations, list)
        or not all(type(one) is int and abs(one) < _LARGEST for one in (*pts, *durations, *numbers))
        or not all(isinstance(one, str) for one in texts)
        or not pts
        or len(pts) != len(durations)
        or min(numbers) < 0
        or min(durations) < 0
        or found["depth"] > len(pts)
        or any(later <= earlier for earlier, later in pairwise(pts))
    ):
        raise _damaged(path)
    return PartRecord(
        Encoded(tuple(pts), tuple(durations), found["depth"]),
        found["size"],
        found["fingerprint"],
        found["last"],
        found["computed"],
    )


def _damaged(path: Path) -> OutputError:
    return OutputError(f"{path}: damaged, or of another version: use --restart")
