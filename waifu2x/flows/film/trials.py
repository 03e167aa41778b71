"""Tries the network on one frame before hours of work: shows it beside its plain enlargement, or
measures how fast the network alone is on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.api import Upscaler
from waifu2x.errors import ImageError
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger
from waifu2x.flows.film.frames.frame_windows import neighbours_of, windows
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.selection import Selection, tick_of, ticks
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.metadata import code_points, profiles
from waifu2x.imaging import comparison, sheet, sizes
from waifu2x.imaging.dtypes import from_unit
from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.resample import bicubic

if TYPE_CHECKING:
    from waifu2x.flows.film.reading.client import FilmReader
    from waifu2x.formats.film.description import FilmColours, Pictures
    from waifu2x.formats.film.reading.fields import Deinterlacing

_PIXELS = 480 * 270
"""Pixels of the frame for a processor, whose time grows in proportion. A GPU gets a whole frame."""


def preview(
    reader: FilmReader, enlarge: FrameEnlarger, start: Fraction, how: Deinterlacing, name: str
) -> NDArray[Any]:
    """Returns a sheet (H, W, 1 or 3) of the first frame from `start` seconds on, enlarged by
    Lanczos and by the network, which is called `name`. Raises ImageError if there is none,
    BackendError."""
    pictures, count = reader.film.pictures, enlarge.frames
    neighbours = neighbours_of(count)
    selection = Selection(start, deinterlacing=how, neighbours=neighbours)
    if reader.film.seekable:  # else there is nothing to find frames before it by
        at = ticks(start, tick_of(reader.film, how))
        selection = replace(selection, start=Fraction(0), first=at)
    with (
        closing(reader.frames(selection, 2 * neighbours + 2)) as frames,
        closing(windows(frames, count, pictures.pixels.bits)) as each,
    ):
        found = next(each, None)
        if found is None:
            raise ImageError(f"{reader.path}: it has no frame at {float(start):g} s")
        source = enlarge.picture(found.frame.planes)
        result = enlarge.enlarged([plane for one in found.frames for plane in one.planes])
    first, second = (
        _levels(picture, pictures, enlarge.shape.colours) for picture in (source, result)
    )
    compared = comparison.compare(first, second)
    height, width = second.pixels.shape[:2]
    made, _ = sheet.of_two(
        compared,
        ("Lanczos", name),
        (f"{width}x{height}", f"{width}x{height}"),
        (str(reader.path.name), f"at {float(start):g} s"),
    )
    return made


def _levels(picture: Picture, pictures: Pictures, made: FilmColours) -> Picture:
    """Returns a picture on white in 8 bits, as players show it: upright, with square pixels, and
    HDR and wide colours as sRGB shows them."""
    colours = pictures.said(made)
    if code_points.is_wide(colours.code_points):
        picture = profiles.to_srgb(replace(picture, colours=colours))
    pixels = comparison.on_white(picture, np.float32)
    if pictures.aspect is not None:
        height, width = pixels.shape[:2]
        pixels = bicubic(pixels, height, sizes.rounded(width * pictures.aspect)).clip(0, 1)
    upright = np.ascontiguousarray(oriented_plane(pixels, pictures.orientation))
    return Picture(from_unit(upright, np.uint8))


class MeasuredRate(NamedTuple):
    """The measured speed of a network."""

    frames: float
    """Frames of the film a second."""
    device: str
    height: int
    width: int
    """Pixels of the measured frame."""


def measured(arguments: Mapping[str, Any], film: Film, shape: Shape) -> MeasuredRate:
    """Opens an Upscaler and times the second of two runs on a frame of noise, or a part of one.
    Raises BackendError, ModelError."""
    pictures = film.pictures
    with Upscaler(**arguments) as upscaler:
        enlarge = FrameEnlarger(upscaler, pictures, shape)
        backend = enlarge.backend
        height, width = pictures.height, pictures.width
        share = 1.0
        if backend.name not in ("cuda", "opencl", "vulkan") and height * width > _PIXELS:
            factor = (_PIXELS / (height * width)) ** 0.5
            height, width = (max(16, int(side * factor) // 2 * 2) for side in (height, width))
            share = height * width / (pictures.height * pictures.width)
        rows = round(Fraction(height * shape.height, pictures.height))
        columns = round(Fraction(width * shape.width, pictures.width))
        made = replace(shape, height=rows, width=columns)
        frame = [
            np.random.default_rng(0)
            .integers(0, 1 << pictures.pixels.bits, size)
            .astype(pictures.pixels.dtype)
            for size in pictures.pixels.shapes(height, width)
        ]
        pixels = made.encoding.pixels
        out = [np.empty(size, pixels.dtype) for size in pixels.shapes(made.height, made.width)]
        seconds = 0.0
        for _ in range(2):
            begun = time.monotonic()
            enlarge([frame * enlarge.frames], [out])
            seconds = time.monotonic() - begun
        name = f"{backend.name}: {backend.device.name}"
    return MeasuredRate(share / max(seconds, 1e-9), name, height, width)
