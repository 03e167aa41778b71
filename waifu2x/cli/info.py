"""`waifu2x info FILE...`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from waifu2x.cli import completions
from waifu2x.cli.command import Command
from waifu2x.cli.options import format_option
from waifu2x.cli.report import show, tell
from waifu2x.cli.settings import config_option
from waifu2x.errors import ImageError, printable

if TYPE_CHECKING:
    from waifu2x.formats.description import Description


@click.command(cls=Command, short_help="Say what a picture's file holds, and what of it is kept.")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    shell_complete=completions.pictures,
)
@format_option("png", "Format of the result in question.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each file.")
def info(files: tuple[Path, ...], extension: str, as_json: bool) -> None:
    """Say what was found in each FILE, and what a result in a format would keep of it."""
    from waifu2x.formats.description import describe  # with NumPy, as late as can be

    failed = False
    for path in files:
        try:
            found = describe(path, extension)
        except ImageError as error:
            failed = True
            if as_json:
                show(json.dumps({"file": str(path), "error": str(error)}))
            tell(str(error))
            continue
        if as_json:
            show(json.dumps({"file": str(path), **asdict(found)}))
        else:
            show(printable(f"{path}: {_text(found, extension)}"))
    if failed:
        sys.exit(1)


def _text(found: Description, extension: str) -> str:
    parts = [f"{found.format}, {found.width}x{found.height}, {found.bits}-bit {found.colours}"]
    if found.jpeg:
        parts.append(str(found.jpeg))
    if found.pictures > 1:
        parts.append(f"{found.pictures} pictures")
    if found.transparent:
        parts.append("transparent")
    if found.profile:
        parts.append(f"profile {found.profile}")
    parts += [*found.metadata, *found.notices]
    kept = " and ".join(found.kept)
    lost = " and ".join(found.lost)
    if kept:
        parts.append(f"as {extension} it keeps {kept}")
    if lost:
        parts.append(f"as {extension} it loses {lost}")
    return "; ".join(parts)
