"""TIFF by tifffile: writes any depth, reads what has more than 8 bits."""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
from collections.abc import Container, Generator, Sequence
from typing import IO, Any

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats.base import DecodedFile, Writer
from waifu2x.formats.headers.declared import of_stream
from waifu2x.formats.headers.tiff import TiffPicture, parts
from waifu2x.formats.limits import Budget, OverBudgetError, check_pixels
from waifu2x.formats.metadata import colours as stated
from waifu2x.formats.metadata import icc, tags, transfer
from waifu2x.formats.metadata.profiles import BAD_PROFILE
from waifu2x.formats.table import Compression
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.imaging.orientation import oriented
from waifu2x.imaging.picture import Colours, Metadata, Picture, full_range, straight, with_alpha
from waifu2x.imaging.streams import Header, Timed

_BIG = 4_000_000_000
"""Bytes of pixels above which offsets need 64 bits."""
_STRIP = 1 << 18
"""Bytes of a strip, which a reader unpacks as a whole."""
_LEVELS: dict[Compression, int] = {"fast": 1, "default": 6, "best": 12}
"""Levels of libdeflate."""
_MOST_SAMPLES = 16
"""Samples of a pixel: colours, transparency, and further ones that some programs add."""
_TILE = 1 << 24
"""Pixels of a tile that is always accepted: a small picture may be in one of a usual size."""
_SINGLE = frozenset((256, 257, 259, 262, 277, 278, 284, 317, 322, 323))
"""Tags that have one value: sizes of a page, its strips and its tiles, number of samples, coding,
and what samples mean."""
_WITH_SIZES = (7, 33003, 33004, 33005, 34712, 34892, 34933, 34934, 50001, 50002, 52546)
"""Compressions whose parts name their sizes, by which decoders allocate memory: JPEG, JPEG 2000,
PNG, JPEG XR, WebP, JPEG XL."""
_PREMULTIPLIED = 1
_MIN_IS_WHITE, _GREY, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_COLOURS = {_MIN_IS_WHITE: 1, _GREY: 1, _RGB: 3, _PALETTE: 3, _CMYK: 4, _YCBCR: 3}
"""Samples of a pixel once it is decoded, without alpha, by PhotometricInterpretation."""
_TO_RGB = (7, 50001, 50002)
"""Compressions whose decoders make RGB of YCbCr."""


def open_content(
    data: bytes, name: str, max_pixels: int, pictures: Sequence[TiffPicture]
) -> DecodedFile:
    """Opens some pictures of a file. Raises ImageError, and whatever tifffile raises for damage."""
    budget = Budget(len(data))
    for picture in pictures:
        _check_counts(data, picture.at, name, budget)
    file = tifffile.TiffFile(io.BytesIO(data))
    try:
        if not pictures:
            raise ImageError(f"{name}: it has no picture in it")
        pages, total = list[tifffile.TiffPage](), 0
        for index, picture in enumerate(pictures):
            file.filehandle.seek(picture.at)
            page = tifffile.TiffPage(file, index)
            size = page.imagewidth, page.imagelength
            total += size[0] * size[1]
            check_pixels(name, size, 1, total, max_pixels)
            _check_samples(page, data, name, max_pixels)
            pages.append(page)
        extents = tuple(picture.extent for picture in pictures)
        header = Header(
            extents,
            len(pages),
            format="TIFF",
            palette=pictures[0].palette,
            parts=parts(data, pictures, budget),
        )
    except BaseException:
        file.close()
        raise

    def decoded() -> Generator[Timed]:
        for page, found in zip(pages, pictures, strict=True):
            picture, notices = _page(page, found.described, data, name, budget)
            yield Timed(picture, notices=tuple(sorted(notices)))

    return DecodedFile(name, header, decoded(), file.close)


def _check_counts(data: bytes, at: int, name: str, budget: Budget) -> None:
    """Raises ImageError for a page with several values of a tag that has one, by TIFF 6.0."""
    for place in tags.places(data, tags.layout(data), at, budget):
        if place.tag in _SINGLE and place.count != 1:
            raise ImageError(
                f"{name}: damaged: its tag {place.tag} has {place.count} values, not 1"
            )


def _check_samples(page: tifffile.TiffPage, data: bytes, name: str, max_pixels: int) -> None:
    """Raises ImageError for a page that would take memory for more than its pixels."""
    if page.samplesperpixel > _MOST_SAMPLES or page.imagedepth != 1:
        samples = page.samplesperpixel * page.imagedepth
        raise ImageError(f"{name}: {samples} samples a pixel are not a picture")
    largest = page.tilewidth * page.tilelength * page.tiledepth
    if largest > max(max_pixels, _TILE):
        raise ImageError(f"{name}: damaged: its tiles are larger than any picture")
    if page.compression in _WITH_SIZES:
        largest = max(largest, page.imagewidth * page.imagelength)
        for start, length in zip(page.dataoffsets, page.databytecounts, strict=False):
            across, down = of_stream(data[start : start + length]) or (0, 0)
            if across * down > largest:
                raise ImageError(f"{name}: damaged: a part of it is {across}x{down} pixels")


