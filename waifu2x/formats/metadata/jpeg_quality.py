"""Estimates the quality of a JPEG, on libjpeg's scale from 1 to 100, by its quantization tables.

Most encoders scale the tables of ITU-T T.81, annex K, as libjpeg does: those are recognized, and
the number is what the encoder was told. For other tables, it is the quality whose table has the
nearest geometric mean. Over 24 pictures, nine settings of Photoshop had the same PSNR as libjpeg at
that quality within 5 (within 11 below 50).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from waifu2x.imaging.picture import JpegCoding
from waifu2x.system.lazy_dataclass import dataclass

Table = Sequence[int]

LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
"""Table K.1 of ITU-T T.81."""
_MOST = {8: 255, 16: 32767}
"""The largest entry that libjpeg writes, by the bits of an entry."""
_PHOTOSHOP = {
    (95, 166): "Photoshop 12",
    (109, 171): "Photoshop 12",
    (232, 443): "Photoshop 11",
    (303, 466): "Photoshop 11",
    (406, 722): "Photoshop 10",
    (535, 750): "Photoshop 10",
    (539, 801): "Photoshop 9",
    (668, 830): "Photoshop 9",
    (649, 853): "Photoshop 8",
    (794, 895): "Photoshop 8",
    (786, 926): "Photoshop 7",
    (971, 950): "Photoshop 7",
    (717, 782): "Photoshop 6",
    (884, 831): "Photoshop 6",
    (844, 849): "Photoshop 5",
    (1032, 889): "Photoshop 5",
    (962, 892): "Photoshop 4",
    (1126, 940): "Photoshop 4",
    (1068, 941): "Photoshop 3",
    (1216, 977): "Photoshop 3",
    (1281, 998): "Photoshop 2",
    (1484, 1083): "Photoshop 1",
    (1582, 1108): "Photoshop 0",
    (95, 168): "Photoshop for web 100",
    (234, 445): "Photoshop for web 90",
    (339, 670): "Photoshop for web 85",
    (406, 724): "Photoshop for web 80",
    (525, 941): "Photoshop for web 75",
    (646, 1149): "Photoshop for web 70",
    (803, 1428): "Photoshop for web 65",
    (974, 1769): "Photoshop for web 60",
    (1085, 1996): "Photoshop for web 55",
    (1221, 1348): "Photoshop for web 50",
    (1821, 1997): "Photoshop for web 40",
    (2223, 2464): "Photoshop for web 30",
    (2575, 2903): "Photoshop for web 20",
    (3514, 3738): "Photoshop for web 10",
}
"""Settings of Photoshop 7.0 to CS2, whose tables later versions kept, by the sums of their luma and
chroma tables, as GIMP's jpegqual.c lists them."""


@dataclass(frozen=True)
class JpegQuality:
    """The quality of a JPEG."""

    quality: int
    """1 to 100, as libjpeg counts."""
    exact: bool
    """Whether its luma table is libjpeg's at that quality; otherwise it is the nearest."""
    subsampling: str
    """Chroma subsampling, such as 4:2:0; empty for a picture without chroma."""
    program: str
    """The program and its setting where the tables are known, such as Photoshop 8; or empty."""

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        said = ", ".join(word for word in (self.subsampling, self.program) if word)
        return f"quality {about}{self.quality}" + (f" ({said})" if said else "")


def quality_of(coding: JpegCoding) -> JpegQuality:
    """Returns the quality of a JPEG by how it was coded. Any tables give an answer."""
    luma = coding.tables[0]
    known = _qualities().get(tuple(luma))
    quality = known or _nearest(luma)
    program = ""
    if known is None and len(coding.tables) > 1:
        program = _PHOTOSHOP.get((sum(luma), sum(coding.tables[1])), "")
    return JpegQuality(quality, known is not None, coding.ratio, program)


def scaled(table: Table, quality: int, bits: int = 8) -> tuple[int, ...]:
    """Scales a table as libjpeg does for a quality from 1 to 100, to entries of 8 or 16 bits."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return tuple(min(max((entry * percent + 50) // 100, 1), _MOST[bits]) for entry in table)


@functools.cache
def _qualities() -> dict[tuple[int, ...], int]:
    return {scaled(LUMA, quality, bits): quality for bits in (16, 8) for quality in range(1, 101)}


@functools.cache
def _sizes() -> list[float]:
    return [_size(scaled(LUMA, quality, 16)) for quality in range(1, 101)]


def _nearest(table: Table) -> int:
    sizes, size = _sizes(), _size(table)
    return min(range(1, 101), key=lambda quality: abs(sizes[quality - 1] - size))


def _size(table: Table) -> float:
    """Returns the mean logarithm of the entries; an invalid 0 counts as 1."""
    return sum(math.log(max(entry, 1)) for entry in table) / len(table)
