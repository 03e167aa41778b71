"""Reading PNG of one picture, grey or RGB of 8 or 16 bits: Pillow reads all others.

libspng takes little more than half of Pillow's time; grey with alpha, and 16 bits, which Pillow
would cut down to 8, are for libpng. Every checksum is looked at, so that what comes out is what
once went in.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats import metadata, png, png_rows, profiles
from waifu2x.formats.limits import check_pixels
from waifu2x.imaging.orientation import oriented
from waifu2x.imaging.picture import Colours, Extent, Frames, Picture, apart

_GREY_AND_ALPHA = 4
_PLANES = {0: 1, 2: 3, _GREY_AND_ALPHA: 2, 6: 4}
"""Of the kinds that are read here: grey, RGB, grey and alpha, RGB and alpha."""


class _Header(NamedTuple):
    """IHDR. PNG 3, section 11.2.1."""

    width: int
    height: int
    depth: int
    kind: int
    compression: int
    filtering: int
    interlacing: int


def read(data: bytes, name: str, max_pixels: int) -> Frames | None:
    """The picture of a file that begins with png.SIGNATURE; None: Pillow is to read or refuse it.

    Raises ImageError, and what decoders raise if it is damaged.
    """
    header = _header(data)
    if header is None:
        return None
    places, notes = _checked(data, name)
    kinds = {kind for kind, _, _ in places}
    deep, whole = header.depth == 16, {b"IDAT", b"IEND"} <= kinds
    if not deep and (header.interlacing or kinds & {b"acTL", b"tRNS"} or not whole):
        return None
    size = header.width, header.height
    check_pixels(name, size, 1, header.width * header.height, max_pixels)
    by_libpng = deep or header.kind == _GREY_AND_ALPHA
    samples = None if by_libpng else _by_bands(data, places, header)
    if samples is None:
        bare = _bare(data, places) if whole else data
        samples = (imagecodecs.png_decode if by_libpng else imagecodecs.spng_decode)(bare)
    pixels, alpha = apart(np.atleast_3d(samples))
    chunks = dict(png.chunks(data))
    colours = Colours(None, png.colour_chunks(chunks.items()))
    if b"iCCP" in kinds:
        profile = png.profile(chunks[b"iCCP"])
        if profile and profiles.fits(profile, pixels.shape[-1]):
            colours = Colours(profile)
        else:
            notes.add(profiles.BAD_PROFILE)
    if deep and b"acTL" in kinds:
        notes.add("only its first picture is read: it has 16 bits a sample")
    said, orientation = metadata.of_file(data, {}, "PNG")
    picture = oriented(Picture(pixels, alpha, colours, said), orientation)
    return Frames((picture,), format="PNG", notes=tuple(sorted(notes)))


def extent(data: bytes) -> Extent | None:
    """See `read.extent`; None for what Pillow is to look at."""
    header = _header(data)
    if header is None or any(kind == b"acTL" for kind, _, _ in png.places(data)):
        return None
    size = header.height * header.width * _PLANES[header.kind] * (header.depth // 8)
    return Extent(header.height, header.width, size)


def _header(data: bytes) -> _Header | None:
    """That of a picture that may be for us."""
    first = next(png.places(data), None)
    if first is None or (first[0], first[2] - first[1]) != (b"IHDR", 13):
        return None
    header = _Header(*struct.unpack_from(">IIBBBBB", data, first[1]))
    sides = 0 < header.width < 2**31 and 0 < header.height < 2**31
    ours = header.depth in (8, 16) and header.kind in _PLANES
    methods = (header.compression, header.filtering) == (0, 0) and header.interlacing in (0, 1)
    return header if sides and ours and methods else None


def _checked(data: bytes, name: str) -> tuple[list[png.Place], set[str]]:
    """Where chunks are, and which that may be missing are damaged. Raises ImageError for others."""
    found, notes = [], set[str]()
    for place in png.places(data):
        kind = place[0].decode()
        if png.sound(data, place):
            found.append(place)
        elif png.optional(place[0]):
            notes.add(f"its {kind} is damaged and left out")
        else:
            raise ImageError(f"{name}: damaged: the checksum of its {kind} is wrong")
    return found, notes


def _by_bands(data: bytes, places: list[png.Place], header: _Header) -> NDArray[np.uint8] | None:
    """See `png_rows.decoded`."""
    view = memoryview(data)
    deflated = (view[start:end] for kind, start, end in places if kind == b"IDAT")
    shape = header.height, header.width, _PLANES[header.kind]
    return png_rows.decoded(deflated, shape, header.kind)


def _bare(data: bytes, places: list[png.Place]) -> bytes:
    """The file with nothing that is not its pixels': libpng prints what it thinks of the rest."""
    view = memoryview(data)
    needed = (b"IHDR", b"tRNS", b"IDAT", b"IEND")
    return b"".join(
        (
            png.SIGNATURE,
            *(view[start - 8 : end + 4] for kind, start, end in places if kind in needed),
        )
    )
