"""Opens picture files, each by the decoder for its content."""

from __future__ import annotations

import functools
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.errors import ImageError
from waifu2x.formats import pnm
from waifu2x.formats.base import DAMAGED, DecodedFile, in_words
from waifu2x.formats.limits import MAX_PIXELS, Budget, OverBudgetError
from waifu2x.formats.png import animation, chunks
from waifu2x.formats.png import read as png_read
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Allocate, Extent
from waifu2x.system.files import read_bytes, reason

if TYPE_CHECKING:
    from waifu2x.formats.headers.tiff import TiffPictures


def first_picture(path: Path, max_pixels: int = MAX_PIXELS) -> Picture:
    """Returns the first picture in a file. Raises ImageError as `open_content` does."""
    with closing(open_content(content(path), str(path), max_pixels)) as source:
        return source.first().picture


def content(path: Path) -> bytes:
    """Returns the bytes of a file. Raises ImageError."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise ImageError(f"{path}: cannot read: {reason(error)}") from error


def extent(data: bytes) -> Extent | None:
    """Returns the size that a file declares, without decoding it; None if it does not say."""
    try:
        found = png_read.extent(data) if data.startswith(chunks.SIGNATURE) else None
        found_tiff = _tiff(data)
    except OverBudgetError:
        return None
    if found_tiff and found_tiff.pictures:
        found = found_tiff.pictures[0].extent
    if found is None:
        from waifu2x.formats.pillow import read as pillow_read

        found = pillow_read.extent(data)
    return found


def open_content(
    data: bytes, name: str, max_pixels: int = MAX_PIXELS, allocate: Allocate | None = None
) -> DecodedFile:
    """Opens the pictures in a file's content; `name` stands for it in messages.

    `allocate` makes the arrays of opaque pictures, where the decoder can fill any. Raises
    ImageError if the content is damaged, is of an unsupported kind, or holds more than `max_pixels`
    in all; so does the source where that shows only when a picture is decoded.
    """
    if not data:
        raise ImageError(f"{name}: the file is empty")
    _silence()
    with in_words(name, DAMAGED):
        if data.startswith(chunks.SIGNATURE):
            if animation.is_damaged(data):
                first = open_content(animation.still(data), name, max_pixels)
                notices = (*first.header.notices, animation.DAMAGED)
                first.header = replace(first.header, notices=notices)
                return first
            if data[12:16] == b"CgBI":
                from waifu2x.formats.png import apple

                return apple.open_content(data, name, max_pixels)
            found = png_read.open_content(data, name, max_pixels, allocate)
            if found:
                return found
        from waifu2x.formats.headers import refused

        found_tiff = _tiff(data)
        told = refused.RAW if found_tiff and found_tiff.is_raw else refused.reason(data)
        if told:
            raise ImageError(told.of(name))
        if found_tiff and not found_tiff.by_pillow:
            from waifu2x.formats import tiff

            return tiff.open_content(data, name, max_pixels, found_tiff.pictures)
        if pnm.is_deep(data):
            return pnm.open_content(data, name, max_pixels)
        # Most files are PNG; importing Pillow takes as long as reading one.
        from waifu2x.formats.pillow import read as pillow_read

        return pillow_read.open_content(data, name, max_pixels, allocate)


@functools.cache
def _silence() -> None:
    """Keeps the log of decoders off the terminal: their errors come as exceptions as well."""
    for name in ("PIL", "tifffile", "imagecodecs"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _tiff(data: bytes) -> TiffPictures | None:
    """Returns the pictures of a TIFF file; None if it is damaged, which Pillow finds as well."""
    if not data.startswith((b"II", b"MM")):
        return None
    from waifu2x.formats.headers import tiff

    try:
        return tiff.find(data, Budget(len(data)))
    except ValueError:
        return None
