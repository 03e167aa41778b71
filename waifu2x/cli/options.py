"""Options that commands share, in the vocabulary of waifu2x-ncnn-vulkan."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from waifu2x.backends import BACKEND_NAMES, Precision
from waifu2x.cli import completions
from waifu2x.cli.command import (
    COMPUTING,
    FILE,
    IN_AND_OUT,
    MESSAGES,
    SIZE,
    Choice,
    Pixels,
    listed,
    option,
)
from waifu2x.cli.report import tell
from waifu2x.cli.settings import config_option, is_of_settings
from waifu2x.cli.volume import volume_options
from waifu2x.errors import OutputError
from waifu2x.flows import naming
from waifu2x.flows.jobs import Existing, Output
from waifu2x.flows.naming import Naming
from waifu2x.formats import table
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Depth, OutputOptions, Quality
from waifu2x.imaging import sizes
from waifu2x.imaging.sizes import Fit, Request, scale_of
from waifu2x.networks import catalogue
from waifu2x.system import stores

if TYPE_CHECKING:
    from waifu2x.api import Upscaler

_Command = TypeVar("_Command", bound=Callable[..., Any])


_SIZES = (
    "scale", "width", "height", "fit", "longer_side", "shorter_side", "min_size",
    "only_smaller_than",
)  # fmt: skip
"""Arguments of an Upscaler that say how large results are."""


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


def _template(context: Any, parameter: Any, value: str | None) -> str | None:
    if value is not None:
        try:
            naming.check(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from error
    return value


def _level(context: Any, parameter: Any, value: str | None) -> int | Literal["like"] | None:
    if value is None:
        return None
    if value == "like":
        return "like"
    if re.fullmatch(r"[1-9]\d?|100", value, re.ASCII):
        return int(value)
    raise click.BadParameter(f"{value!r}: expected a number from 1 to 100, or like.")


noise_option = option(
    "-n",
    "--noise",
    type=Choice(["auto", "none", "0", "1", "2", "3"]),
    default="auto",
    metavar="LEVEL",
    help="Denoise: auto (the default: by a JPEG's quality), none, 0 to 3.",
)
level_option = option(
    "-n",
    "--noise",
    type=Choice(["none", "0", "1", "2", "3"]),
    default="none",
    metavar="LEVEL",
    help="Denoise: none (the default), 0 (JPEG of quality 85-95) to 3 (strong).",
)
scale_option = option(
    "-s",
    "--scale",
    callback=_scale,
    metavar="NUMBER",
    help="Times as large: 2 (the default), 1.5, 4/3, up to 32; 1 only denoises.",
)
model_option = option(
    "-m",
    "--model",
    default=catalogue.DEFAULT,
    show_default=True,
    metavar="NAME|PATH",
    shell_complete=completions.models,
    help="Model; `waifu2x models list` shows them.",
)
_DEVICE_OPTIONS = [
    option(
        "--backend",
        group=COMPUTING,
        type=Choice(["auto", *BACKEND_NAMES]),
        default="auto",
        metavar="NAME",
        help=f"What computes: auto (the default), {listed(BACKEND_NAMES)}.",
    ),
    option(
        "-g",
        "--device",
        group=COMPUTING,
        callback=_devices,
        default="0",
        show_default=True,
        metavar="N[,N]|all",
        shell_complete=completions.devices,
        help="Which of its devices; `waifu2x devices` shows them.",
    ),
    option(
        "--precision",
        group=COMPUTING,
        type=Choice(get_args(Precision)),
        default="auto",
        metavar="MODE",
        help="auto: fastest mode that keeps 60 dB; or fp32, fp16, bf16, int16.",
    ),
]
_NETWORK_OPTIONS = [model_option, *_DEVICE_OPTIONS]


def _size_option(
    name: str, text: str, joint: tuple[str, str] | None = None
) -> Callable[[_Command], _Command]:
    pixels = Pixels()
    return option(name, group=SIZE, type=pixels, metavar="PX", help=text, joint=joint)


_OPTIONS = [
    noise_option,
    scale_option,
    model_option,
    option(
        "--name",
        "template",
        group=IN_AND_OUT,
        callback=_template,
        metavar="TEMPLATE",
        help="Of {stem} {scale} {ext} {width} {height} {model} {noise}.",
    ),
    option(
        "--overwrite",
        group=IN_AND_OUT,
        is_flag=True,
        help="Replace outputs that exist.",
        joint=("--skip-existing", "Replace outputs that exist, or leave them alone."),
    ),
    option(
        "--skip-existing", group=IN_AND_OUT, is_flag=True, help="Leave outputs that exist alone."
    ),
    _size_option(
        "--width",
        "Width of the result in pixels; alone, it keeps the proportions.",
        ("--height", "Size of the result in pixels; one alone keeps the proportions."),
    ),
    _size_option("--height", "Height of the result in pixels; alone, it keeps the proportions."),
    option(
        "--fit",
        group=SIZE,
        type=Choice(get_args(Fit)),
        metavar="HOW",
        help="With both: inside (default), cover (cropped), exact (stretched).",
    ),
    _size_option(
        "--longer-side",
        "Longer side of the result in pixels.",
        ("--shorter-side", "One side of the result in pixels."),
    ),
    _size_option("--shorter-side", "Shorter side of the result in pixels."),
    option(
        "--min-size",
        group=SIZE,
        callback=_two_sizes,
        metavar="PX|WxH",
        help="At least so many pixels each way; never reduced.",
    ),
    _size_option("--only-smaller-than", "Copy larger pictures as they are."),
    option(
        "-q",
        "--quality",
        group=FILE,
        callback=_level,
        metavar="1..100|like",
        help="jpg (95), avif, heic (90), webp, jxl, jp2 (lossless); like the input.",
    ),
    option(
        "--compression",
        group=FILE,
        type=Choice(get_args(Compression)),
        default="default",
        metavar="EFFORT",
        help="Effort for small files (png, tif, webp, jxl): fast, default or best.",
    ),
    option(
        "--depth",
        group=FILE,
        type=Choice(get_args(Depth)),
        default="auto",
        metavar="BITS",
        help="Bits a sample: 8, 16 or auto (the default): as many as the input has.",
    ),
    option(
        "--background",
        group=FILE,
        callback=_colour,
        metavar="COLOUR",
        help="Instead of transparency, where the format has none: white, #rrggbb.",
    ),
    option("--strip", group=FILE, is_flag=True, help="Drop metadata; keep the colour profile."),
    option(
        "--copy-times", group=FILE, is_flag=True, help="Give outputs the dates of their inputs."
    ),
    option(
        "-x",
        "--tta",
        group=COMPUTING,
        type=click.Choice(["1", "2", "4", "8"]),
        default="1",
        metavar="[2|4|8]",
        shell_complete=completions.levels_of_tta,
        help="Mean of 8 turned and mirrored results, or fewer: so much more work.",
    ),
    *_DEVICE_OPTIONS,
    option(
        "-t",
        "--tile",
        group=COMPUTING,
        callback=_tile_size,
        metavar="auto|PX",
        default="auto",
        help="Output pixels worked on at once, a side. Never changes the result.",
    ),
    option(
        "--max-pixels",
        group=IN_AND_OUT,
        type=Pixels(sys.maxsize),
        default=MAX_PIXELS,
        metavar="N",
        help=f"Refuse files that hold more, all frames together.  [{MAX_PIXELS}]",
    ),
    volume_options,
    config_option,
    option(
        "--json",
        "as_json",
        group=MESSAGES,
        is_flag=True,
        help="One line of JSON for each picture, on stdout.",
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
    for each in reversed(options):
        command = each(command)
    return command


def open_upscaler(**options: Any) -> Upscaler:
    """An upscaler from the options; a usage error as `arguments_of` has them."""
    return opened(arguments_of(**options))


def opened(arguments: Mapping[str, Any]) -> Upscaler:
    """An upscaler from its arguments; what it has to say is told."""
    from waifu2x.api import Upscaler  # with NumPy, which to show a help need not wait for

    upscaler = Upscaler(**arguments)
    for notice in upscaler.notices:
        tell(notice)
    tell_reduction(**arguments)
    return upscaler


def tell_reduction(model: str, scale: Fraction | None, **options: Any) -> None:
    """Tells of a model that enlarges far more than is asked for, so that most of its work is
    thrown away."""
    others = ("width", "height", "longer_side", "shorter_side", "min_size")
    wanted = Fraction(2) if scale is None else scale
    if model == catalogue.DEFAULT or wanted <= 1 or any(options[name] for name in others):
        return
    from waifu2x.networks import model_set  # which helps need not wait for

    models = model_set.find(model)
    factor = math.prod(models.factors(wanted))
    if factor >= 2 * wanted:
        tell(
            f"{models.name} enlarges {factor} times: the result is reduced to {float(wanted):g}x;"
            f" -s {factor} takes no longer"
        )


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
        "noise": noise_of(noise),
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


def request_of(**options: Any) -> Request:
    """The size that the options ask for; a usage error as `arguments_of` has them."""
    arguments = arguments_of(**options)
    return sizes.request(**{name: arguments[name] for name in _SIZES})


def noise_of(choice: str) -> int | Literal["auto"] | None:
    """What a choice of --noise means to an Upscaler."""
    return "auto" if choice == "auto" else None if choice == "none" else int(choice)


def naming_of(
    template: str,
    extension: str | None,
    max_pixels: int,
    *,
    several: bool,
    **options: Any,
) -> Naming:
    """How results are called, by a template and the options; a usage error where several results
    would have one name."""
    if several and "stem" not in naming.fields_of(template):
        raise click.UsageError(f"--name {template}: without {{stem}} all results have one name.")
    request = request_of(**options)
    known = {"model": naming.of_model(options["model"]), "noise": options["noise"]}
    if request.scale is not None:
        known["scale"] = naming.shown(request.scale)
    return Naming(template, extension, known, naming.size_by(request, max_pixels))


def format_option(default: str | None, text: str) -> Callable[[_Command], _Command]:
    """The option for the format of results."""
    names = tuple(dict.fromkeys(table.of(each).extensions[0] for each in table.WRITABLE))
    return option(
        "-f",
        "--format",
        "extension",
        group=IN_AND_OUT,
        type=Choice(table.WRITABLE, names),
        default=default,
        show_default=default is not None,
        metavar="EXT",
        help=text,
    )


OUTPUT_NAMES = (
    "quality", "compression", "depth", "background", "strip", "copy_times", "overwrite",
    "skip_existing",
)  # fmt: skip
"""The options that `output_of` takes."""


def check_format(extension: str) -> None:
    """Raises OutputError if this installation cannot write a format: better before the work."""
    try:
        table.check_encoder(table.of(extension))
    except OutputError as error:
        raise OutputError(f"cannot write .{extension}: {error}") from error


def output_of(
    extension: str | None,
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
    """How results are written; a usage error for what contradicts itself or the format.

    None is for archives whose pages keep their formats.
    """
    # A setting for one format must not stop another, as an option of the command line does.
    if _gives_way("quality", extension, Quality(quality)):
        quality = None
    if _gives_way("compression", extension, Quality(compression=compression)):
        compression = "default"
    if _gives_way("depth", extension, Quality(), depth):
        depth = "auto"
    encoded = Quality(quality, compression)
    try:
        if extension is not None:
            table.check(extension, encoded, depth)
    except ValueError as error:
        raise click.UsageError(f"--{error}.") from error
    if overwrite and skip_existing:
        raise click.UsageError("--overwrite and --skip-existing exclude each other.")
    existing: Existing = "overwrite" if overwrite else "skip" if skip_existing else "fail"
    options = OutputOptions(depth, background, strip)
    return Output(extension or "png", encoded, existing, options, copy_times)


def _gives_way(name: str, extension: str | None, encoded: Quality, depth: Depth = "auto") -> bool:
    """Whether the value of an option is a setting that a format cannot follow."""
    if extension is None or not is_of_settings(name):
        return False
    try:
        table.check(extension, encoded, depth)
    except ValueError:
        return True
    return False


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
