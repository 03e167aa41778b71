"""Finds the pictures of a TIFF file: where their directories are, and what reads them.

TIFF 6.0; Adobe's TIFF Technical Note 1 for directories below a picture's own; DNG 1.7.1 for raw
files, which are TIFF files whose first directory is most often a thumbnail.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from waifu2x.formats.limits import Budget
from waifu2x.formats.metadata import tags
from waifu2x.formats.metadata.exif import ORIENTATION
from waifu2x.imaging.orientation import oriented_size
from waifu2x.imaging.streams import Extent

_EXTRA_SAMPLES, _LAYERS = 338, 37724
"""Tags for what samples beside the colours mean, and for Photoshop's layers."""
_ALPHA = (1, 2)
_COLOURS = {2: 3, 5: 4, 6: 3, 8: 3, 9: 3, 10: 3}
"""Samples of a colour, by PhotometricInterpretation; 1 in others."""
_DNG_VERSION, _MOSAIC_SIZE = 50706, 33421
_NUMBERS = frozenset((
    tags.SUBFILE_TYPE, tags.WIDTH, tags.HEIGHT, tags.BITS_PER_SAMPLE, tags.COMPRESSION,
    tags.PHOTOMETRIC, ORIENTATION, tags.SAMPLES_PER_PIXEL, tags.SUB_IFDS, _EXTRA_SAMPLES,
    _MOSAIC_SIZE, _DNG_VERSION,
))  # fmt: skip
_MAKER = slice(8, 12)
_MAKERS = (b"CR\2\0", b"IIII", b"MMMM")
"""Marks of Canon (CR2) and Phase One (IIQ) behind the header."""
_OF_SENSORS = (32803, 34892)
"""Kinds of samples: a mosaic of colours, and a camera's own colours (DNG 1.7.1, chapter 3)."""
_BY_CAMERAS = (32767, 32769, 32770, 34713, 34892, 65000, 65535)
"""Compressions of raw files alone: Sony's, Epson's, Samsung's, Nikon's, DNG's, Kodak's, Pentax'."""
_BY_PILLOW = (1, 2, 3, 4, 5, 6, 7, 8, 32771, 32773, 32809, 32946, 34676, 34677)
"""Compressions that every Pillow reads; tifffile reads others."""
_PALETTE = 3


class TiffPicture(NamedTuple):
    """A picture of a TIFF file, by the numbers of its directory."""

    at: int
    """The offset of its directory."""
    page: int | None
    """Its place among the pages; None for a picture below one."""
    numbers: Mapping[int, tuple[int, ...]]
    described: int
    """The offset of the directory with its metadata: that of its page."""

    def number(self, tag: int, default: int) -> int:
        """Returns the largest number of a tag, or the default."""
        return max(self.numbers.get(tag, ()), default=default)

    @property
    def size(self) -> tuple[int, int]:
        """Returns width and height as stored."""
        return self.number(tags.WIDTH, 0), self.number(tags.HEIGHT, 0)

    @property
    def palette(self) -> bool:
        """Returns whether its samples are indices of a palette."""
        return self.number(tags.PHOTOMETRIC, 0) == _PALETTE

    @property
    def extent(self) -> Extent:
        """Returns its upright size."""
        width, height = self.size
        rows, columns = oriented_size(height, width, self.number(ORIENTATION, 1))
        planes = 3 if self.palette else self.number(tags.SAMPLES_PER_PIXEL, 1)
        sample = -(-self.number(tags.BITS_PER_SAMPLE, 1) // 8)
        return Extent(rows, columns, rows * columns * planes * sample)

    @property
    def further_channels(self) -> int:
        """Returns the number of channels that are neither colours nor transparency."""
        further = self.number(tags.SAMPLES_PER_PIXEL, 1)
        further -= _COLOURS.get(self.number(tags.PHOTOMETRIC, 0), 1)
        # Readers take the first one for transparency, if it says so.
        return max(0, further - (self.numbers.get(_EXTRA_SAMPLES, (0,))[0] in _ALPHA))

    @property
    def is_raw(self) -> bool:
        """Returns whether it has samples of a camera's sensor, yet to be made into a picture."""
        return (
            self.number(tags.PHOTOMETRIC, 0) in _OF_SENSORS
            or self.number(tags.COMPRESSION, 1) in _BY_CAMERAS
            or _MOSAIC_SIZE in self.numbers
        )


class TiffPictures(NamedTuple):
    """The pictures of a TIFF file, without thumbnails."""

    pictures: tuple[TiffPicture, ...]
    is_raw: bool
    """Whether it is a camera's raw file."""
    by_pillow: bool
    """Whether Pillow reads all pictures in full."""


def find(data: bytes, budget: Budget) -> TiffPictures:
    """Returns the pictures of a TIFF file.

    A page that is a thumbnail stands for the full pictures below it. Raises ValueError if the file
    is no TIFF, and OverBudgetError.
    """
    form = tags.layout(data)
    pages = [
        TiffPicture(at, page, tags.numbers(data, at, _NUMBERS, budget), at)
        for page, at in enumerate(tags.pages(data, budget))
    ]
    found, is_raw = list[TiffPicture](), data[_MAKER] in _MAKERS
    for page in pages:
        full = [each for each in (page, *_below(data, form, page, budget)) if _is_full(each)]
        is_raw |= any(each.is_raw for each in full)
        found += [page] if page in full else full
    if not found and pages:
        is_raw |= _DNG_VERSION in pages[0].numbers
        if len(pages) == 1 and tags.SUB_IFDS not in pages[0].numbers:
            found = pages  # there is no other that it could be a thumbnail of
    known = not form.big or form.order == "<"
    return TiffPictures(tuple(found), is_raw, known and all(map(_by_pillow, found)))


def _below(
    data: bytes, form: tags.TiffLayout, page: TiffPicture, budget: Budget
) -> Iterator[TiffPicture]:
    """Yields the pictures below a page, without those that are damaged."""
    turned = {tag: values for tag, values in page.numbers.items() if tag == ORIENTATION}
    for at in page.numbers.get(tags.SUB_IFDS, ()):
        try:
            tags.check(data, form, at, budget)
            numbers = tags.numbers(data, at, _NUMBERS, budget) | turned
            yield TiffPicture(at, None, numbers, page.at)
        except (ValueError, struct.error):
            continue


def _is_full(picture: TiffPicture) -> bool:
    return not picture.number(tags.SUBFILE_TYPE, 0) & tags.REDUCED


def _by_pillow(picture: TiffPicture) -> bool:
    deep = picture.number(tags.BITS_PER_SAMPLE, 8) > 8
    coded = picture.number(tags.COMPRESSION, 1)
    return picture.page is not None and not deep and coded in _BY_PILLOW


def parts(data: bytes, pictures: Sequence[TiffPicture], budget: Budget) -> dict[str, int]:
    """Returns the numbers of a file's parts that are not read, by their kinds in the table.

    Raises ValueError for a damaged directory, and OverBudgetError.
    """
    form, found = tags.layout(data), dict[str, int]()
    channels = sum(picture.further_channels for picture in pictures)
    if channels:
        found["further channels"] = channels
    places = (
        place for picture in pictures for place in tags.places(data, form, picture.at, budget)
    )
    if any(place.tag == _LAYERS for place in places):
        found["layers"] = 1
    return found
