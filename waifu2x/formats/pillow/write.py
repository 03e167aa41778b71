"""Writes picture files by Pillow."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, Any

import numpy as np
from PIL import Image

from waifu2x.errors import ImageError, OutputError
from waifu2x.formats import table
from waifu2x.formats.base import Writer
from waifu2x.formats.metadata import transfer
from waifu2x.formats.pillow.colours import colour_options, coloured
from waifu2x.formats.pillow.images import to_pil
from waifu2x.formats.table import Compression, Format, Quality
from waifu2x.imaging.picture import Colours, JpegCoding, Picture
from waifu2x.imaging.streams import Timed

_LEVEL = {"JPEG": 95, "AVIF": 90, "HEIF": 90}
"""Default qualities; other formats are lossless by default."""
MOST_LOOPS = 65535
"""How many times an animation can be shown, but for one without end."""
_OPAQUE = 128
"""Alpha from which on a pixel of a GIF is opaque."""
TRANSPARENT = 255
"""The palette's place for transparent pixels."""
_EFFORT: dict[str, dict[Compression, dict[str, int]]] = {
    "WebP": {"fast": {"method": 0, "quality": 0}, "best": {"method": 6, "quality": 100}},
    "JPEG XL": {"fast": {"effort": 1}, "best": {"effort": 9}},
}
"""Arguments for an encoder's effort; WebP's quality means effort where it is lossless."""


class PillowWriter(Writer):
    """Writes the one picture of a file."""

    def __init__(self, form: Format, quality: Quality, name: str, file: IO[bytes]) -> None:
        """`name` stands for the file in messages. Raises OutputError for a missing plugin."""
        plug_in(form, name)
        self._form = form
        self._quality = quality
        self._name = name
        self._file = file

    def add(self, timed: Timed) -> None:
        """Writes the picture. Raises OutputError, OSError."""
        picture, form = timed.picture, self._form
        options = save_options(picture, form, self._quality)
        if form.colours and picture.alpha is not None:
            options |= {"transparency": TRANSPARENT, "disposal": 2}
        # Into memory first: encoders seek, and their errors are told apart from a full disk.
        content = io.BytesIO()
        with in_words(form, self._name):
            if picture.depth > 8:
                from waifu2x.formats.pillow import deep_encoders

                deep_encoders.encode(picture, form, options, content)
            else:
                image_of(picture, form).save(content, form.pillow, **options)
            self._file.write(coloured(content.getbuffer(), picture, form))


def plug_in(form: Format, name: str) -> None:
    """Lets Pillow know of a format that takes a plugin. Raises OutputError."""
    try:
        table.plug_in(form)
    except ImageError as error:
        raise OutputError(error.sentence.of(name)) from error


@contextmanager
def in_words(form: Format, name: str) -> Iterator[None]:
    """Makes what encoders raise an OutputError."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, struct.error) as error:
        reason = " ".join(str(error).split())
        raise OutputError(f"{name}: cannot encode as {form.name}: {reason}") from error


def save_options(first: Picture, form: Format, quality: Quality) -> dict[str, Any]:
    """Returns the arguments of Pillow's `save` for a file, by its first picture."""
    options = transfer.save_options(first.metadata, form)
    options |= _EFFORT.get(form.name, {}).get(quality.compression, {})
    if quality.level == "like":
        options |= _level(form, None) if first.jpeg is None else _like(first.jpeg)
    else:
        options |= _level(form, quality.level)
    return options | colour_options(first, form)


def image_of(picture: Picture, form: Format) -> Image.Image:
    """Returns a picture as an image in a mode that the format has."""
    bare = replace(picture, colours=Colours())
    if form.colours:
        return _indexed(bare)
    image = to_pil(bare)
    return image if form.grey else image.convert("RGB" if picture.alpha is None else "RGBA")


def _like(coding: JpegCoding) -> dict[str, Any]:
    return {"qtables": [list(table) for table in coding.tables], "subsampling": coding.subsampling}


def _level(form: Format, level: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    chosen = level or _LEVEL.get(form.name)
    if form.name == "JPEG":
        options = {"quality": chosen, "subsampling": "4:4:4"}
    elif form.name in ("WebP", "JPEG XL"):
        # JPEG XL's encoder takes its best quality under this name alone.
        exact = not chosen or (form.name == "JPEG XL" and chosen == 100)
        options = {"lossless": True} if exact else {"quality": chosen}
        if form.name == "WebP":
            options["exact"] = True  # keep the colours under transparent pixels
    elif form.name in ("AVIF", "HEIF"):
        options = {"quality": chosen}
        if form.name == "AVIF":
            options["subsampling"] = "4:4:4"
        else:
            options["chroma"] = 444
    elif form.name == "JPEG 2000":
        # Its quality is a signal-to-noise ratio in dB; 1 to 100 spans what is of use.
        options = {"quality_mode": "dB", "quality_layers": [20 + chosen * 0.4]} if chosen else {}
        options["irreversible"] = bool(chosen)
    elif form.name == "QOI":
        options = {"colorspace": "sRGB"}  # it says linear otherwise
    elif form.name == "GIF":
        options = {"optimize": False}
    return options


def _indexed(picture: Picture) -> Image.Image:
    """Reduces to 256 colours, exactly if there are no more; one of them may be transparent."""
    image = to_pil(replace(picture, alpha=None))
    room = 256 if picture.alpha is None else TRANSPARENT
    if image.mode == "RGB":
        colours = image.getcolors(room)
        if colours:
            palette = Image.new("P", (1, 1))
            flat = [level for _, colour in colours for level in colour]  # type: ignore[union-attr]
            palette.putpalette(flat + flat[:3] * (256 - len(colours)))
            image = image.quantize(palette=palette, dither=Image.Dither.NONE)
        else:
            image = image.quantize(room, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    elif picture.alpha is not None:
        image = image.quantize(room, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    if picture.alpha is None:
        return image
    indices = np.array(image)
    indices[picture.alpha < _OPAQUE] = TRANSPARENT
    result = Image.fromarray(indices)
    palette_values = image.getpalette() or []
    result.putpalette(palette_values[: 3 * room] + [0] * (768 - len(palette_values[: 3 * room])))
    return result
