"""Names of films, which need no library."""

from __future__ import annotations

from pathlib import Path

READABLE = (
    "mkv", "mp4", "m4v", "mov", "webm", "avi", "ts", "m2ts", "mts", "mpg", "mpeg", "vob", "flv",
    "wmv", "asf", "ogv", "y4m", "mxf", "nut", "ivf", "3gp",
)  # fmt: skip
"""Extensions of films."""
WRITABLE = ("mkv", "mp4", "mov", "webm")
"""Those that are made."""


def is_film(path: Path) -> bool:
    """Whether a file is a film, by its name."""
    return path.suffix[1:].lower() in READABLE
