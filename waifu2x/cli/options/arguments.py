"""Turns the options of a command line into arguments of the functions that do the work."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from waifu2x.api.settings.kinds import noise_level
from waifu2x.cli.command import is_of_settings
from waifu2x.cli.output.report import tell
from waifu2x.errors import OutputError
from waifu2x.flows import naming
from waifu2x.flows.jobs import Existing, Output
from waifu2x.flows.naming import Naming
from waifu2x.formats import table
from waifu2x.formats.table import Compression, Depth, OutputOptions, Quality, Range
from waifu2x.imaging import sizes
from waifu2x.imaging.sizes import Fit, Request
from waifu2x.networks import catalogue
from waifu2x.system import stores

if TYPE_CHECKING:
    from waifu2x.api import Upscaler

_SIZES = (
    "scale", "width", "height", "fit", "longer_side", "shorter_side", "min_size",
    "only_smaller_than",
)  # fmt: skip
"""Arguments of an Upscaler that give the size of results."""


def opened(arguments: Mapping[str, Any]) -> Upscaler:
    """Opens an upscaler from its arguments, and tells its notices."""
    from waifu2x.api import Upscaler  # with NumPy: helps need not wait for it

    upscaler = Upscaler(**arguments)
    for notice in upscaler.notices:
        tell(notice)
    tell_reduction(**arguments)
    return upscaler


def tell_reduction(model: str, scale: Fraction | None, **options: Any) -> None:
    """Warns of a model that enlarges far more than asked for, so that most of its work is lost."""
    others = ("width", "height", "longer_side", "shorter_side", "min_size")
    wanted = Fraction(2) if scale is None else scale
    if model == catalogue.DEFAULT or wanted <= 1 or any(options[name] for name in others):
        return
    from waifu2x.networks import model_set  # late: helps need not wait for it

    models = model_set.find(model)
    factor = math.prod(models.factors(wanted))
    if factor >= 2 * wanted:
        tell(
            f"{models.name} enlarges {factor} times: the result is reduced to {float(wanted):g}x;"
            f" -s {factor} takes no longer"
        )


def arguments_of(
    noise: str, scale: Fraction | None, fit: Fit | None, **others: Any
) -> dict[str, Any]:
    """Returns the arguments of an Upscaler for the options of a command. Raises UsageError if there
    is nothing to do."""
    if fit is not None and None in (others["width"], others["height"]):
        raise click.UsageError("--fit needs --width and --height.")
    if noise == "none" and scale == 1:
        raise click.UsageError("Nothing to do; give --noise, a --scale above 1, or both.")
    own = {"scale": scale, "noise": noise_level(noise), "fit": fit or "inside"}
    return own | others


def request_of(**options: Any) -> Request:
    """Returns the size that the options ask for. Raises UsageError as `arguments_of` does."""
    arguments = arguments_of(**options)
    return sizes.request(**{name: arguments[name] for name in _SIZES})


def naming_of(
    template: str,
    extension: str | None,
    max_pixels: int,
    *,
    several: bool,
    **options: Any,
) -> Naming:
    """Returns how results are named, by a template and the options. Raises UsageError if several
    results would have one name, or a name would not end in the format's extension."""
    if several and "stem" not in naming.fields_of(template):
        raise click.UsageError(f"--name {template}: without {{stem}} all results have one name.")
    suffix = Path(template).suffix[1:].lower()
    fits = suffix in table.WRITABLE and extension in (None, *table.of(suffix).extensions)
    if not (fits or template.endswith("{ext}")):
        chosen = ", and choose the format with -f" if suffix in table.WRITABLE else ""
        raise click.UsageError(f"--name {template}: end it in {{ext}}{chosen}.")
    request = request_of(**options)
    known = {"model": naming.of_model(options["model"]), "noise": options["noise"]}
    if request.scale is not None:
        known["scale"] = naming.shown(request.scale)
    return Naming(template, extension, known, naming.size_by(request, max_pixels))


OUTPUT_NAMES = (
    "quality", "compression", "depth", "to", "background", "strip", "copy_times", "overwrite",
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
    to: Range | None,
    background: tuple[int, int, int] | None,
    strip: bool,
    copy_times: bool,
    overwrite: bool,
    skip_existing: bool,
) -> Output:
    """Returns how results are written; an `extension` of None is for archives whose pages keep
    their formats. Raises UsageError for options that contradict each other or the format."""
    # Unlike an option, a setting for one format must not forbid another.
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
    existing: Existing = "overwrite" if overwrite else "skip" if skip_existing else "fail"
    options = OutputOptions(depth, background or OutputOptions().background, strip, to)
    return Output(extension or "png", encoded, existing, options, copy_times)


def _gives_way(name: str, extension: str | None, encoded: Quality, depth: Depth = "auto") -> bool:
    """Returns whether an option's value is a setting that the format does not support."""
    if extension is None or not is_of_settings(name):
        return False
    try:
        table.check(extension, encoded, depth)
    except ValueError:
        return True
    return False


def check_folder(folder: Path) -> None:
    """Raises OutputError if outputs cannot appear in a folder: better before the work. Raises
    StoreError if they could be seen before they are complete."""
    if stores.is_url(folder):
        stores.check_outputs(folder)
        return
    if not folder.is_dir():
        raise OutputError(f"{folder}: no such folder", "make it first")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder}: cannot write to this folder: permission denied")


def describe(upscaler: Upscaler) -> str:
    """Describes an upscaler's device and networks, for --verbose."""
    device = upscaler.engine.backend.device
    passes = f"; networks: {upscaler.passes}" if upscaler.passes else ""
    return f"{upscaler.engine.backend.name}: {device.name}, {device.detail}{passes}"
