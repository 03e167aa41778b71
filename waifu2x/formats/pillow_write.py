"""Pictures into files by Pillow."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import IO, Any

import numpy as np
from PIL import Image

from waifu2x.errors import ImageError, OutputError
from waifu2x.formats import metadata, table
from waifu2x.formats.pillow import to_pil
from waifu2x.formats.table import Compression, Format, Quality
from waifu2x.imaging.picture import Colours, Frames, JpegCoding, Picture

_LEVEL = {"JPEG": 95, "AVIF": 90, "HEIF": 90}
"""Where nothing is asked for; other formats are lossless then."""
_MOST_LOOPS = 65535
_OPAQUE = 128
"""Alpha from which on a pixel of a GIF is opaque."""
_TRANSPARENT = 255
"""The palette's place for transparent pixels."""
_EFFORT: dict[str, dict[Compression, dict[str, int]]] = {
    "WebP": {"fast": {"method": 0, "quality": 0}, "best": {"method": 6, "quality": 100}},
    "JPEG XL": {"fast": {"effort": 1}, "best": {"effort": 9}},
}
"""What an encoder is told of how hard it is to try; WebP's quality means that without loss."""


def write(frames: Frames, form: Format, quality: Quality, name: str, file: IO[bytes]) -> None:
    """Writes the content of a file in a format that Pillow knows. Raises OutputError, OSError."""
    first = frames.pictures[0]
    try:
        table.plug_in(form)
    except ImageError as error:
        raise OutputError(f"{name}: {error}") from error
    options = metadata.save_options(first.metadata, form)
    options |= _EFFORT.get(form.name, {}).get(quality.compression, {})
    if quality.level == "like":
        options |= _level(form, None) if first.jpeg is None else _like(first.jpeg)
    else:
        options |= _level(form, quality.level)
    if first.colours.icc_profile and "profile" in form.keeps:
        options["icc_profile"] = first.colours.icc_profile
    images = [_image(picture, form) for picture in frames.pictures]
    if form.colours and any(picture.alpha is not None for picture in frames.pictures):
        options |= {"transparency": _TRANSPARENT, "disposal": 2}
    if frames.animated:
        options |= {
            "save_all": True,
            "append_images": images[1:],
            "duration": [round(duration) for duration in frames.durations],
        }
        if form.name != "GIF":
            options["loop"] = min(frames.loop, _MOST_LOOPS)
        elif frames.loop != 1:
            # A GIF names how many times come after the first, and nothing where there are none.
            options["loop"] = min(max(0, frames.loop - 1), _MOST_LOOPS)
    # Into memory first: encoders seek, and what they raise is told apart from a full disk.
    content = io.BytesIO()
    try:
        images[0].save(content, form.pillow, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise OutputError(f"{name}: cannot encode as {form.name}: {reason}") from error
    file.write(content.getbuffer())


def _image(picture: Picture, form: Format) -> Image.Image:
    """In a mode that the format has."""
    bare = replace(picture, colours=Colours())
    if form.colours:
        return _indexed(bare)
    image = to_pil(bare)
    return image if form.grey else image.convert("RGB" if picture.alpha is None else "RGBA")


def _like(coding: JpegCoding) -> dict[str, Any]:
    """What the encoder of JPEG is told."""
    return {"qtables": [list(table) for table in coding.tables], "subsampling": coding.subsampling}


def _level(form: Format, level: int | None) -> dict[str, Any]:
    """What an encoder is told of quality, and of all that loses."""
    options: dict[str, Any] = {}
    chosen = level or _LEVEL.get(form.name)
    if form.name == "JPEG":
        options = {"quality": chosen, "subsampling": "4:4:4"}
    elif form.name in ("WebP", "JPEG XL"):
        options = {"quality": chosen} if chosen else {"lossless": True}
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
    elif form.name == "GIF":
        options = {"optimize": False}
    return options


def _indexed(picture: Picture) -> Image.Image:
    """In at most 256 colours, exactly where it has no more, with one for transparent pixels."""
    image = to_pil(replace(picture, alpha=None))
    room = 256 if picture.alpha is None else _TRANSPARENT
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
    indices[picture.alpha < _OPAQUE] = _TRANSPARENT
    result = Image.fromarray(indices)
    palette_values = image.getpalette() or []
    result.putpalette(palette_values[: 3 * room] + [0] * (768 - len(palette_values[: 3 * room])))
    return result
