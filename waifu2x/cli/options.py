"""Options that commands share, in the vocabulary of waifu2x-ncnn-vulkan."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from waifu2x.backends import BACKEND_NAMES, Precision
from waifu2x.cli.report import detail, volume_options
from waifu2x.errors import OutputError
from waifu2x.flows.jobs import Existing, Output
from waifu2x.formats import table
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Depth, OutputOptions, Quality
from waifu2x.imaging.sizes import Fit, scale_of
from waifu2x.networks import catalogue
from waifu2x.system import stores

if TYPE_CHECKING:
    from waifu2x.api import Upscaler

_Command = TypeVar("_Command", bound=Callable[..., Any])


class CommandWithTta(click.Command):
    """A command whose --tta may stand without its number."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parses arguments with the number of a bare --tta added: a file name may follow it."""
        end = args.index("--") if "--" in args else len(args)
        for at in range(end):
            following = args[at + 1 : at + 2]
            if args[at] in ("-x", "--tta") and following not in _TTA_LEVELS:
                if following and following[0].isdecimal() and not Path(following[0]).exists():
                    raise click.UsageError("--tta takes 2, 4 or 8.", context)
                args[at] = "--tta=8"
        return super().parse_args(context, args)


_TTA_LEVELS = [["1"], ["2"], ["4"], ["8"]]
_MOST_PIXELS = 1_000_000


def _scale(context: Any, parameter: Any, value: str | None) -> Fraction | None:
    try:
        return None if value is None else scale_of(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r}: expected a number above 0, at most 32, such as 2, 1.5 or 4/3."
        ) from error


def _two_sizes(context: Any, parameter: Any, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})(?:x([1-9]\d{0,5}))?", value, re.ASCII)
    if not match:
        raise click.BadParameter(f"{value!r}: expected pixels, like 2000, or 3840x2160.")
    return int(match[1]), int(match[2] or match[1])


def _tile_size(context: Any, parameter: Any, value: str) -> int | None:
    if value == "auto":
        return None
    if re.fullmatch(r"\d{2,9}", value, re.ASCII) and int(value) >= 16:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither auto nor a whole number from 16 up.")


def _devices(context: Any, parameter: Any, value: str) -> tuple[int, ...] | Literal["all"]:
    if value == "all":
        return "all"
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected a number like 0, several like 0,1, or all.")
    numbers = tuple(map(int, value.split(",")))
    if len(set(numbers)) < len(numbers):
        raise click.BadParameter(f"{value!r} names a device twice.")
    return numbers


def _colour(context: Any, parameter: Any, value: str | None) -> tuple[int, int, int]:
    if value is None:
        return OutputOptions.background
    from PIL import ImageColor

    try:
        red, green, blue = ImageColor.getrgb(value)[:3]
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a name like black, or #rrggbb.") from error
    return red, green, blue


def _level(context: Any, parameter: Any, value: str | None) -> int | Literal["like"] | None:
    if value is None:
        return None
    if value == "like":
        return "like"
    range_: click.ParamType[Any] = click.IntRange(1, 100)
    return int(range_.convert(value, parameter, context))


noise_option = click.option(
    "-n",
    "--noise",
    type=click.Choice(["none", "0", "1", "2", "3"]),
    default="none",
    show_default=True,
    help="Denoise: 0 weak, for JPEG quality 85-95; 3 strong.",
)
_DEVICE_OPTIONS = [
    click.option(
        "--backend",
        type=click.Choice(["auto", *BACKEND_NAMES]),
        default="auto",
        show_default=True,
        help="What computes; `waifu2x devices` shows what works here.",
    ),
    click.option(
        "-g",
        "--device",
        callback=_devices,
        default="0",
        show_default=True,
        metavar="N[,N]|all",
        help="Which of the backend's devices; `batch` divides its pictures among several.",
    ),
    click.option(
        "--precision",
        type=click.Choice(get_args(Precision)),
        default="auto",
        show_default=True,
        help="auto: the fastest that keeps 60 dB.",
    ),
]
_NETWORK_OPTIONS = [
    click.option(
        "-m",
        "--model",
        default=catalogue.DEFAULT,
        show_default=True,
        metavar="NAME|FOLDER",
        help="Model set; `waifu2x models list` shows them.",
    ),
    *_DEVICE_OPTIONS,
]
scale_option = click.option(
    "-s",
    "--scale",
    callback=_scale,
    metavar="NUMBER",
    help="Enlarge this many times, up to 32, fractions too; 1 only denoises.  [default: 2]",
)


