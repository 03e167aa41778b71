"""Shows one frame of a film beside its plain enlargement, before hours of work."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats.film.reading.selection import Selection
from waifu2x.formats.metadata import code_points, profiles
from waifu2x.imaging import comparison, sheet
from waifu2x.imaging.dtypes import from_unit
from waifu2x.imaging.picture import Colours, Picture

if TYPE_CHECKING:
    from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.formats.film.reading.deinterlacing import Deinterlacing


def preview(
    reader: FilmReader, enlarge: FrameEnlarger, start: Fraction, how: Deinterlacing, name: str
) -> NDArray[Any]:
    """Returns a sheet (H, W, 1 or 3) of the first frame from `start` seconds on, enlarged by
    Lanczos and by the network, which is called `name`. Raises ImageError if there is none,
    BackendError."""
    frames = reader.frames(Selection(start, deinterlacing=how), 1)
    try:
        found = next((frame for frame in frames if frame.is_wanted), None)
        if found is None:
            raise ImageError(f"{reader.path}: has no frame at {float(start):g} s")
        source = enlarge.picture(found.planes)
        found.release()
    finally:
        frames.close()
    result = enlarge.upscaler.enlarger.picture(source)
    colours = reader.film.pictures.said()
    compared = comparison.compare(_levels(source, colours), _levels(result, colours))
    height, width = result.pixels.shape[:2]
    made, _ = sheet.of_two(
        compared,
        ("Lanczos", name),
        (f"{width}x{height}", f"{width}x{height}"),
        (str(reader.path.name), f"at {float(start):g} s"),
    )
    return made


def _levels(picture: Picture, colours: Colours) -> Picture:
    """Returns a picture on white in 8 bits, of HDR and wide colours as sRGB shows them."""
    if code_points.is_wide(colours.code_points):
        picture = profiles.to_srgb(replace(picture, colours=colours))
    return Picture(from_unit(comparison.on_white(picture, np.float32), np.uint8))
