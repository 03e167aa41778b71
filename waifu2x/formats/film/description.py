"""Describes films as plain data, which crosses between processes and needs no PyAV."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.imaging.picture import Colours, Hdr

ChromaSiting = Literal["left", "topleft", "center"]
"""Position of chroma samples in a block of 2x2 pixels: the middle of its left side, its first
pixel, or its centre."""
Range = Literal["limited", "full"]
Kind = Literal["video", "audio", "subtitle", "attachment", "data", "unknown"]

UNSPECIFIED = 2
"""The number of H.273 for an unknown matrix, primaries or transfer."""
RGB = 0
BT709, BT470BG, SMPTE170M, SMPTE240M, BT2020 = 1, 5, 6, 7, 9
PQ, HLG = 16, 18
MATRICES = {
    RGB: "RGB", BT709: "BT.709", 4: "FCC", BT470BG: "BT.601", SMPTE170M: "BT.601",
    SMPTE240M: "SMPTE 240M", BT2020: "BT.2020",
}  # fmt: skip
"""Matrices of H.273 that pictures are converted by, and their names."""


Chroma = Literal["420", "422", "444"]
CHROMAS: dict[tuple[int, int], Chroma] = {(1, 1): "444", (2, 1): "422", (2, 2): "420"}
"""Names of layouts of chroma, by columns and rows of luma for a sample of it."""


@dataclass(frozen=True)
class PixelFormat:
    """The layout of a frame in memory: separate planes without gaps."""

    name: str
    """FFmpeg's, of 8 or of little-endian 16 bits."""
    bits: int
    """Bits of a sample; more than 8 lie in 16."""
    columns: int
    """Luma samples for each chroma sample in a row, 1 or 2."""
    rows: int
    """The same in a column."""
    planes: int
    """1 for grey, 3, or 4 with transparency."""
    is_rgb: bool = False
    """Whether its planes are green, blue and red."""

    def shapes(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Returns rows and columns of each plane."""
        chroma = (-(-height // self.rows), -(-width // self.columns))
        return ((height, width), chroma, chroma, (height, width))[: self.planes]

    def nbytes(self, height: int, width: int) -> int:
        """Returns the bytes of a frame."""
        samples = sum(rows * columns for rows, columns in self.shapes(height, width))
        return samples * (1 if self.bits == 8 else 2)

    @property
    def chroma(self) -> Chroma:
        """Returns the layout of chroma: 444, 422 or 420."""
        return CHROMAS[self.columns, self.rows]

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Returns rows and columns of luma for a sample of each plane."""
        chroma = (self.rows, self.columns)
        return ((1, 1), chroma, chroma, (1, 1))[: self.planes]

    @property
    def dtype(self) -> str:
        """Returns NumPy's name of the sample type."""
        return "uint8" if self.bits == 8 else "uint16"


def yuv_format(bits: int, chroma: str, *, has_alpha: bool = False) -> PixelFormat:
    """Returns the format of luma and chroma, of 8 or 10 bits; `chroma` is a layout's name."""
    columns, rows = next(steps for steps, name in CHROMAS.items() if name == chroma)
    name = f"yuv{'a' * has_alpha}{chroma}p{'' if bits == 8 else '10le'}"
    return PixelFormat(name, bits, columns, rows, 4 if has_alpha else 3)


@dataclass(frozen=True)
class FilmColours:
    """The meaning of the samples of a film, by the numbers of ITU-T H.273."""

    matrix: int
    range: Range
    primaries: int
    transfer: int
    siting: ChromaSiting
    assumed: tuple[Literal["matrix", "range", "siting"], ...] = ()
    """Values that the film does not say."""


def becomes_sdr(source: FilmColours, result: FilmColours) -> bool:
    """Returns whether a source is HDR, and its result is not."""
    return source.transfer in (PQ, HLG) and result.transfer not in (PQ, HLG)


class CroppedEdges(NamedTuple):
    """Rows and columns at the edges of decoded frames that a container says not to show."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


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
    """Without what is cropped."""
    pixels: PixelFormat
    time_base: Fraction
    """Seconds of a tick."""
    rate: Fraction
    """Pictures a second, a guess where they are not evenly spaced."""
    frames: int | None
    """Frames that the file claims to have."""
    aspect: Fraction | None
    """Width of a pixel over its height, where the file says."""
    rotation: int
    """Degrees counter-clockwise that players turn it by."""
    matrix: tuple[int, ...] | None
    """The nine numbers of the display matrix."""
    colours: FilmColours
    hdr: Hdr | None
    lost: tuple[str, ...]
    """Metadata that no encoder here can keep, in words."""
    interlaced: bool
    tags: tuple[tuple[str, str], ...]
    disposition: int
    crop: CroppedEdges = CroppedEdges()

    @property
    def coded_size(self) -> tuple[int, int]:
        """Returns width and height of decoded frames."""
        crop = self.crop
        return self.width + crop.left + crop.right, self.height + crop.top + crop.bottom

    @property
    def orientation(self) -> int:
        """Returns the display matrix as EXIF's orientation, 1 to 8; 1 without one, and for one that
        is more than quarter turns and reflections."""
        if self.matrix is None:
            return 1
        across, down, across_by_y, down_by_y = (self.matrix[place] for place in (0, 1, 3, 4))
        if across and down_by_y and not down and not across_by_y:
            return {(1, 1): 1, (0, 1): 2, (0, 0): 3, (1, 0): 4}[across > 0, down_by_y > 0]
        if down and across_by_y and not across and not down_by_y:
            return {(1, 1): 5, (0, 1): 6, (0, 0): 7, (1, 0): 8}[across_by_y > 0, down > 0]
        return 1

    def said(self, colours: FilmColours) -> Colours:
        """Returns the colours of results as pictures of RGB have them."""
        # The command line describes films without NumPy.
        from waifu2x.imaging.picture import CodePoints, Colours

        hdr = None if becomes_sdr(self.colours, colours) else self.hdr
        if colours.primaries == colours.transfer == UNSPECIFIED:
            return Colours(hdr=hdr)
        return Colours(None, CodePoints(colours.primaries, colours.transfer), hdr=hdr)


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
    """Whether it is not read, since it holds chapters or their pictures."""

    @property
    def title(self) -> str:
        """Returns its name for people: number, codec and language."""
        tags = {key.lower(): value for key, value in self.tags}
        language = f"({tags['language']})" if tags.get("language") else ""
        kind = "cover" if self.is_cover else self.kind
        return " ".join(filter(None, (kind, str(self.index), self.codec, language)))


@dataclass(frozen=True)
class Film:
    """A film, by its header and its first frame."""

    container: str
    """FFmpeg's name of the container."""
    seconds: float | None
    """The length that it claims."""
    shift: int
    """Microseconds at which its times begin, where that has no meaning and is subtracted."""
    seekable: bool
    pictures: Pictures
    others: tuple[OtherStream, ...]
    chapters: int
    tags: tuple[tuple[str, str], ...]
    start: Fraction = Fraction(0)
    """Seconds from which on its pictures are as described: recordings of television change."""


class FilmCrop(NamedTuple):
    """A rectangle of pictures in pixels."""

    width: int
    height: int
    left: int
    top: int

    def __str__(self) -> str:
        """Returns it as `--crop` takes it."""
        return f"{self.width}:{self.height}:{self.left}:{self.top}"

    @property
    def size(self) -> tuple[int, int]:
        """Returns rows and columns."""
        return self.height, self.width


@dataclass(frozen=True)
class Cut:
    """A stretch of a film, in seconds."""

    start: Fraction = Fraction(0)
    end: Fraction | None = None


def seconds_of(duration: str) -> float:
    """Returns the seconds of Matroska's tag, as in 00:01:02.500000000; 0 for any other text."""
    try:
        hours, minutes, seconds = duration.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except (ValueError, OverflowError):
        return 0.0
