"""Reads PNG of one picture, grey or RGB of 8 or 16 bits; Pillow reads all others.

libspng takes little more than half of Pillow's time. Grey with alpha, and 16 bits, which Pillow
would reduce to 8, are for libpng. Every checksum is compared.

Rows of 8 bits are read in bands: ISA-L, which inflates two to three times as fast as libspng,
inflates a band, and libspng gets it as a picture of stored blocks, below the row above it, to undo
the filters. Besides the pixels only a few bands exist, which stay in a core's cache. Where there
are two cores, one inflates while the other undoes filters.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.limits import check_pixels
from waifu2x.formats.metadata import profiles, transfer
from waifu2x.formats.png import chunks
from waifu2x.formats.png.colours import colours_of
from waifu2x.formats.png.ordered_pool import in_order
from waifu2x.imaging.orientation import oriented, oriented_size
from waifu2x.imaging.picture import Picture, apart
from waifu2x.imaging.streams import Allocate, Extent, Header, Timed
from waifu2x.system.machine import core_count

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
    """Opens a file that begins with SIGNATURE; None where Pillow is to read or refuse it.

    `allocate` makes the array of an opaque picture. Raises ImageError.
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
    found = dict(chunks.contents(data))
    colours, is_bad = colours_of(found, _COLOURS[header.kind])
    if is_bad:
        notices.add(profiles.BAD_PROFILE)
    if deep and b"acTL" in kinds:
        notices.add("only its first picture is read: it has 16 bits a sample")
    said, orientation = transfer.of_file(data, {}, "PNG")
    rows, columns = oriented_size(header.height, header.width, orientation)
    file_header = Header(
        (Extent(rows, columns, _nbytes(header)),), format="PNG", notices=tuple(sorted(notices))
    )

    def decoded() -> Generator[Timed]:
        pixels, alpha = apart(np.atleast_3d(_samples(data, places, header, allocate)))
        yield Timed(oriented(Picture(pixels, alpha, colours, said), orientation))

    return DecodedFile(name, file_header, decoded())


def _samples(
    data: bytes, places: list[chunks.Place], header: _PngHeader, allocate: Allocate | None
) -> NDArray[Any]:
    """Returns (H, W, planes), or (H, W) of one plane. Raises what decoders raise."""
    kinds = {kind for kind, _, _ in places}
    by_libpng = header.depth == 16 or header.kind == _GREY_AND_ALPHA
    planes = _PLANES[header.kind] + (b"tRNS" in kinds)
    shape = (header.height, header.width, planes)[: 2 + (planes > 1)]
    # Alpha is taken apart from the colours, which are copied then.
    make = np.empty if allocate is None or planes in (2, 4) else allocate
    samples = make(shape, np.dtype(f"u{header.depth // 8}"))
    view = memoryview(data)
    deflated = (view[start:end] for kind, start, end in places if kind == b"IDAT")
    if by_libpng or not decode_bands(deflated, header.kind, samples):
        bare = _bare(data, places) if {b"IDAT", b"IEND"} <= kinds else data
        decode_file = imagecodecs.png_decode if by_libpng else imagecodecs.spng_decode
        decode_file(bare, out=samples)
    return samples


def extent(data: bytes) -> Extent | None:
    """Returns the size of the picture, without decoding it; None where Pillow is to read it."""
    header = _header(data)
    if header is None or any(kind == b"acTL" for kind, _, _ in chunks.places(data)):
        return None
    return Extent(header.height, header.width, _nbytes(header))


