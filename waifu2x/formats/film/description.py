"""What a film holds, as plain data: it crosses between processes, and needs no PyAV."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from waifu2x.system.lazy_dataclass import dataclass

ChromaSiting = Literal["left", "topleft", "center"]
"""Where chroma samples sit in a block of 2x2 pixels: in the middle of its left side, at its first
pixel, in its centre."""
Range = Literal["limited", "full"]
Kind = Literal["video", "audio", "subtitle", "attachment", "data", "unknown"]

UNSPECIFIED = 2
"""In H.273, a matrix, primaries or a transfer that nobody told."""
RGB = 0
BT709, BT470BG, SMPTE170M, SMPTE240M, BT2020 = 1, 5, 6, 7, 9
PQ, HLG = 16, 18
MATRICES = {
    RGB: "RGB", BT709: "709", 4: "FCC", BT470BG: "601", SMPTE170M: "601",
    SMPTE240M: "240M", BT2020: "2020",
}  # fmt: skip
"""Matrices of H.273 that pictures are converted by, and their names."""


@dataclass(frozen=True)
class PixelFormat:
    """How the samples of a frame lie in memory: planes of their own, without gaps."""

    name: str
    """FFmpeg's, of 8 or of little-endian 16 bits."""
    bits: int
    """Bits of a sample; more than 8 lie in 16."""
    columns: int
    """Luma samples to one of chroma in a row, 1 or 2."""
    rows: int
    """As many in a column."""
    planes: int
    """1 for grey, 3, or 4 with transparency."""
    is_rgb: bool = False
    """Whether its planes are green, blue and red."""

    def shapes(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each plane."""
        chroma = (-(-height // self.rows), -(-width // self.columns))
        return ((height, width), chroma, chroma, (height, width))[: self.planes]

    @property
    def dtype(self) -> str:
        """NumPy's name for the type of its samples."""
        return "uint8" if self.bits == 8 else "uint16"


@dataclass(frozen=True)
class FilmColours:
    """What the codes of a film's pictures mean, by the numbers of ITU-T H.273."""

    matrix: int
    range: Range
    primaries: int
    transfer: int
    siting: ChromaSiting
    assumed: tuple[str, ...] = ()
    """What of it the film does not say, in words."""


@dataclass(frozen=True)
class Hdr:
    """Static metadata of HDR10."""

    primaries: tuple[Fraction, ...] = ()
    """x and y of red, green, blue and white; or nothing."""
    luminance: tuple[Fraction, ...] = ()
    """The least and the most of the mastering display, in cd/m²; or nothing."""
    light: tuple[int, int] | None = None
    """MaxCLL and MaxFALL."""


@dataclass(frozen=True)
class Pictures:
    """The stream of a film that is enlarged."""

    index: int
    """Its number in the file."""
    codec: str
    decoder: str
    """The decoder that gives all its planes."""
    height: int
    width: int
    pixels: PixelFormat
    time_base: Fraction
    """Seconds of a tick."""
    rate: Fraction
    """Pictures a second, a guess where they are not evenly spaced."""
    frames: int | None
    """How many there are, by the file's own account."""
    aspect: Fraction | None
    """Width of a pixel over its height, where the file says."""
    rotation: int
    """Degrees counter-clockwise that players turn it by."""
    matrix: tuple[int, ...] | None
    """The nine numbers of the display matrix, if there is one."""
    colours: FilmColours
    hdr: Hdr | None
    lost: tuple[str, ...]
    """What it carries and no encoder here can, in words."""
    interlaced: bool
    tags: tuple[tuple[str, str], ...]
    disposition: int


@dataclass(frozen=True)
class OtherStream:
    """A stream that is copied, if the target can hold it."""

    index: int
    kind: Kind
    codec: str
    """Empty where FFmpeg does not know it."""
    is_cover: bool
    tags: tuple[tuple[str, str], ...]
    disposition: int
    is_hidden: bool = False
    """Whether it is not read: FFmpeg makes chapters of it, or it has pictures of chapters."""

    @property
    def title(self) -> str:
        """Its name for people: number, codec and language."""
        tags = {key.lower(): value for key, value in self.tags}
        language = f" ({tags['language']})" if tags.get("language") else ""
        return f"{'cover' if self.is_cover else self.kind} {self.index} {self.codec}{language}"


@dataclass(frozen=True)
class Film:
    """A film, by its header and its first frame."""

    container: str
    """FFmpeg's name of its format."""
    seconds: float | None
    """How long it says it is."""
    shift: int
    """Microseconds at which its times begin, where that means nothing and is taken off all."""
    seekable: bool
    pictures: Pictures
    others: tuple[OtherStream, ...]
    chapters: int
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cut:
    """A stretch of a film, in seconds."""

    start: Fraction = Fraction(0)
    end: Fraction | None = None
