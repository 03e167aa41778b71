"""Tries the network on one frame before hours of work: shows it beside its plain enlargement, or
measures how fast the network alone is on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.api import Upscaler
from waifu2x.errors import ImageError
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger, plane_format
from waifu2x.flows.film.frames.frame_windows import neighbours_of, windows
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.formats.film.description import Film, FilmCrop
from waifu2x.formats.film.reading.selection import Selection, tick_of, ticks
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.formats.metadata import code_points, profiles
from waifu2x.formats.preview import Preview, previews
from waifu2x.imaging import comparison, planar_rgb, sheet, sizes
from waifu2x.imaging.dtypes import from_unit
from waifu2x.imaging.orientation import oriented_plane
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.planar import PlanarPicture
from waifu2x.imaging.resample import bicubic
from waifu2x.imaging.sizes import Part

if TYPE_CHECKING:
    from waifu2x.formats.film.description import FilmColours, Pictures
    from waifu2x.formats.film.reading.fields import Deinterlacing

LOOKED_AT = Fraction(1, 10)
"""Where in a film the frame is that stands for it: the first one is often black."""
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


def frame_at(reader: FilmReader, start: Fraction) -> Picture | None:
    """Returns the first frame from `start` seconds on as float32, not rotated; None without any."""
    pictures = reader.film.pictures
    how: Deinterlacing = "frame" if pictures.interlaced else "off"
    frames = reader.frames(Selection(start, deinterlacing=how), 1)
    try:
        found = next((frame for frame in frames if frame.is_wanted), None)
        if found is None:
            return None
        form = plane_format(pictures.pixels, pictures.colours)
        planes = found.planes[: 1 if form.is_grey else 3]
        pixels = planar_rgb.to_rgb(PlanarPicture(form, *planes))
        alpha = None
        if pictures.pixels.planes in (2, 4):
            alpha = found.planes[-1] / np.float32((1 << form.bits) - 1)
        found.release()
    finally:
        frames.close()
    return Picture(pixels, alpha)


def before_and_after(source: Path, target: Path, crop: FilmCrop | None, side: int) -> Preview:
    """Returns a frame of a film's result for a report, with a detail of at most `side` pixels a
    side beside that of the film. `crop` is the part of the film that was enlarged. Raises
    ImageError."""
    shown: list[Picture] = []
    start: Fraction | None = None
    for path, part in ((source, crop), (target, None)):
        with FilmReader(path) as reader:
            if part is not None:
                reader.crop(part)
            pictures = reader.film.pictures
            start = Fraction(reader.film.seconds or 0) * LOOKED_AT if start is None else start
            frame = frame_at(reader, start)
        if frame is None:
            raise ImageError(f"{path}: it has no frame at {float(start):g} s")
        shown.append(_levels(frame, pictures, pictures.colours))
    before, after = shown
    return previews(before, after, Part.of(*before.pixels.shape[:2]), side)


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