def _nbytes(header: _PngHeader) -> int:
    return header.height * header.width * _PLANES[header.kind] * (header.depth // 8)


def _header(data: bytes) -> _PngHeader | None:
    first = next(chunks.places(data), None)
    if first is None or (first[0], first[2] - first[1]) != (b"IHDR", 13):
        return None
    header = _PngHeader(*struct.unpack_from(">IIBBBBB", data, first[1]))
    sides = 0 < header.width < 2**31 and 0 < header.height < 2**31
    ours = header.depth in (8, 16) and header.kind in _PLANES
    methods = (header.compression, header.filtering) == (0, 0) and header.interlacing in (0, 1)
    return header if sides and ours and methods else None


def _checked(data: bytes, name: str) -> tuple[list[chunks.Place], set[str]]:
    """Returns where chunks are, and notices of damaged ones that are optional.

    Raises ImageError for others that are damaged.
    """
    found, notes = [], set[str]()
    for place in chunks.places(data):
        kind = place[0].decode()
        if chunks.sound(data, place):
            found.append(place)
        elif chunks.optional(place[0]):
            notes.add(f"its {kind} is damaged and left out")
        else:
            raise ImageError(f"{name}: damaged: the checksum of its {kind} is wrong")
    return found, notes


def _bare(data: bytes, places: list[chunks.Place]) -> bytes:
    """Returns the file without other chunks than its pixels': libpng prints complaints of those."""
    view = memoryview(data)
    needed = (b"IHDR", b"tRNS", b"IDAT", b"IEND")
    return b"".join(
        (
            chunks.SIGNATURE,
            *(view[start - 8 : end + 4] for kind, start, end in places if kind in needed),
        )
    )


_BAND = 1 << 19
"""Bytes of rows that are inflated and unfiltered together."""
_FEW = 16
"""Bands for which no thread is started: it would save little of their 30 ms."""
_LARGEST_ROW = 1 << 28
"""Bytes of the longest row for this way: a chunk of two must stay below 2^31."""
_INPUT = 1 << 16
"""Deflated bytes for each call: ISA-L's interface copies what it leaves."""
_BLOCK = 65535
"""Bytes of a stored block, at most. RFC 1951, section 3.2.4."""
_END = b"\x03\x00"
"""A last block with nothing in it."""


def decode_bands(deflated: Iterable[memoryview], kind: int, out: NDArray[np.uint8]) -> bool:
    """Fills `out`, (H, W, planes), or (H, W) of one plane, with samples; returns whether it could.

    `deflated` are the contents of IDAT in their order, `kind` is IHDR's colour type. It cannot
    without ISA-L, and where rows are damaged, too few or too many: those are for a decoder of
    files. Raises what imagecodecs.spng_decode raises for unknown filters, and MemoryError.
    """
    height, width = out.shape[:2]
    stride = 1 + out.size // height
    if chunks.fast_zlib() is zlib or stride > _LARGEST_ROW:
        return False
    rows = max(1, _BAND // stride)
    tops = range(0, height, rows)
    stream = _Stream(deflated, height * stride)

    def inflated(top: int) -> list[bytes] | None:
        return stream.read(min(rows, height - top) * stride)

    workers = int(len(tops) > _FEW and core_count() > 1)
    with closing(in_order(inflated, tops, workers)) as bands:
        for top, band in zip(tops, bands, strict=True):
            if band is None:
                return False
            above: list[bytes | memoryview] = []
            if top:
                above = [b"\0", out[top - 1].data.cast("B")]
            # The row above is written again, unchanged.
            part = out[top - bool(top) : top + rows]
            header = struct.pack(">IIBBBBB", width, len(part), 8, kind, 0, 0, 0)
            imagecodecs.spng_decode(_file(header, [*above, *band]), out=part)
    return True


class _Stream:
    """Inflates a zlib stream of a known length piece by piece."""

    def __init__(self, deflated: Iterable[memoryview], length: int) -> None:
        self._fast: Any = chunks.fast_zlib()
        self._inflater = self._fast.decompressobj()
        self._deflated = _pieces(deflated)
        self._rest: bytes | memoryview = b""
        """Input to be inflated next."""
        self._left = length

    def read(self, size: int) -> list[bytes] | None:
        """Returns the next bytes, in pieces; None if the stream is damaged or of another length."""
        try:
            found = self._up_to(size)
            self._left -= size
            whole = sum(map(len, found)) == size
            if whole and not self._left:
                # The checksum stands behind the last byte.
                whole = not self._up_to(1) and self._inflater.eof
        except self._fast.error:
            return None
        return found if whole else None

    def _up_to(self, size: int) -> list[bytes]:
        found = []
        while size and not self._inflater.eof:
            piece = self._inflater.decompress(self._rest, size)
            if piece:
                found.append(piece)
                size -= len(piece)
            self._rest = self._inflater.unconsumed_tail or next(self._deflated, b"")
            if not (piece or self._rest):
                break
        return found


def _pieces(deflated: Iterable[memoryview]) -> Iterator[memoryview]:
    return (part[at : at + _INPUT] for part in deflated for at in range(0, len(part), _INPUT))


def _file(header: bytes, rows: list[bytes | memoryview]) -> bytes:
    """Returns a PNG of filtered rows that are stored and not deflated."""
    blocks: list[bytes | memoryview] = [b"\x78\x01"]
    adler32, checksum = chunks.fast_zlib().adler32, 1
    for piece in rows:
        checksum = adler32(piece, checksum)
        for at in range(0, len(piece), _BLOCK):
            part = memoryview(piece)[at : at + _BLOCK]
            blocks += [struct.pack("<BHH", 0, len(part), len(part) ^ 0xFFFF), part]
    blocks += [_END, struct.pack(">I", checksum)]
    file = [chunks.SIGNATURE, *chunks.chunk(b"IHDR", header)]
    file += [*chunks.chunk(b"IDAT", *blocks), *chunks.chunk(b"IEND")]
    return b"".join(file)
