"""Pictures from files."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import logging
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, _imaging

from waifu2x.errors import ImageError
from waifu2x.files import read_bytes, reason
from waifu2x.pictures import exif, formats, jxl, metadata, png, pnm, profiles
from waifu2x.pictures.limits import MAX_PIXELS, check_pixels
from waifu2x.pictures.picture import Colours, Frames, Metadata, Picture
from waifu2x.pictures.pillow import in_words, jpeg_coding, plain
from waifu2x.pictures.turn import turned

_BUILT_IN = ("PNG", "JPEG", "BMP", "GIF", "PPM")
"""Formats that Pillow knows without loading all its plugins, so they are tried first."""
_OPENED = tuple(
    dict.fromkeys((*_BUILT_IN, *(form.pillow for form in formats.FORMATS if form.plugin is None)))
)
_ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")
"""Formats whose further pictures follow in time; those of others are previews, sizes or layers."""
_COUNTED = (*_ANIMATED, "TIFF")
_BITS_PER_SAMPLE = 258
_SUBFILE_TYPE = 254
_LOOP_ONCE = 1
_DURATION = 100.0
"""Milliseconds of a frame that names none, or 0, as browsers have it."""
_REDUCED = 1
"""NewSubfileType of a thumbnail in a TIFF."""


def read(path: Path, max_pixels: int = MAX_PIXELS) -> Frames:
    """The pictures in a file.

    Raises ImageError if it cannot be read, is damaged, is of a kind that is not supported, or
    holds more than `max_pixels` in all.
    """
    return decode(content(path), str(path), max_pixels)


def content(path: Path) -> bytes:
    """Of a file. Raises ImageError."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise ImageError(f"{path}: cannot read: {reason(error)}") from error


class Extent(NamedTuple):
    """How large the pictures in a file are."""

    height: int
    width: int
    """Of the first."""
    bytes: int
    """Of all of them in memory."""


def extent(data: bytes) -> Extent | None:
    """What a file's content says of its size, without decoding it; None if it does not say."""
    if formats.sniffed(data):
        return None
    _prepare()
    try:
        with Image.open(io.BytesIO(data), formats=_OPENED) as image:
            width, height = image.size
            planes = 4 if image.mode == "P" else len(image.getbands())
            sample = 4 if image.mode[0] in "IF" else 1
            if image.format == "PNG" and png.depth(data) == 16:
                sample = 2
            count = getattr(image, "n_frames", 1) if image.format in _COUNTED else 1
    except Exception:
        # Whatever is wrong with it, who decodes it will say.
        return None
    return Extent(height, width, height * width * planes * sample * count)