class TiffWriter(Writer):
    """Writes pages into a file as they come."""

    def __init__(
        self, header: Header, file: IO[bytes], compression: Compression = "default"
    ) -> None:
        """`header` is that of the results; `file` can be read and sought."""
        self._extents = header.all_extents
        self._file = file
        self._compression = compression
        self._writer: Any = None
        self._first: Metadata | None = None
        self._pages = 0
        self._without_resolution = set[int]()
        """Pages that have none."""

    def add(self, timed: Timed) -> None:
        """Writes the next page."""
        picture = timed.picture
        if self._writer is None:
            self._first = first = picture.metadata
            order = tags.layout(first.exif).order if first.exif else "<"
            big = self._total(picture) > _BIG
            self._writer = tifffile.TiffWriter(self._file, bigtiff=big, byteorder=order)
        self._writer.write(_samples(picture), **_options(picture, self._compression))
        if not picture.metadata.dpi:
            self._without_resolution.add(self._pages)
        self._pages += 1

    def finish(self) -> None:
        """Writes what comes after the last page."""
        self._writer.close()
        _drop_resolution(self._file, self._without_resolution)
        first = self._first
        if first is not None and first.exif:
            # EXIF's resolution is kept where the file had no other.
            but = tags.RESOLUTION if first.dpi else ()
            at = tags.first(first.exif, tags.layout(first.exif))
            with contextlib.suppress(ValueError, OverBudgetError):  # of a damaged block
                described = tags.described(first.exif, at, Budget(len(first.exif)), but)
                _describe(self._file, described)

    def _total(self, first: Picture) -> float:
        """Returns about how many bytes all samples have, by the first page and the header."""
        nbytes = [extent.nbytes for extent in self._extents]
        return _raw_size(first) * sum(nbytes) / max(nbytes[0], 1)


def _raw_size(picture: Picture) -> int:
    return picture.pixels.nbytes + (0 if picture.alpha is None else picture.alpha.nbytes)


def _samples(picture: Picture) -> NDArray[Any]:
    samples = with_alpha(picture)
    return samples[..., 0] if samples.shape[-1] == 1 else samples


