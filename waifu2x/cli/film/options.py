"""The options of `waifu2x video` that no other command has."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, TypeVar, get_args

import click

from waifu2x.cli.command import FILE, IN_AND_OUT, SIZE, Choice, is_of_settings, listed, option
from waifu2x.cli.options.common import cluster_option, shard_option
from waifu2x.formats import table
from waifu2x.formats.film import HARDWARE
from waifu2x.formats.film.description import FilmCrop
from waifu2x.formats.table import Depth

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SOFTWARE = ("x264", "x265", "av1", "vp9", "ffv1", "prores")
CODECS = (
    *_SOFTWARE,
    *HARDWARE,
    "auto",
)
"""The values of --codec."""
_DEPTHS = ("auto", "8", "10")
_FORMS = ("mkv", "webm", "y4m")
_TIME = re.compile(r"(?:(?:(\d{1,3}):)?(\d{1,4}):)?(\d{1,6}(?:\.\d{1,9})?)", re.ASCII)


def _time(context: Any, parameter: Any, value: str | None) -> Fraction | None:
    """Parses a time such as 90, 1:30.5 or 1:02:03 into seconds."""
    if value is None:
        return None
    found = _TIME.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r}: expected seconds, or a time like 1:02.5.")
    hours, minutes, seconds = found.groups()
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + Fraction(seconds)


def _crf(context: Any, parameter: Any, value: str | None) -> float | None:
    if value is None:
        return None
    if re.fullmatch(r"\d{1,3}(\.\d{1,2})?", value, re.ASCII) and float(value) <= 255:
        return float(value)
    raise click.BadParameter(f"{value!r}: expected a number such as 18: less is better.")


def _crop(context: Any, parameter: Any, value: str | None) -> FilmCrop | Literal["auto"] | None:
    """Parses a rectangle as FFmpeg's filter takes it."""
    if value is None or value == "auto":
        return value  # type: ignore[return-value]
    found = re.fullmatch(r"(\d{1,5}):(\d{1,5}):(\d{1,5}):(\d{1,5})", value, re.ASCII)
    if found is None or not (int(found[1]) and int(found[2])):
        raise click.BadParameter(f"{value!r}: expected auto, or like 1920:800:0:140.")
    return FilmCrop(*map(int, found.groups()))


