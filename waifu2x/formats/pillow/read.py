"""Reads picture files by Pillow."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
from collections.abc import Generator
from dataclasses import replace

import numpy as np
from PIL import Image, UnidentifiedImageError, _imaging

from waifu2x.errors import ImageError, Sentence
from waifu2x.formats import table
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.headers import gif, psd, refused, tiff
from waifu2x.formats.headers.declared import declared
from waifu2x.formats.headers.parts import parts
from waifu2x.formats.limits import Budget, check_pixels
from waifu2x.formats.metadata import colours as stated
from waifu2x.formats.metadata import profiles, transfer
from waifu2x.formats.pillow import deep_samples
from waifu2x.formats.pillow.images import jpeg_coding, plain
from waifu2x.formats.png import chunks
from waifu2x.formats.png.colours import colours_of
from waifu2x.imaging.orientation import oriented, oriented_size
from waifu2x.imaging.picture import Colours, JpegCoding, Metadata, Picture, contiguous
from waifu2x.imaging.streams import Allocate, Extent, Header, Timed

_ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")
"""Formats whose further pictures follow in time; those of others are previews, sizes or layers."""
_PLANES = 4
"""Samples of a pixel, at most."""
_NO_DECODER = "has not been built in"
"""Words of libheif about codings that it has no decoder for."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt", b"eXIf")
_DURATION = 100.0
"""Milliseconds of a frame that names none, or 0, as browsers have it."""


def open_content(
    data: bytes, name: str, max_pixels: int, allocate: Allocate | None = None
) -> DecodedFile:
    """Opens the pictures in a file's content. `allocate` makes the array of a single opaque one.

    Raises ImageError, and whatever decoders raise.
    """
    _prepare()
    opened, plugin = table.by_pillow(data), table.sniffed(data)
    if plugin:
        try:
            table.plug_in(plugin)
        except ImageError as error:
            raise error.of(name) from error
        opened = (plugin.pillow,)
    said = declared(data)
    if said:
        total = said.width * said.height * said.pictures
        check_pixels(name, said[:2], said.pictures, total, max_pixels)
    # Pillow refuses PNGs for some texts, which it need not see.
    seen = chunks.without(data, _TEXTS) if data.startswith(chunks.SIGNATURE) else data
    seen = deep_samples.as_8_bits(seen)
    try:
        image = Image.open(io.BytesIO(seen), formats=opened)
    except UnidentifiedImageError as error:
        told = refused.document(data[:512])
        told = told or Sentence(f"not a picture of a known format ({table.NAMES})")
        raise ImageError(told.of(name)) from error
    try:
        if image.format == "TIFF":
            header, pictures = _pages(image, data, name, max_pixels)
        else:
            header, pictures = _frames(image, data, name, max_pixels, allocate)
    except BaseException:
        image.close()
        raise
    kind = str(image.format)
    header = replace(
        header, format=table.name_of(kind), parts={**header.parts, **parts(data, kind)}
    )
    return DecodedFile(name, header, pictures, image.close)


def extent(data: bytes) -> Extent | None:
    """Returns the size of the first picture, without decoding it; None if the file does not say."""
    if table.sniffed(data):
        return None
    _prepare()
    try:
        said = declared(data)
        if said:
            return Extent(said.height, said.width, said.height * said.width * _PLANES)
        with Image.open(io.BytesIO(data), formats=table.by_pillow(data)) as image:
            return Extent(image.height, image.width, _nbytes(image, data))
    except Exception:
        # The decoder will say what is wrong with it.
        return None


