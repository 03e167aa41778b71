"""The project's facts for the scripts here: version, changelog, its owner's placeholder."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = ROOT / "waifu2x" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
NAME = "waifu2x-kernels"
PLACEHOLDER = "OWNER"
"""Stands in every address for the account that the project is published under."""
MOST_BYTES = 1 << 20
"""Files from here on are weights."""

_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_NUMBER = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_ADDRESS = re.compile(
    rf"(?:(?<=://)|(?<=github\.com[/:])|(?<=githubusercontent\.com/)|(?<=ghcr\.io/)){PLACEHOLDER}(?=[./])"
)


def version() -> str:
    """The version that the program tells, without importing it."""
    found = _VERSION.search(VERSION_FILE.read_text(encoding="utf-8"))
    assert found, f"{VERSION_FILE} has no version"
    return found[1]


def is_version(text: str) -> bool:
    """Whether this is a version that can be published: 1.2.3, or 1.2.3rc1."""
    return _NUMBER.fullmatch(text) is not None


def set_version(new: str) -> None:
    """Writes the version that the program tells."""
    text = VERSION_FILE.read_text(encoding="utf-8")
    VERSION_FILE.write_text(_VERSION.sub(f'__version__ = "{new}"', text), encoding="utf-8")


def notes(of: str) -> str | None:
    """The changelog's section of a version, without its heading; None if it has none."""
    text = CHANGELOG.read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(of)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)"
    found = re.search(heading, text, re.MULTILINE | re.DOTALL)
    return found[1].strip() + "\n" if found else None


def with_owner(text: str, owner: str) -> str:
    """A text with an account in the place of the placeholder of its addresses."""
    return _ADDRESS.sub(owner, text)


def tracked_texts() -> dict[Path, str]:
    """The files of the repository that are text; not the scripts here and their tests, which speak
    of the placeholder itself, and no weights."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    found = {}
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        own = path.suffix == ".py" and path.parent.name == "release"
        if name and not own and path.is_file() and path.stat().st_size < MOST_BYTES:
            try:
                found[path] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return found
