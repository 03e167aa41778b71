"""The settings of a job, checked, from the query of a request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

from waifu2x.flows.jobs import Output
from waifu2x.formats import table
from waifu2x.formats.table import Depth, OutputOptions, Quality
from waifu2x.imaging.sizes import scale_of
from waifu2x.networks import catalogue, listing
from waifu2x.networks.listing import ModelInfo
from waifu2x.serve import names
from waifu2x.system.lazy_dataclass import dataclass

_NOISE = ("auto", "none", "0", "1", "2", "3")
_TTA = (1, 2, 4, 8)
_DEPTHS = ("auto", "8", "16")
_MOST_PIXELS = 1_000_000
"""The largest width or height that may be asked for, in pixels."""


@dataclass(frozen=True)
class JobSettings:
    """Holds how a file is enlarged, in the words of the command line."""

    model: str = catalogue.DEFAULT
    noise: str = "auto"
    scale: str | None = "2"
    """None where `width` or `height` is given."""
    width: int | None = None
    height: int | None = None
    tta: int = 1
    format: str | None = None
    """The extension of the result; None for the source's."""
    quality: str | None = None
    """1 to 100, or like; None for the format's default."""
    depth: str = "auto"

    @classmethod
    def of(cls, query: Mapping[str, str], default: JobSettings | None = None) -> JobSettings:
        """Reads settings from a query; `default` has those that it lacks. Raises ValueError, with a
        sentence, for settings that make no sense."""
        default = default or cls()
        width, height = _pixels(query, "width"), _pixels(query, "height")
        has_size = width is not None or height is not None
        if has_size and query.get("scale"):
            raise ValueError("Give one size: scale, or width and height.")
        if not (has_size or query.get("scale")):
            width, height = default.width, default.height
            has_size = width is not None or height is not None
        scale = None if has_size else query.get("scale") or default.scale or "2"
        if scale is not None:
            _scale(scale)
        found = cls(
            _one_of(query, "model", default.model, installed_models()),
            _one_of(query, "noise", default.noise, _NOISE),
            scale,
            width,
            height,
            int(_one_of(query, "tta", str(default.tta), tuple(map(str, _TTA)))),
            _format(query, default.format),
            _quality(query, default.quality),
            _one_of(query, "depth", default.depth, _DEPTHS),
        )
        if found.noise == "none" and found.scale is not None and _scale(found.scale) == 1:
            raise ValueError("Nothing to do: give a noise level, a scale above 1, or both.")
        if found.format is not None:
            table.check(found.format, found.coding, cast(Depth, found.depth))
        return found

    @property
    def coding(self) -> Quality:
        """Returns how results are encoded."""
        level = self.quality
        return Quality(None if level is None else "like" if level == "like" else int(level))

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of an Upscaler."""
        noise = self.noise
        return {
            "model": self.model,
            "noise": noise if noise == "auto" else None if noise == "none" else int(noise),
            "scale": None if self.scale is None else _scale(self.scale),
            "width": self.width,
            "height": self.height,
            "tta": self.tta,
        }

    def output(self, source_extension: str) -> Output:
        """Returns how the result of a source of that extension is written. Raises ValueError if its
        format does not support the settings."""
        extension = self.format or _own_format(source_extension)
        table.check(extension, self.coding, cast(Depth, self.depth))
        options = OutputOptions(cast(Depth, self.depth))
        return Output(
            extension, self.coding, "overwrite", options, pages=self.format, pages_only=True
        )

    def command(self, name: str, *, is_film: bool) -> str:
        """Returns the command line that does the same."""
        words = ["waifu2x", "video" if is_film else "upscale"]
        words += ["-m", self.model] if self.model != catalogue.DEFAULT or is_film else []
        words += ["-n", self.noise] if self.noise != "auto" else []
        words += ["-s", self.scale] if self.scale not in (None, "2") else []
        words += ["--width", str(self.width)] if self.width is not None else []
        words += ["--height", str(self.height)] if self.height is not None else []
        words += ["-x", str(self.tta)] if self.tta != 1 else []
        if not is_film:
            words += ["-f", self.format] if self.format is not None else []
            words += ["-q", self.quality] if self.quality is not None else []
            words += ["--depth", self.depth] if self.depth != "auto" else []
        files = [name]
        if is_film:
            scale = None if self.scale is None else _scale(self.scale)
            files.append(names.of_result(name, names.film_extension(name), scale))
        # A name that begins with a dash would be an option.
        shown = [f"./{each}" if each.startswith("-") else each for each in files]
        return shlex.join([word for word in words if word is not None] + shown)


def installed_models() -> dict[str, ModelInfo]:
    """Returns the installed model sets by name."""
    return {one.name: one for one in listing.list_models() if one.installed}


def _own_format(extension: str) -> str:
    return extension if extension in table.WRITABLE else "png"


def _one_of(query: Mapping[str, str], name: str, default: str, allowed: Any) -> str:
    value = query.get(name) or default
    if value not in allowed:
        raise ValueError(f"{name} {value[:40]!r}: expected one of {', '.join(allowed)}.")
    return value


def _scale(text: str) -> Fraction:
    try:
        return scale_of(text)
    except ValueError as error:
        raise ValueError(
            f"scale {text[:40]!r}: expected a number above 0, at most 32, such as 2, 1.5 or 4/3."
        ) from error


def _pixels(query: Mapping[str, str], name: str) -> int | None:
    value = query.get(name)
    if not value:
        return None
    if not re.fullmatch(r"[1-9]\d{0,6}", value, re.ASCII) or int(value) > _MOST_PIXELS:
        raise ValueError(f"{name} {value[:40]!r}: expected pixels, from 1 to {_MOST_PIXELS}.")
    return int(value)


def _chosen(query: Mapping[str, str], name: str, default: str | None) -> str | None:
    # "" asks for the format's default where a job has had something else.
    return (query[name] or None) if name in query else default


def _format(query: Mapping[str, str], default: str | None) -> str | None:
    value = _chosen(query, "format", default)
    if value is not None and value not in table.WRITABLE:
        raise ValueError(f"format {value[:40]!r}: expected one of {', '.join(table.WRITABLE)}.")
    return value


def _quality(query: Mapping[str, str], default: str | None) -> str | None:
    value = _chosen(query, "quality", default)
    if value in (None, "like"):
        return value
    assert value is not None
    if not re.fullmatch(r"[1-9]\d?|100", value, re.ASCII):
        raise ValueError(f"quality {value[:40]!r}: expected 1 to 100, or like.")
    return value