def _nbytes(image: Image.Image, data: bytes) -> int:
    planes = 4 if image.mode == "P" else len(image.getbands())
    sample = 4 if image.mode[0] in "IF" else -(-deep_samples.depth(image, data) // 8)
    return image.height * image.width * planes * sample


@functools.cache
def _prepare() -> None:
    """Makes Pillow leave limits and messages to us."""
    # It would refuse what we may be told to read; `max_pixels` is checked before decoding.
    Image.MAX_IMAGE_PIXELS = None
    # Pillow has no interface to libtiff's handlers, but its module is linked to them (on Windows
    # it may hide them, and the lines stay).
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


def _frames(
    image: Image.Image, data: bytes, name: str, max_pixels: int, allocate: Allocate | None
) -> tuple[Header, Generator[Timed]]:
    """Returns header and pictures of a file of one picture, or of an animation."""
    count = getattr(image, "n_frames", 1) if image.format in _ANIMATED else 1
    check_pixels(name, image.size, count, image.width * image.height * count, max_pixels)
    said, orientation = transfer.of_file(data, dict(image.info), str(image.format))
    rows, columns = oriented_size(image.height, image.width, orientation)
    extents = (Extent(rows, columns, _nbytes(image, data)),)
    if count == 1:
        header = Header(extents, jpeg=_coding(image, data), palette=image.mode in ("P", "PA"))
        return header, _one_picture(image, data, name, said, orientation, allocate)
    # The picture of an APNG for programs without animations is no frame.
    skipped = int(bool(image.info.get("default_image")))
    animated = count - skipped > 1
    palette = image.mode in ("P", "PA")
    header = Header(extents, count - skipped, animated, _loop(image), palette=palette)
    colour = image.format == "GIF" and gif.has_colours(data)
    frames = _animation(image, data, name, said, orientation, range(skipped, count), colour)
    return header, frames


def _one_picture(
    image: Image.Image,
    data: bytes,
    name: str,
    said: Metadata,
    orientation: int,
    allocate: Allocate | None,
) -> Generator[Timed]:
    picture, notices = _loaded(image, data, name, allocate)
    picture, said_of_it = deep_samples.deepened(picture, image, data)
    picture = replace(picture, metadata=said, jpeg=_coding(image, data))
    yield Timed(oriented(picture, orientation), notices=tuple(sorted({*notices, *said_of_it})))


def _loaded(
    image: Image.Image, data: bytes, name: str, allocate: Allocate | None = None
) -> tuple[Picture, tuple[str, ...]]:
    if image.format != "PNG":
        colours = stated.of_file(data, image.info, str(image.format))
        if image.format == "JPEG" and deep_samples.depth(image, data) != 8:
            return deep_samples.of_jpeg(image, data, colours)
        _load(image, name)
        picture, notices = plain(image, name, colours, allocate)
        if image.format == "PSD" and not psd.is_transparent(data):
            picture = replace(picture, alpha=None)  # what Pillow takes for it is a saved selection
        return picture, notices
    image.load()
    picture, notices = plain(image, name, Colours(), allocate)
    colours, is_bad = colours_of(dict(chunks.contents(data)), picture.pixels.shape[-1])
    if is_bad:
        notices += (profiles.BAD_PROFILE,)
    return replace(picture, colours=colours), notices


def _coding(image: Image.Image, data: bytes) -> JpegCoding | None:
    """Returns how a JPEG of 8 bits was coded: steps of other depths have other sizes."""
    return jpeg_coding(image) if deep_samples.depth(image, data) == 8 else None


def _load(image: Image.Image, name: str) -> None:
    """Decodes an image. Raises what decoders raise, and ImageError for a coding without one."""
    try:
        image.load()
    except (OSError, RuntimeError, ValueError) as error:
        if _NO_DECODER not in str(error):
            raise
        raise ImageError(
            f"{name}: it is HEIF in a coding that this pillow-heif does not decode",
            "export it as PNG or TIFF",
        ) from error


def _animation(
    image: Image.Image,
    data: bytes,
    name: str,
    said: Metadata,
    orientation: int,
    indices: range,
    colour: bool,
) -> Generator[Timed]:
    """Yields the frames at some indices; with `colour`, grey ones get three planes too."""
    first, notices = _loaded(image, data, name)
    alpha = first.alpha is not None
    for index in indices:
        if index == 0:
            picture = first
        else:
            image.seek(index)
            image.load()
            picture, notices = plain(image, name, Colours())
        picture = replace(
            _like(picture, first.pixels.shape[:2], colour, alpha),
            colours=first.colours,
            metadata=said if index == indices[0] else Metadata(),
        )
        duration = _duration(image) if len(indices) > 1 else None
        yield Timed(oriented(picture, orientation), duration, tuple(sorted(notices)))


def _loop(image: Image.Image) -> int:
    """Returns how many times an animation is shown; 0 is without end."""
    said = image.info.get("loop")
    if image.format == "GIF":
        # A GIF names the repeats after the first time; without a word, there are none.
        return 1 if said is None else int(said) and int(said) + 1
    return int(said or 0)


def _duration(image: Image.Image) -> float:
    return float(image.info.get("duration") or _DURATION)


def _like(picture: Picture, size: tuple[int, ...], colour: bool, alpha: bool) -> Picture:
    """Gives a frame the size and the planes that all frames of its animation have.

    Pillow enlarges its canvas for a frame that goes beyond it: that part is cut off.
    """
    height, width = size
    if picture.pixels.shape[:2] != (height, width):
        opacity = picture.alpha
        picture = replace(
            picture,
            pixels=contiguous(picture.pixels[:height, :width]),
            alpha=None if opacity is None else np.ascontiguousarray(opacity[:height, :width]),
        )
    if colour and picture.pixels.shape[-1] == 1:
        picture = replace(picture, pixels=picture.pixels.repeat(3, axis=-1))
    if alpha and picture.alpha is None:
        picture = replace(picture, alpha=np.full((height, width), 255, np.uint8))
    if not alpha and picture.alpha is not None:
        picture = replace(picture, alpha=None)
    return picture


def _pages(
    image: Image.Image, data: bytes, name: str, max_pixels: int
) -> tuple[Header, Generator[Timed]]:
    """Returns header and pages of a TIFF of 8 bits, without thumbnails."""
    count = getattr(image, "n_frames", 1)
    budget = Budget(len(data))
    found = tiff.find(data, budget).pictures
    pages = [picture for picture in found if picture.page is not None and picture.page < count]
    if not pages:
        raise ImageError(f"{name}: it has no picture in it")
    total = 0
    for page in pages:
        total += page.size[0] * page.size[1]
        check_pixels(name, page.size, 1, total, max_pixels)
    extents = tuple(page.extent for page in pages)
    said = tiff.parts(data, pages, budget)
    header = Header(extents, len(pages), palette=pages[0].palette, parts=said)
    return header, _decoded_pages(image, data, name, pages)


def _decoded_pages(
    image: Image.Image, data: bytes, name: str, pages: list[tiff.TiffPicture]
) -> Generator[Timed]:
    """Yields the pictures of a file at some of its pages."""
    budget = Budget(len(data))
    for page in pages:
        assert page.page is not None  # Pillow reads no others
        if page.page != image.tell():
            image.seek(page.page)
        # Pillow has brought the page upright by then.
        said, _ = transfer.upright(transfer.of_tiff(data, page.at, budget))
        image.load()
        planes = 3 if image.mode[0] in "RP" else 1
        colours = stated.of_tiff(data, page.at, budget, planes, said.exif)
        picture, notices = plain(image, name, colours)
        yield Timed(replace(picture, metadata=said), notices=tuple(sorted(set(notices))))
