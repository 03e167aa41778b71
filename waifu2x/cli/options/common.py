"""Options that commands share, in the vocabulary of waifu2x-ncnn-vulkan."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

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
from waifu2x.cli.options import values
from waifu2x.cli.options.settings import config_option
from waifu2x.cli.output.report import Volume, set_volume, volume
from waifu2x.formats import table
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Depth
from waifu2x.imaging.sizes import Fit
from waifu2x.networks import catalogue

if TYPE_CHECKING:
    from waifu2x.flows.batch.subset import Shard

_Command = TypeVar("_Command", bound=Callable[..., Any])

LOCAL = "local"
"""Stands for the address of a cluster: processes of this machine."""
_SCHEDULER = re.compile(r"(tcp|tls|ucx|wss?)://\S+:\d+", re.ASCII)
"""An address of Dask's."""


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
    callback=values.scale,
    metavar="NUMBER",
    help="Times as large: 2 (the default), 1.5, 4/3, up to 32; 1 only denoises.",
)


def model_option_of(default: str) -> Callable[[_Command], _Command]:
    """Returns the option that names the model."""
    return option(
        "-m",
        "--model",
        default=default,
        show_default=True,
        metavar="NAME|PATH",
        shell_complete=completions.models,
        help="Model; `waifu2x models list` shows them.",
    )


model_option = model_option_of(catalogue.DEFAULT)
tta_option = option(
    "-x",
    "--tta",
    group=COMPUTING,
    type=click.Choice(["1", "2", "4", "8"]),
    default="1",
    metavar="[2|4|8]",
    shell_complete=completions.levels_of_tta,
    help="Mean of 8 turned and mirrored results, or fewer: so much more work.",
)
tile_option = option(
    "-t",
    "--tile",
    group=COMPUTING,
    callback=values.tile_size,
    metavar="auto|PX",
    default="auto",
    help="Output pixels worked on at once, a side. Never changes the result.",
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
        callback=values.devices,
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


def volume_options(command: _Command) -> _Command:
    """Adds --verbose and --quiet to a command, which need not know of them."""
    flags: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": _set_volume}
    flags["group"] = MESSAGES
    quiet = option("--quiet", **flags, help="Say nothing but errors.")
    verbose = option("-v", "--verbose", **flags, help="Say what is used, and the seconds.")
    return verbose(quiet(command))  # type: ignore[no-any-return]


def _set_volume(context: Any, parameter: click.Parameter, is_given: bool) -> None:
    if not is_given:
        return
    wanted = Volume.VERBOSE if parameter.name == "verbose" else Volume.QUIET
    if volume() not in (Volume.NORMAL, wanted):
        raise click.UsageError("--verbose and --quiet exclude each other.")
    set_volume(wanted)


def _size_option(
    name: str, text: str, joint: tuple[str, str] | None = None
) -> Callable[[_Command], _Command]:
    pixels = Pixels()
    return option(name, group=SIZE, type=pixels, metavar="PX", help=text, joint=joint)


_SIDE_OPTIONS = [
    _size_option(
        "--longer-side",
        "Longer side of the result in pixels.",
        ("--shorter-side", "One side of the result in pixels."),
    ),
    _size_option("--shorter-side", "Shorter side of the result in pixels."),
    option(
        "--min-size",
        group=SIZE,
        callback=values.two_sizes,
        metavar="PX|WxH",
        help="The fewest pixels each way; never reduced.",
    ),
]
_OPTIONS = [
    noise_option,
    scale_option,
    model_option,
    option(
        "--name",
        "template",
        group=IN_AND_OUT,
        callback=values.template,
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
    *_SIDE_OPTIONS,
    _size_option("--only-smaller-than", "Copy larger pictures as they are."),
    option(
        "-q",
        "--quality",
        group=FILE,
        callback=values.level,
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
        callback=values.colour,
        metavar="COLOUR",
        help="Instead of transparency, where the format has none: white, #rrggbb.",
    ),
    option("--strip", group=FILE, is_flag=True, help="Drop metadata; keep the colour profile."),
    option(
        "--copy-times", group=FILE, is_flag=True, help="Give outputs the dates of their inputs."
    ),
    tta_option,
    *_DEVICE_OPTIONS,
    tile_option,
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
    """Adds the options of `upscale` and `batch`."""
    return _with(command, _OPTIONS)


def side_options(command: _Command) -> _Command:
    """Adds the options that give the size by a side, or by the fewest pixels."""
    return _with(command, _SIDE_OPTIONS)


def device_options(command: _Command) -> _Command:
    """Adds the options that choose what computes."""
    return _with(command, _DEVICE_OPTIONS)


def network_options(command: _Command) -> _Command:
    """Adds the options that choose what computes, and with which weights."""
    return _with(command, _NETWORK_OPTIONS)


def _with(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for each in reversed(options):
        command = each(command)
    return command


def format_option(default: str | None, text: str) -> Callable[[_Command], _Command]:
    """Returns the option for the format of results."""
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


def _address(context: Any, parameter: Any, value: str | None) -> str | None:
    if value in (None, LOCAL) or _SCHEDULER.fullmatch(value or ""):
        return value
    raise click.BadParameter(f"{value!r}: expected {LOCAL}, or like tcp://host:8786.")


def _shard(context: Any, parameter: Any, value: str | None) -> Shard | None:
    from waifu2x.flows.batch.subset import shard_of

    try:
        return None if value is None else shard_of(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a part like 3/16.") from error


def shard_option(whole: str) -> Callable[[_Command], _Command]:
    """Returns `--shard N/PARTS`; `whole` is the thing that is divided."""
    return option(
        "--shard",
        group=IN_AND_OUT,
        callback=_shard,
        metavar="N/PARTS",
        help=f"Only this part of the {whole}, for several machines.",
    )


cluster_option = option(
    "--cluster",
    "address",
    group=IN_AND_OUT,
    callback=_address,
    metavar="tcp://HOST:PORT",
    help="Use the workers of this Dask cluster; local: two processes here.",
)