def decode(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Frames:
    """The pictures in a file's content; `name` stands for it in messages. Raises ImageError."""
    if not data:
        raise ImageError(f"{name}: the file is empty")
    _prepare()
    with in_words(name, "damaged or cut off"):
        if data.startswith((b"II", b"MM")) and _deep_tiff(data):
            from waifu2x.pictures import tiff

            return replace(tiff.read(data, name, max_pixels), format="TIFF")
        if pnm.is_deep(data):
            return replace(pnm.read(data, name, max_pixels), format="PNM")
        opened, plugin = _OPENED, formats.sniffed(data)
        if plugin:
            try:
                formats.plug_in(plugin)
            except ImageError as error:
                raise ImageError(f"{name}: {error}") from error
            if plugin.pillow == "JXL":
                width, height = jxl.size(data)
                check_pixels(name, (width, height), 1, width * height, max_pixels)
            opened = (plugin.pillow,)
        with Image.open(io.BytesIO(data), formats=opened) as image:
            frames = _frames(image, data, name, max_pixels)
            return replace(frames, format=formats.name_of(str(image.format)))


@functools.cache
def _prepare() -> None:
    """Makes decoders leave limits and words to us: what they log comes as an exception as well."""
    for name in ("PIL", "tifffile", "imagecodecs"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # It would refuse what we may be told to read; `max_pixels` is checked before decoding.
    Image.MAX_IMAGE_PIXELS = None
    # Pillow has no interface to libtiff's handlers, but its module is linked to them (on Windows
    # it may hide them, and the lines stay).
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


def _deep_tiff(data: bytes) -> bool:
    """Whether a TIFF has samples of more than 8 bits, which Pillow reads in part or not at all."""
    try:
        return any(
            max(exif.numbers(data, at, _BITS_PER_SAMPLE), default=8) > 8
            for at in exif.directories(data)
        )
    except ValueError:
        return False  # damaged, which Pillow finds as well


def _frames(image: Image.Image, data: bytes, name: str, max_pixels: int) -> Frames:
    if image.format == "TIFF":
        return _pages(image, data, name, max_pixels)
    deep = image.format == "PNG" and png.depth(data) == 16
    count = getattr(image, "n_frames", 1) if image.format in _ANIMATED and not deep else 1
    check_pixels(name, image.size, count, image.width * image.height * count, max_pixels)
    first, notes = _deep_png(data, image) if deep else _one(image, name)
    said, orientation = metadata.of_file(data, dict(image.info), str(image.format))
    if image.format == "PNG" and not first.colours.icc_profile:
        first = replace(first, colours=Colours(None, png.colour_chunks(png.chunks(data))))
    first = replace(first, metadata=said, jpeg=jpeg_coding(image))
    if count == 1:
        if deep and _animated_png(data):
            notes |= {"only its first picture is read: it has 16 bits a sample"}
        return Frames((turned(first, orientation),), notes=tuple(sorted(notes)))
    pictures, durations = [first], [_duration(image)]
    for index in range(1, count):
        image.seek(index)
        picture, found = _one(image, name)
        notes |= found
        pictures.append(replace(picture, colours=first.colours))
        durations.append(_duration(image))
    if image.info.get("default_image"):
        # An APNG's picture for programs that know no animations is not part of this one.
        pictures, durations = pictures[1:], durations[1:]
        pictures[0] = replace(pictures[0], metadata=said)
    pictures = [turned(picture, orientation) for picture in _alike(pictures)]
    if len(pictures) == 1:
        durations = []
    # A GIF without the word for it is shown once.
    loop = int(image.info.get("loop", _LOOP_ONCE if image.format == "GIF" else 0))
    return Frames(tuple(pictures), tuple(durations), loop, notes=tuple(sorted(notes)))


def _one(image: Image.Image, name: str) -> tuple[Picture, set[str]]:
    """The frame that an image is at."""
    image.load()
    picture, notes = plain(image, name)
    return picture, set(notes)


def _duration(image: Image.Image) -> float:
    return float(image.info.get("duration") or _DURATION)


def _alike(pictures: list[Picture]) -> list[Picture]:
    """Frames with as many planes each, and alpha in all if in any."""
    colour = any(picture.pixels.shape[-1] == 3 for picture in pictures)
    alpha = any(picture.alpha is not None for picture in pictures)
    result = []
    for picture in pictures:
        if colour and picture.pixels.shape[-1] == 1:
            picture = replace(picture, pixels=picture.pixels.repeat(3, axis=-1))
        if alpha and picture.alpha is None:
            opaque = np.full(picture.pixels.shape[:2], 255, np.uint8)
            picture = replace(picture, alpha=opaque)
        result.append(picture)
    return result


def _pages(image: Image.Image, data: bytes, name: str, max_pixels: int) -> Frames:
    """The pages of a TIFF of 8 bits, without thumbnails."""
    count = getattr(image, "n_frames", 1)
    offsets = exif.directories(data)[:count]
    pictures, notes, total = [], set[str](), 0
    for index, at in enumerate(offsets):
        if count > 1 and max(exif.numbers(data, at, _SUBFILE_TYPE), default=0) & _REDUCED:
            continue
        if count > 1:
            image.seek(index)
        total += image.width * image.height
        check_pixels(name, image.size, 1, total, max_pixels)
        resolution = metadata.dpi(image.info.get("dpi"))
        # Pillow has brought the page upright by then.
        said, _ = metadata.upright(metadata.of_tiff(Metadata(dpi=resolution), data, at))
        picture, found = _one(image, name)
        notes |= found
        pictures.append(replace(picture, metadata=said))
    if not pictures:
        raise ImageError(f"{name}: has no picture in it")
    return Frames(tuple(pictures), notes=tuple(sorted(notes)))


def _animated_png(data: bytes) -> bool:
    return any(kind == b"acTL" for kind, _ in png.chunks(data))


def _deep_png(data: bytes, image: Image.Image) -> tuple[Picture, set[str]]:
    """A PNG of 16 bits, which Pillow reads as 8."""
    import imagecodecs

    samples = np.atleast_3d(imagecodecs.png_decode(data))
    planes = samples.shape[-1] - (samples.shape[-1] + 1) % 2  # the second or fourth is alpha
    alpha = samples[..., planes].copy() if samples.shape[-1] > planes else None
    profile, notes = image.info.get("icc_profile") or None, set[str]()
    if profile and not profiles.fits(profile, planes):
        profile = None
        notes.add(profiles.BAD_PROFILE)
    pixels = np.ascontiguousarray(samples[..., :planes])
    return Picture(pixels, alpha, Colours(profile)), notes