def _options(picture: Picture, compression: Compression) -> dict[str, Any]:
    said, (height, _, planes) = picture.metadata, picture.pixels.shape
    stride = _raw_size(picture) // height
    options: dict[str, Any] = {
        "photometric": "rgb" if planes == 3 else "minisblack",
        "compression": "adobe_deflate",
        "compressionargs": {"level": _LEVELS[compression]},
        "predictor": True,
        "rowsperstrip": max(1, _STRIP // stride),
        "metadata": None,
        "software": False,
        "extratags": [],
    }
    if picture.alpha is not None:
        options |= {"extrasamples": ["unassalpha"], "planarconfig": "contig"}
    if picture.colours.icc_profile:
        options["iccprofile"] = picture.colours.icc_profile
    if said.dpi:
        options["resolution"] = said.dpi
        options["resolutionunit"] = "INCH"
    if said.xmp:
        options["extratags"].append((700, 1, len(said.xmp), said.xmp, True))
    if said.iptc:
        options["extratags"].append((33723, 7, len(said.iptc), said.iptc, True))
    return options


def _drop_resolution(file: IO[bytes], pages: Container[int]) -> None:
    """Removes the resolution, which tifffile always writes, from the directories of some pages."""
    file.seek(0)
    head = file.read(16)
    form = tags.layout(head)
    at = tags.first(head, form)
    for index in itertools.count():
        if not at:
            break
        file.seek(at)
        (count,) = struct.unpack(form.number, file.read(struct.calcsize(form.number)))
        table, link = file.read(count * form.size), file.read(form.room)
        if index in pages:
            entries = (
                table[start : start + form.size] for start in range(0, len(table), form.size)
            )
            kept = [
                entry
                for entry in entries
                if struct.unpack_from(form.order + "H", entry)[0] not in tags.RESOLUTION
            ]
            file.seek(at)
            file.write(struct.pack(form.number, len(kept)) + b"".join(kept) + link)
        (at,) = struct.unpack(form.offset, link)
    file.seek(0, io.SEEK_END)


def _describe(file: IO[bytes], described: tags.Directory) -> None:
    """Adds entries to the first directory of a file, by a new one at its end.

    tifffile writes no directories below a picture's own, such as EXIF's.
    """
    file.seek(0)
    with tifffile.TiffFile(file) as written:
        form = tags.TiffLayout(written.byteorder, written.is_bigtiff)
        page = written.pages[0]
        entries = []
        for tag in page.tags:
            file.seek(tag.valueoffset)
            value = file.read(tag.valuebytecount)
            entries.append(tags.Tag(tag.code, int(tag.dtype), tag.count, value))
        after = written.pages[1].offset if len(written.pages) > 1 else 0
        said = {tag.number for tag in described.tags}
        kept = [tag for tag in entries if tag.number not in said]
        at = file.seek(0, io.SEEK_END)
        at += file.write(bytes(at % 2))
        directory = tags.Directory((*kept, *described.tags), described.children)
        file.write(tags.packed(directory, form, at, after))
        file.seek(8 if form.big else 4)
        file.write(struct.pack(form.offset, at))
        file.seek(0, io.SEEK_END)


def _page(
    page: tifffile.TiffPage, described: int, data: bytes, name: str, budget: Budget
) -> tuple[Picture, set[str]]:
    """Returns a page, upright, and notices. Its metadata is in the directory at `described`."""
    notices: set[str] = set()
    photometric, depth = int(page.photometric), int(np.max(page.bitspersample))
    has_palette = photometric == _PALETTE and depth <= 8
    planes = _COLOURS.get(photometric)
    coded = photometric == _YCBCR and page.compression not in _TO_RGB
    if planes is None or coded or (photometric == _PALETTE and not has_palette):
        kind = getattr(page.photometric, "name", str(photometric))
        raise ImageError(
            f"{name}: {kind} pictures of {depth} bits a sample are not supported",
            "convert to RGB first",
        )
    samples = page.asarray()
    if not samples.size:
        raise ImageError(f"{name}: damaged or cut off: it has no samples")
    if samples.dtype.kind == "b":
        samples = samples.astype(np.uint8)
    if has_palette:
        table = np.asarray(page.colormap).T  # (colours, 3), of 16 bits
        samples = (table[samples.squeeze()] >> 8).astype(np.uint8)
    if samples.ndim == 2:
        samples = samples[..., np.newaxis]
    elif int(page.planarconfig) == 2:
        samples = np.moveaxis(samples, 0, -1)
    if samples.ndim != 3:
        raise ImageError(f"{name}: a volume of {samples.shape} samples is not a picture")
    if samples.shape[-1] < planes:
        raise ImageError(f"{name}: damaged: it has fewer samples a pixel than its colours need")
    values = _values(samples, 8 if has_palette else depth, name, notices)
    if photometric == _MIN_IS_WHITE:
        values = (np.iinfo(values.dtype).max if values.dtype.kind == "u" else 1) - values
    pixels, alpha = values[..., :planes], None
    if values.shape[-1] > planes and page.extrasamples and int(page.extrasamples[0]) in (1, 2):
        alpha = np.ascontiguousarray(values[..., planes])
        if int(page.extrasamples[0]) == _PREMULTIPLIED:
            pixels = straight(pixels, alpha)
    pixels = np.ascontiguousarray(pixels)
    found = transfer.of_tiff(data, described, budget)
    said, orientation = transfer.upright(found)
    colours = stated.of_tiff(data, page.offset, budget, min(planes, 3), said.exif)
    if photometric == _CMYK:
        pixels, notice = _of_cmyk(pixels, colours.icc_profile)
        colours, planes = Colours(), 3
        notices.add(notice)
    if colours.icc_profile and not icc.fits(colours.icc_profile, planes):
        colours = Colours()
        notices.add(BAD_PROFILE)
    picture = Picture(pixels, alpha, colours, said)
    return oriented(picture, orientation), notices


def _values(samples: NDArray[Any], depth: int, name: str, notices: set[str]) -> NDArray[Any]:
    """Returns samples as uint8, uint16 or float32 of a Picture."""
    kind = samples.dtype.kind
    if kind == "u" and depth <= 16:
        return full_range(samples, depth)
    if kind != "f":
        raise ImageError(
            f"{name}: {depth}-bit {('signed ' if kind == 'i' else '')}samples are not supported",
            "convert to 16 bits or float first",
        )
    low, high = float(samples.min()), float(samples.max())
    if not (low >= -1 and high <= 2):  # also where they are no numbers
        raise ImageError(
            f"{name}: float samples from {low:g} to {high:g}, expected 0 to 1", "scale them first"
        )
    if low < 0 or high > 1:
        notices.add("float samples outside 0 to 1 are cut off")
    values: NDArray[np.float32] = samples.astype(np.float32).clip(0, 1)
    return values


def _of_cmyk(inks: NDArray[Any], profile: Any) -> tuple[NDArray[Any], str]:
    """Returns inks, (H, W, 4), as sRGB in their depth, and a notice.

    Through a profile by littleCMS; without one, each colour is what its ink and black leave.
    """
    if profile and icc.fits(bytes(profile), 4) and inks.dtype.kind == "u":
        converted: NDArray[Any] = imagecodecs.cms_transform(
            inks,
            bytes(profile),
            imagecodecs.cms_profile("srgb"),
            colorspace="cmyk",
            outcolorspace="rgb",
            outdtype=inks.dtype,
        )
        return converted, "CMYK is converted to sRGB"
    left = 1 - to_unit(inks, np.float32)
    approximate = from_unit(left[..., :3] * left[..., 3:], inks.dtype)
    return approximate, "CMYK without a profile: its colours are approximate"