def _size_option(name: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(name, type=click.IntRange(1, _MOST_PIXELS), metavar="PX", help=text)


_OPTIONS = [
    noise_option,
    scale_option,
    _size_option("--width", "Width of the result in pixels; alone, it keeps the proportions."),
    _size_option("--height", "Height of the result in pixels; alone, it keeps the proportions."),
    click.option(
        "--fit",
        type=click.Choice(get_args(Fit)),
        help="With both: inside, the largest that fits (the default); cover, exactly that size,"
        " cropped; exact, exactly that size, stretched.",
    ),
    _size_option("--longer-side", "Longer side of the result in pixels."),
    _size_option("--shorter-side", "Shorter side of the result in pixels."),
    click.option(
        "--min-size",
        callback=_two_sizes,
        metavar="PX|WxH",
        help="The result has at least so many pixels each way, and is never reduced.",
    ),
    _size_option(
        "--only-smaller-than",
        "Skip pictures already at least PX long; their file is copied unchanged if the format"
        " matches.",
    ),
    *_NETWORK_OPTIONS,
    click.option(
        "-x",
        "--tta",
        type=click.Choice(["1", "2", "4", "8"]),
        default="1",
        metavar="[2|4|8]",
        help="The mean of so many results, of the picture turned and mirrored: a little better, so"
        " many times the work. Without a number it is 8.",
    ),
    click.option(
        "-t",
        "--tile",
        callback=_tile_size,
        metavar="auto|PX",
        default="auto",
        show_default=True,
        help="Output pixels worked on at once, a side. Never changes the result.",
    ),
    click.option(
        "-q",
        "--quality",
        callback=_level,
        metavar="1..100|like",
        help="Quality of jpg (default 95), avif, heic (90), webp, jxl and jp2 (default: lossless)."
        " like: jpg coded as finely as the input was, if that is one.",
    ),
    click.option(
        "--compression",
        type=click.Choice(get_args(Compression)),
        default="default",
        show_default=True,
        help="Effort for small files: png, tif, webp and jxl.",
    ),
    click.option(
        "--depth",
        type=click.Choice(get_args(Depth)),
        default="auto",
        show_default=True,
        help="Bits per sample; auto: as many as the input has, where the format holds them.",
    ),
    click.option(
        "--background",
        callback=_colour,
        show_default="white",
        metavar="COLOUR",
        help="Under transparent pixels, where the format has none: a name or #rrggbb.",
    ),
    click.option("--strip", is_flag=True, help="Drop metadata; keep the colour profile."),
    click.option("--copy-times", is_flag=True, help="Give outputs the dates of their inputs."),
    click.option(
        "--max-pixels",
        type=click.IntRange(1),
        default=MAX_PIXELS,
        show_default=True,
        metavar="N",
        help="Refuse files that hold more, all their frames together.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace outputs that exist."),
    click.option("--skip-existing", is_flag=True, help="Leave outputs that exist as they are."),
    volume_options,
    click.option(
        "--json", "as_json", is_flag=True, help="One line of JSON for each picture, on stdout."
    ),
]


def upscale_options(command: _Command) -> _Command:
    """The options of `upscale` and `batch`."""
    return _with(command, _OPTIONS)


def device_options(command: _Command) -> _Command:
    """The options that say what computes."""
    return _with(command, _DEVICE_OPTIONS)


def network_options(command: _Command) -> _Command:
    """The options that say what computes, and with which weights."""
    return _with(command, _NETWORK_OPTIONS)


def _with(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def open_upscaler(**options: Any) -> Upscaler:
    """An upscaler from the options; a usage error as `arguments_of` has them."""
    return opened(arguments_of(**options))


def opened(arguments: Mapping[str, Any]) -> Upscaler:
    """An upscaler from its arguments. What it has to say of backends is a detail."""
    from waifu2x.api import Upscaler  # with NumPy, which to show a help need not wait for

    upscaler = Upscaler(**arguments)
    for notice in upscaler.notices:
        detail(notice)
    return upscaler


def arguments_of(
    noise: str,
    scale: Fraction | None,
    width: int | None,
    height: int | None,
    fit: Fit | None,
    longer_side: int | None,
    shorter_side: int | None,
    min_size: tuple[int, int] | None,
    only_smaller_than: int | None,
    tta: str,
    **others: Any,
) -> dict[str, Any]:
    """Those of an Upscaler; a usage error for nothing to do, and for more than one size."""
    sizes = {
        "--scale": scale,
        "--width and --height": width or height,
        "--longer-side": longer_side,
        "--shorter-side": shorter_side,
        "--min-size": min_size,
    }
    given = [name for name, value in sizes.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"Give one size: {' or '.join(given)}.")
    if fit is not None and None in (width, height):
        raise click.UsageError("--fit needs --width and --height.")
    if noise == "none" and scale == 1:
        raise click.UsageError("Nothing to do: give --noise, a --scale above 1, or both.")
    return {
        "scale": scale,
        "noise": None if noise == "none" else int(noise),
        "width": width,
        "height": height,
        "fit": fit or "inside",
        "longer_side": longer_side,
        "shorter_side": shorter_side,
        "min_size": min_size,
        "only_smaller_than": only_smaller_than,
        "tta": int(tta),
        **others,
    }


OUTPUT_NAMES = (
    "quality", "compression", "depth", "background", "strip", "copy_times", "overwrite",
    "skip_existing",
)  # fmt: skip
"""The options that `output_of` takes."""


def output_of(
    extension: str,
    *,
    quality: int | Literal["like"] | None,
    compression: Compression,
    depth: Depth,
    background: tuple[int, int, int],
    strip: bool,
    copy_times: bool,
    overwrite: bool,
    skip_existing: bool,
) -> Output:
    """How results are written; a usage error for what contradicts itself or the format."""
    form = table.of(extension)
    if quality is not None and not form.quality:
        lossy = ", ".join(table.LOSSY)
        raise click.UsageError(f"--quality is for {lossy}; {extension} is lossless.")
    if quality == "like" and form.name != "JPEG":
        raise click.UsageError(f"--quality like is for jpg; give {extension} a number.")
    if compression != "default" and not form.compression:
        raise click.UsageError(f"--compression is for {', '.join(table.COMPRESSED)}.")
    if depth != "auto" and int(depth) not in form.depths:
        raise click.UsageError(
            f"{form.name} does not hold {depth} bits a sample: choose png or tiff."
        )
    if overwrite and skip_existing:
        raise click.UsageError("--overwrite and --skip-existing exclude each other.")
    existing: Existing = "overwrite" if overwrite else "skip" if skip_existing else "fail"
    options = OutputOptions(depth, background, strip)
    return Output(extension, Quality(quality, compression), existing, options, copy_times)


class Location(click.ParamType[Path]):
    """An argument that is a path, or a URL of files."""

    name = "path"

    def convert(self, value: Any, parameter: Any, context: Any) -> Path:
        """The path or URL of an argument. Raises StoreError for a URL that cannot be used."""
        return value if isinstance(value, Path) else stores.located(value)


def check_folder(folder: Path) -> None:
    """Raises OutputError if outputs cannot appear in a folder: better before the work.

    And StoreError, if they could be seen before they are complete.
    """
    if stores.is_url(folder):
        stores.check_outputs(folder)
        return
    if not folder.is_dir():
        raise OutputError(f"{folder}: no such folder: make it first")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: cannot write to this folder: permission denied")


def describe(upscaler: Upscaler) -> str:
    """What an upscaler computes with, for --verbose."""
    device = upscaler.engine.backend.device
    passes = f"; networks: {upscaler.passes}" if upscaler.passes else ""
    return f"{upscaler.engine.backend.name}: {device.name}, {device.detail}{passes}"
