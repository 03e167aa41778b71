"""Callbacks and types for click that check and parse the values of options."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import click

from waifu2x.flows import naming
from waifu2x.formats.table import OutputOptions
from waifu2x.imaging.sizes import scale_of
from waifu2x.system import stores


def scale(context: Any, parameter: Any, value: str | None) -> Fraction | None:
    try:
        return None if value is None else scale_of(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r}: expected a number above 0, at most 32, such as 2, 1.5 or 4/3."
        ) from error


def two_sizes(context: Any, parameter: Any, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})(?:x([1-9]\d{0,5}))?", value, re.ASCII)
    if not match:
        raise click.BadParameter(f"{value!r}: expected pixels, like 2000, or 3840x2160.")
    return int(match[1]), int(match[2] or match[1])


def tile_size(context: Any, parameter: Any, value: str) -> int | None:
    if value == "auto":
        return None
    if re.fullmatch(r"\d{2,9}", value, re.ASCII) and int(value) >= 16:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither auto nor a whole number from 16 up.")


def devices(context: Any, parameter: Any, value: str) -> tuple[int, ...] | Literal["all"]:
    if value == "all":
        return "all"
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", value, re.ASCII):
        raise click.BadParameter(f"{value!r}: expected a number like 0, several like 0,1, or all.")
    numbers = tuple(map(int, value.split(",")))
    if len(set(numbers)) < len(numbers):
        raise click.BadParameter(f"{value!r} names a device twice.")
    return numbers


def colour(context: Any, parameter: Any, value: str | None) -> tuple[int, int, int]:
    if value is None:
        return OutputOptions().background
    from PIL import ImageColor

    try:
        red, green, blue = ImageColor.getrgb(value)[:3]
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: expected a name like black, or #rrggbb.") from error
    return red, green, blue


def template(context: Any, parameter: Any, value: str | None) -> str | None:
    if value is not None:
        try:
            naming.check(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from error
    return value


def level(context: Any, parameter: Any, value: str | None) -> int | Literal["like"] | None:
    if value is None:
        return None
    if value == "like":
        return "like"
    if re.fullmatch(r"[1-9]\d?|100", value, re.ASCII):
        return int(value)
    raise click.BadParameter(f"{value!r}: expected a number from 1 to 100, or like.")


class Location(click.ParamType[Path]):
    """An argument that is a path, or a URL of files."""

    name = "path"

    def convert(self, value: Any, parameter: Any, context: Any) -> Path:
        """Returns the path or URL of an argument. Raises StoreError for an unusable URL."""
        return value if isinstance(value, Path) else stores.located(value)