def _pairs(context: Any, parameter: Any, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = [value.partition("=") for value in values]
    for value, (key, equals, _) in zip(values, found, strict=True):
        if not (key and equals):
            raise click.BadParameter(f"{value!r}: expected KEY=VALUE.")
    return tuple((key, value) for key, _, value in found)


_OPTIONS = [
    option(
        "--audio",
        group=IN_AND_OUT,
        type=Choice(["copy", "none"]),
        default="copy",
        metavar="HOW",
        help="Sound: copy (the default), or none.",
        joint=("--subtitles", "copy (the default: every stream as it is), or none."),
    ),
    option(
        "--subtitles",
        group=IN_AND_OUT,
        type=Choice(["copy", "none"]),
        default="copy",
        metavar="HOW",
        help="Subtitles: copy (the default), or none.",
    ),
    option(
        "--drop-unsupported",
        group=IN_AND_OUT,
        is_flag=True,
        help="Leave out streams that OUT's container cannot hold.",
    ),
    option(
        "--start",
        group=IN_AND_OUT,
        callback=_time,
        metavar="TIME",
        help="Begin there: seconds, or like 1:02.5.",
        joint=("--end", "Only this stretch: seconds, or like 1:02.5."),
    ),
    option("--end", group=IN_AND_OUT, callback=_time, metavar="TIME", help="End there."),
    option(
        "--preview",
        group=IN_AND_OUT,
        callback=_time,
        metavar="TIME",
        help="Only this frame, as a PNG beside its plain enlargement.",
    ),
    option(
        "--restart",
        group=IN_AND_OUT,
        is_flag=True,
        help="Begin anew; without it, a run goes on with what OUT.parts has.",
        joint=("--keep-parts", "Begin anew, not with what OUT.parts has; keep it at the end."),
    ),
    option(
        "--keep-parts", group=IN_AND_OUT, is_flag=True, help="Do not remove OUT.parts at the end."
    ),
    shard_option("film"),
    option(
        "--join",
        group=IN_AND_OUT,
        is_flag=True,
        help="Only join what --shard has made on several machines.",
    ),
    cluster_option,
    option(
        "-f",
        "--format",
        "form",
        group=FILE,
        type=Choice([*_FORMS, *table.WRITABLE], _FORMS),
        metavar="EXT",
        help="What standard output gets: mkv (the default), webm or raw y4m.",
    ),
    option(
        "-c",
        "--codec",
        group=FILE,
        type=Choice(CODECS, (*_SOFTWARE, "h264_nvenc", "hevc_qsv", "auto")),
        metavar="NAME",
        help="x264 (8 bits), x265 (10), av1, vp9, ffv1, prores, h264_nvenc, auto ...",
    ),
    option(
        "--crf",
        group=FILE,
        callback=_crf,
        metavar="N",
        help="Quality, less is better: x264 18, x265 20, av1 28 unless given.",
    ),
    option(
        "--preset",
        group=FILE,
        metavar="NAME",
        help="How hard the encoder tries: medium for x264 and x265, 8 for av1.",
        joint=("--tune", "How hard the encoder tries: medium, av1: 8; what it keeps: animation."),
    ),
    option("--tune", group=FILE, metavar="NAME", help="What the encoder is to keep: animation."),
    option(
        "--codec-option",
        "codec_options",
        group=FILE,
        multiple=True,
        callback=_pairs,
        metavar="KEY=VALUE",
        help="An option of the encoder, by FFmpeg's name; may be repeated.",
    ),
    option(
        "--depth",
        group=FILE,
        type=Choice([*_DEPTHS, *get_args(Depth)], _DEPTHS),
        default="auto",
        metavar="VALUE",
        help="Bits a sample: 8, 10, or auto (the default): as IN has.",
        joint=("--chroma", "8 or 10 bits; 420, 422 or 444; auto (the default): as IN has."),
    ),
    option(
        "--chroma",
        group=FILE,
        type=Choice(["auto", "420", "422", "444"]),
        default="auto",
        metavar="VALUE",
        help="Chroma samples: 420, 422, 444, or auto (the default): as IN has.",
    ),
    option(
        "--deinterlace",
        group=FILE,
        type=Choice(["auto", "off", "frame", "field"]),
        default="auto",
        metavar="HOW",
        help="auto (the default: what says it is interlaced), off, frame, field.",
    ),
    option("--ivtc", group=FILE, is_flag=True, help="Undo the pulldown of film in NTSC."),
    option(
        "--crop",
        group=SIZE,
        callback=_crop,
        metavar="auto|W:H:X:Y",
        help="Only this of IN: all but black bars, or WxH from X, Y.",
    ),
    option(
        "--duplicates",
        group=FILE,
        type=Choice(["off", "exact", "tolerant"]),
        default="exact",
        metavar="HOW",
        help="Compute held frames once: off, exact (the default), tolerant.",
    ),
]


def depth_of(value: str) -> int | None:
    """Returns the bits per sample that --depth asks for; None for as many as the film has. Raises
    UsageError."""
    if _is_of_pictures("depth", value, _DEPTHS):
        return None
    return None if value == "auto" else int(value)


def form_of(value: str | None) -> str | None:
    """Returns the value of --format; None without one. Raises UsageError."""
    return None if value is None or _is_of_pictures("form", value, _FORMS) else value


def _is_of_pictures(name: str, value: str, known: tuple[str, ...]) -> bool:
    """Returns whether a value is a setting made for pictures, which is ignored. Raises UsageError
    for such a value on the command line."""
    if value in known:
        return False
    if not is_of_settings(name):
        option = {"form": "format"}.get(name, name)
        raise click.UsageError(f"--{option}: expected {listed(known)}, not {value!r}.")
    return True


def film_options(command: _Command) -> _Command:
    """Adds the options of films to a command."""
    for each in reversed(_OPTIONS):
        command = each(command)
    return command
