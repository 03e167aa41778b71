"""`waifu2x info FILE...`."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli import completions
from waifu2x.cli.command import Command
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import ImageError, UnavailableError, printable
from waifu2x.flows.jobs import is_archive
from waifu2x.formats.film import is_film
from waifu2x.networks import catalogue, model_set

if TYPE_CHECKING:
    from waifu2x.formats.description import Description

_SCALE = 2
"""The scale that pictures are enlarged by unless another is asked for."""


@click.command(cls=Command, short_help="Say what a picture's file holds, and what of it is kept.")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    shell_complete=completions.pictures_and_films,
)
@takes_settings("info")
def info(files: tuple[Path, ...], as_json: bool, **options: str) -> None:
    """Say what was found in each FILE, and what a result in a format would keep of it; of a film,
    how long it would take here.

    \b
    waifu2x info photo.jpg
    waifu2x info -f webp *.png
    waifu2x info --json photo.jpg
    waifu2x info film.mkv
    """
    from waifu2x.formats.description import describe  # with NumPy, late

    extension, failed = options["format"], False
    for path in files:
        try:
            if is_archive(path):
                document, text = _of_archive(path)
            elif is_film(path):
                from waifu2x.cli.film.messages import of_film

                document, lines = of_film(path)
                text = "\n    ".join(map(printable, lines))
            else:
                document, text = _of_picture(describe(path, extension), extension)
                text = printable(text)
        except (ImageError, UnavailableError) as error:
            failed = True
            if as_json:
                show(json.dumps({"file": str(path), "error": str(error)}))
            tell(str(error))
            continue
        if as_json:
            show(json.dumps({"file": str(path), **document}))
        else:
            _show_text(f"{printable(str(path))}: {text}")
    if failed:
        sys.exit(1)


def _show_text(text: str) -> None:
    """Shows lines; on a terminal that is too narrow, they continue indented."""
    for line in text.splitlines():
        if _is_terminal():
            width = max(40, shutil.get_terminal_size().columns)
            line = textwrap.fill(
                line, width, subsequent_indent="    ", break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
        show(line)


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _of_archive(path: Path) -> tuple[dict[str, Any], str]:
    """Describes an archive for programs and for people. Raises ImageError."""
    from waifu2x.flows.archive_pages import page_count

    count = page_count(path)
    return {"format": "ZIP", "pictures": count}, f"archive, {_counted(count)}"


def _counted(pictures: int) -> str:
    return "1 picture" if pictures == 1 else f"{pictures} pictures"


def _of_picture(found: Description, extension: str) -> tuple[dict[str, Any], str]:
    """Describes a picture's file for programs and for people."""
    from waifu2x.networks.noise_levels import limits_of

    height, width = found.height * _SCALE, found.width * _SCALE
    document = {**asdict(found), "enlarged": [width, height]}
    colours = f"{found.bits}-bit {found.colours}" + (" from a palette" if found.palette else "")
    parts = [f"{found.format}, {found.width}x{found.height}, {colours}"]
    if found.jpeg:
        parts.append(str(found.jpeg))
    if found.pictures > 1:
        parts.append(_counted(found.pictures))
    if found.transparent:
        parts.append("transparent")
    if found.code_points:
        parts.append(found.code_points)
    if found.profile:
        parts.append(f"profile {found.profile}")
    parts += [*found.metadata, *found.parts, *found.notices]
    parts.append(f"enlarged {_SCALE}x: {width}x{height}")
    if found.jpeg:
        level = limits_of(model_set.find(catalogue.DEFAULT)).level(
            found.jpeg.quality, enlarges=True
        )
        document["noise_level"] = level
        parts.append("-n auto: no noise removal" if level is None else f"-n auto: level {level}")
    if found.kept:
        parts.append(f"as {extension} it keeps {' and '.join(found.kept)}")
    if found.lost:
        parts.append(f"as {extension} it loses {' and '.join(found.lost)}")
    return document, "; ".join(parts)
