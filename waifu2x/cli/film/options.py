"""Turns the options of `waifu2x video` into a film to make."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import click

from waifu2x.api.settings.table import FILM_DEPTHS, FILM_FORMS
from waifu2x.cli.command import is_of_settings
from waifu2x.cli.film.work import WantedFilm
from waifu2x.cli.options.arguments import arguments_of
from waifu2x.flows.jobs import Job
from waifu2x.system.arguments import listed


def wanted_film(named: Job, options: dict[str, Any]) -> WantedFilm:
    """Returns the film that the options of `waifu2x video` ask for, which are taken from `options`.
    Raises UsageError for contradictions."""
    # With NumPy: late, so that a help need not wait for it.
    from waifu2x.flows.film.request import FilmJob
    from waifu2x.formats.film.description import Cut
    from waifu2x.formats.film.writing.codecs import Wish

    def own(name: str) -> Any:
        return options.pop(name)

    depth, chroma = own("depth"), own("chroma")
    wish = Wish(
        own("codec"),
        own("crf"),
        own("preset"),
        own("tune"),
        _depth(depth),
        None if chroma == "auto" else chroma,
        own("codec_options"),
    )
    start, end = own("start") or Fraction(0), own("end")
    if end is not None and end <= start:
        raise click.UsageError("--end must be later than --start.")
    how, ivtc = own("deinterlace"), own("ivtc")
    job = FilmJob(
        named.source,
        named.target,
        wish,
        sound=own("audio") == "copy",
        subtitles=own("subtitles") == "copy",
        drop_unsupported=own("drop_unsupported"),
        cut=Cut(start, end),
        deinterlacing="ivtc" if ivtc else None if how == "auto" else how,
        duplicates=own("duplicates"),
        max_height=own("max_height"),
        form=_form(own("format")),
        to=own("to"),
    )
    crop = own("crop")
    for name in ("fit", "only_smaller_than"):
        options[name] = None
    return WantedFilm(job, arguments_of(**options), crop)


def _depth(value: str) -> int | None:
    """Returns the bits per sample that --depth asks for; None for as many as the film has. Raises
    UsageError."""
    if _is_of_pictures("depth", value, FILM_DEPTHS):
        return None
    return None if value == "auto" else int(value)


def _form(value: str | None) -> str | None:
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
