"""Options that commands share, in the vocabulary of waifu2x-ncnn-vulkan."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from waifu2x import model_set
from waifu2x.backends import BACKEND_NAMES, Precision
from waifu2x.cli.report import tell
from waifu2x.errors import OutputError
from waifu2x.pictures import formats
from waifu2x.pictures.adapt import Depth, Wishes
from waifu2x.pictures.limits import MAX_PIXELS
from waifu2x.pipeline import Existing, Output
from waifu2x.upscaler import SCALES, Upscaler

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _tile_size(context: Any, parameter: Any, value: str) -> int | None:
    if value == "auto":
        return None
    if re.fullmatch(r"\d{2,9}", value, re.ASCII) and int(value) >= 16:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither auto nor a whole number from 16 up.")


def _devices(context: Any, parameter: Any, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected a number like 0, or several like 0,1.")
    numbers = tuple(map(int, value.split(",")))
    if len(set(numbers)) < len(numbers):
        raise click.BadParameter(f"{value!r} names a device twice.")
    return numbers


def _colour(context: Any, parameter: Any, value: str) -> tuple[int, int, int]:
    from PIL import ImageColor

    try:
        red, green, blue = ImageColor.getrgb(value)[:3]
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a name like black, or #rrggbb.") from error
    return red, green, blue


noise_option = click.option(
    "-n",
    "--noise",
    type=click.Choice(["none", "0", "1", "2", "3"]),
    default="none",
    show_default=True,
    help="Denoise: 0 weak, for JPEG quality 85-95; 3 strong.",
)
_NETWORK_OPTIONS = [
    click.option(
        "-m",
        "--model",
        default=model_set.DEFAULT,
        show_default=True,
        metavar="NAME|FOLDER",
        help="Model set; `waifu2x models list` shows them.",
    ),
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
        metavar="N[,N]",
        help="Which of the backend's devices; `batch` divides its pictures among several.",
    ),
    click.option(
        "--precision",
        type=click.Choice(get_args(Precision)),
        default="auto",
        show_default=True,
        help="auto: the fastest whose error nobody can see.",
    ),
]
_OPTIONS = [
    noise_option,
    click.option(
        "-s",
        "--scale",
        type=click.Choice([str(scale) for scale in SCALES]),
        default="2",
        show_default=True,
        help="Enlarge this many times; 1 only denoises.",
    ),
    *_NETWORK_OPTIONS,
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
        type=click.IntRange(1, 100),
        help="Of jpg (default 95), avif and heic (90), webp, jxl and jp2 (default: lossless).",
    ),
    click.option(
        "--depth",
        type=click.Choice(get_args(Depth)),
        default="auto",
        show_default=True,
        help="Bits a sample; auto: as many as the input has, where the format holds them.",
    ),
    click.option(
        "--background",
        callback=_colour,
        default="white",
        show_default=True,
        metavar="COLOUR",
        help="Under transparent pixels, where the format has none: a name or #rrggbb.",
    ),
    click.option("--strip", is_flag=True, help="Keep no metadata; colours keep their meaning."),
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
    click.option("-v", "--verbose", is_flag=True, help="Say what is used and how long it takes."),
    click.option(
        "--json", "as_json", is_flag=True, help="One line of JSON for each picture, on stdout."
    ),
]


def upscale_options(command: _Command) -> _Command:
    """The options of `upscale` and `batch`."""
    return _with(command, _OPTIONS)


def network_options(command: _Command) -> _Command:
    """The options that say what computes, and with which weights."""
    return _with(command, _NETWORK_OPTIONS)


def _with(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def open_upscaler(
    noise: str,
    scale: str,
    model: str,
    backend: str,
    device: tuple[int, ...],
    precision: Any,
    tile: int | None,
) -> Upscaler:
    """An upscaler from the options; with nothing to do, a usage error."""
    if noise == "none" and scale == "1":
        raise click.UsageError("Nothing to do: give --noise, a --scale above 1, or both.")
    level = None if noise == "none" else int(noise)
    upscaler = Upscaler(
        int(scale),
        level,
        model=model,
        backend=backend,
        device=device,
        precision=precision,
        tile=tile,
    )
    for note in upscaler.notes:
        tell(note)
    return upscaler


OUTPUT_NAMES = (
    "quality", "depth", "background", "strip", "copy_times", "overwrite", "skip_existing"
)  # fmt: skip
"""The options that `output_of` takes."""


def output_of(
    extension: str,
    *,
    quality: int | None,
    depth: Depth,
    background: tuple[int, int, int],
    strip: bool,
    copy_times: bool,
    overwrite: bool,
    skip_existing: bool,
) -> Output:
    """How results are written; a usage error for what contradicts itself or the format."""
    form = formats.of(extension)
    if quality is not None and not form.quality:
        lossy = ", ".join(formats.LOSSY)
        raise click.UsageError(f"--quality is for {lossy}; {extension} is lossless.")
    if depth != "auto" and int(depth) not in form.depths:
        raise click.UsageError(
            f"{form.name} does not hold {depth} bits a sample: choose png or tiff."
        )
    if overwrite and skip_existing:
        raise click.UsageError("--overwrite and --skip-existing exclude each other.")
    existing: Existing = "overwrite" if overwrite else "skip" if skip_existing else "fail"
    wishes = Wishes(depth, background, strip)
    return Output(extension, quality, existing, wishes, copy_times)


def check_folder(folder: Path) -> None:
    """Raises OutputError if outputs cannot appear in a folder: better before the work."""
    if not folder.is_dir():
        raise OutputError(f"{folder}: no such folder: make it first")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: cannot write to this folder: permission denied")


def describe(upscaler: Upscaler) -> str:
    """What an upscaler computes with, for --verbose."""
    device = upscaler.backend.device
    return f"{upscaler.backend.name}: {device.name}, {device.detail}"
