"""Pictures from files by Pillow."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
from dataclasses import replace

import numpy as np
from PIL import Image, UnidentifiedImageError, _imaging

from waifu2x.errors import ImageError
from waifu2x.formats import deep, metadata, png, table, tags
from waifu2x.formats.declared import declared
from waifu2x.formats.limits import Budget, check_pixels
from waifu2x.formats.pillow import jpeg_coding, plain
from waifu2x.imaging.orientation import turned
from waifu2x.imaging.picture import Colours, Extent, Frames, Metadata, Picture

_ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")
"""Formats whose further pictures follow in time; those of others are previews, sizes or layers."""
_PLANES = 4
"""Samples of a pixel, at most."""
_SUBFILE_TYPE = 254
_DURATION = 100.0
"""Milliseconds of a frame that names none, or 0, as browsers have it."""
_REDUCED = 1
"""NewSubfileType of a thumbnail in a TIFF."""


def read(data: bytes, name: str, max_pixels: int) -> Frames:
    """The pictures in a file's content. Raises ImageError, and whatever decoders raise."""
    _prepare()
    opened, plugin = table.by_pillow(data), table.sniffed(data)
    if plugin:
        try:
            table.plug_in(plugin)
        except ImageError as error:
            raise ImageError(f"{name}: {error}") from error
        opened = (plugin.pillow,)
    said = declared(data)
    if said:
        total = said.width * said.height * said.pictures
        check_pixels(name, said[:2], said.pictures, total, max_pixels)
    try:
        image = Image.open(io.BytesIO(data), formats=opened)
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not a picture of a known format ({table.NAMES})") from error
    with image:
        frames = _frames(image, data, name, max_pixels)
        return replace(frames, format=table.name_of(str(image.format)))


def extent(data: bytes) -> Extent | None:
    """See `read.extent`."""
    if table.sniffed(data):
        return None
    _prepare()
    try:
        said = declared(data)
        if said:
            height, width = said.height, said.width
            return Extent(height, width, height * width * _PLANES * said.pictures)
        with Image.open(io.BytesIO(data), formats=table.by_pillow(data)) as image:
            width, height = image.size
            planes = 4 if image.mode == "P" else len(image.getbands())
            sample = 4 if image.mode[0] in "IF" else -(-deep.depth(image, data) // 8)
            counted = (*_ANIMATED, "TIFF")
            count = getattr(image, "n_frames", 1) if image.format in counted else 1
    except Exception:
        # Whatever is wrong with it, who decodes it will say.
        return None
    return Extent(height, width, height * width * planes * sample * count)


@functools.cache
def _prepare() -> None:
    """Makes Pillow leave limits and words to us."""
    # It would refuse what we may be told to read; `max_pixels` is checked before decoding.
    Image.MAX_IMAGE_PIXELS = None
    # Pillow has no interface to libtiff's handlers, but its module is linked to them (on Windows
    # it may hide them, and the lines stay).
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


def _frames(image: Image.Image, data: bytes, name: str, max_pixels: int) -> Frames:
    if image.format == "TIFF":
        return _pages(image, data, name, max_pixels)
    count = getattr(image, "n_frames", 1) if image.format in _ANIMATED else 1
    check_pixels(name, image.size, count, image.width * image.height * count, max_pixels)
    first, notes = _one(image, name)
    if count == 1:
        first, said_of_it = deep.deepened(first, image, data)
        notes.update(said_of_it)
    said, orientation = metadata.of_file(data, dict(image.info), str(image.format))
    if image.format == "PNG" and not first.colours.icc_profile:
        first = replace(first, colours=Colours(None, png.colour_chunks(png.chunks(data))))
    first = replace(first, metadata=said, jpeg=jpeg_coding(image))
    if count == 1:
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
    loop = _loop(image)
    return Frames(tuple(pictures), tuple(durations), loop, notes=tuple(sorted(notes)))


def _one(image: Image.Image, name: str) -> tuple[Picture, set[str]]:
    """The frame that an image is at."""
    image.load()
    picture, notes = plain(image, name)
    return picture, set(notes)


def _loop(image: Image.Image) -> int:
    """How many times an animation is shown; 0 is without end."""
    said = image.info.get("loop")
    if image.format == "GIF":
        # It names how many times come after the first; without a word, there are none.
        return 1 if said is None else int(said) and int(said) + 1
    return int(said or 0)


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
    budget = Budget(len(data))
    offsets = tags.pages(data, budget)[:count]
    pictures, notes, total = [], set[str](), 0
    for index, at in enumerate(offsets):
        if count > 1 and max(tags.numbers(data, at, _SUBFILE_TYPE, budget), default=0) & _REDUCED:
            continue
        if count > 1:
            image.seek(index)
        total += image.width * image.height
        check_pixels(name, image.size, 1, total, max_pixels)
        resolution = metadata.dpi(image.info.get("dpi"))
        # Pillow has brought the page upright by then.
        said, _ = metadata.upright(metadata.of_tiff(Metadata(dpi=resolution), data, at, budget))
        picture, found = _one(image, name)
        notes |= found
        pictures.append(replace(picture, metadata=said))
    if not pictures:
        raise ImageError(f"{name}: has no picture in it")
    return Frames(tuple(pictures), notes=tuple(sorted(notes)))
