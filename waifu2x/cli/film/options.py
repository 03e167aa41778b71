"""Options of `waifu2x video` that pictures have with other values."""

from __future__ import annotations

import click

from waifu2x.api.settings.table import FILM_DEPTHS, FILM_FORMS
from waifu2x.cli.command import is_of_settings
from waifu2x.system.arguments import listed


def depth_of(value: str) -> int | None:
    """Returns the bits per sample that --depth asks for; None for as many as the film has. Raises
    UsageError."""
    if _is_of_pictures("depth", value, FILM_DEPTHS):
        return None
    return None if value == "auto" else int(value)


def form_of(value: str | None) -> str | None:
    """Returns the value of --format; None without one. Raises UsageError."""
    return None if value is None or _is_of_pictures("format", value, FILM_FORMS) else value


def _is_of_pictures(name: str, value: str, known: tuple[str, ...]) -> bool:
    """Returns whether a value is a setting made for pictures, which is ignored. Raises UsageError
    for such a value on the command line."""
    if value in known:
        return False
    if not is_of_settings(name):
        raise click.UsageError(f"--{name}: expected {listed(known)}, not {value!r}.")
    return True
