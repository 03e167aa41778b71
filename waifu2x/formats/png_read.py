"""Reading PNG of one picture, grey or RGB of 8 or 16 bits: Pillow reads all others.

libspng takes little more than half of Pillow's time; grey with alpha, and 16 bits, which Pillow
would cut down to 8, are for libpng. Every checksum is looked at, so that what comes out is what
once went in.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, NamedTuple

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats import metadata, png, png_rows, profiles
from waifu2x.formats.limits import check_pixels
from waifu2x.formats.source import DecodedFile
from waifu2x.imaging.orientation import oriented, oriented_size
from waifu2x.imaging.picture import Colours, Picture, apart
from waifu2x.imaging.streams import Allocate, Extent, Header, Timed

_GREY_AND_ALPHA = 4
_PLANES = {0: 1, 2: 3, _GREY_AND_ALPHA: 2, 6: 4}
"""Samples of a pixel, by IHDR's colour type: grey, RGB, grey and alpha, RGB and alpha."""
_COLOURS = {0: 1, 2: 3, _GREY_AND_ALPHA: 1, 6: 3}
"""Samples of a pixel without alpha, by IHDR's colour type."""


class _PngHeader(NamedTuple):
    """IHDR. PNG 3, section 11.2.1."""

    width: int
    height: int
    depth: int
    kind: int
    compression: int
    filtering: int
    interlacing: int


def open_content(
    data: bytes, name: str, max_pixels: int, allocate: Allocate | None = None
) -> DecodedFile | None:
    """A file that begins with png.SIGNATURE; None: Pillow is to read or refuse it.

    `allocate` makes the array of an opaque picture.

    Raises ImageError.
    """
    header = _header(data)
    if header is None:
        return None
    places, notices = _checked(data, name)
    kinds = {kind for kind, _, _ in places}
    deep, whole = header.depth == 16, {b"IDAT", b"IEND"} <= kinds
    if not deep and (header.interlacing or kinds & {b"acTL", b"tRNS"} or not whole):
        return None
    size = header.width, header.height
    check_pixels(name, size, 1, header.width * header.height, max_pixels)
    chunks = dict(png.chunks(data))
    colours = Colours(None, png.colour_chunks(chunks.items()))
    if b"iCCP" in kinds:
        profile = png.profile(chunks[b"iCCP"])
        if profile and profiles.fits(profile, _COLOURS[header.kind]):
            colours = Colours(profile)
        else:
            notices.add(profiles.BAD_PROFILE)
    if deep and b"acTL" in kinds:
        notices.add("only its first picture is read: it has 16 bits a sample")
    said, orientation = metadata.of_file(data, {}, "PNG")
    rows, columns = oriented_size(header.height, header.width, orientation)
    found = Header(
        (Extent(rows, columns, _nbytes(header)),), format="PNG", notices=tuple(sorted(notices))
    )

    def decoded() -> Generator[Timed]:
        pixels, alpha = apart(np.atleast_3d(_samples(data, places, header, allocate)))
        yield Timed(oriented(Picture(pixels, alpha, colours, said), orientation))

    return DecodedFile(name, found, decoded())


def _samples(
    data: bytes, places: list[png.Place], header: _PngHeader, allocate: Allocate | None
) -> NDArray[Any]:
    """(H, W, planes), or (H, W) of one plane. Raises what decoders raise."""
    kinds = {kind for kind, _, _ in places}
    by_libpng = header.depth == 16 or header.kind == _GREY_AND_ALPHA
    planes = _PLANES[header.kind] + (b"tRNS" in kinds)
    shape = (header.height, header.width, planes)[: 2 + (planes > 1)]
    # Alpha is taken apart from the colours, which are copied then.
    make = np.empty if allocate is None or planes in (2, 4) else allocate
    samples = make(shape, np.dtype(f"u{header.depth // 8}"))
    if by_libpng or not _by_bands(data, places, header, samples):
        bare = _bare(data, places) if {b"IDAT", b"IEND"} <= kinds else data
        decode = imagecodecs.png_decode if by_libpng else imagecodecs.spng_decode
        decode(bare, out=samples)
    return samples


def extent(data: bytes) -> Extent | None:
    """The size of the picture, without decoding it; None where Pillow is to look at the file."""
    header = _header(data)
    if header is None or any(kind == b"acTL" for kind, _, _ in png.places(data)):
        return None
    return Extent(header.height, header.width, _nbytes(header))


def _nbytes(header: _PngHeader) -> int:
    """Bytes of the samples in memory."""
    return header.height * header.width * _PLANES[header.kind] * (header.depth // 8)


def _header(data: bytes) -> _PngHeader | None:
    """That of a picture that may be for us."""
    first = next(png.places(data), None)
    if first is None or (first[0], first[2] - first[1]) != (b"IHDR", 13):
        return None
    header = _PngHeader(*struct.unpack_from(">IIBBBBB", data, first[1]))
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


def _by_bands(
    data: bytes, places: list[png.Place], header: _PngHeader, out: NDArray[np.uint8]
) -> bool:
    """Decodes samples by ISA-L and libspng, a band of rows after the other; whether that worked."""
    view = memoryview(data)
    deflated = (view[start:end] for kind, start, end in places if kind == b"IDAT")
    return png_rows.decode(deflated, header.kind, out)


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
