"""Raw frames as programs send them to each other through pipes: YUV4MPEG2.

FFmpeg writes only 8 bits of it without being talked into more, so it is written here: a line that
describes the film, then the word FRAME and the planes of each frame. There are no times in it.
"""

from __future__ import annotations

from fractions import Fraction

from waifu2x.errors import OutputError
from waifu2x.formats.film.description import FilmColours, PixelFormat

FRAME = b"FRAME\n"
"""What stands before the planes of each frame."""
_SITED = {"left": "420mpeg2", "topleft": "420paldv", "center": "420jpeg"}


def raw_pixels(source: PixelFormat, depth: int | None, chroma: str | None) -> PixelFormat:
    """The planes that are written for pictures of a format, or of the depth and chroma that are
    wanted. Raises OutputError for transparent ones."""
    if source.planes == 4:
        raise OutputError("y4m has no transparency: use -f mkv with --codec ffv1")
    bits = depth or (8 if source.bits == 8 else 10)
    if source.planes == 1 and chroma is None:
        return PixelFormat("gray" if bits == 8 else "gray10le", bits, 1, 1, 1)
    columns, rows = source.columns, source.rows
    if chroma is not None:
        columns, rows = 1 if chroma == "444" else 2, 2 if chroma == "420" else 1
    name = {(2, 2): "420", (2, 1): "422", (1, 1): "444"}[columns, rows]
    return PixelFormat(f"yuv{name}p{'' if bits == 8 else '10le'}", bits, columns, rows, 3)


def header(
    pixels: PixelFormat,
    height: int,
    width: int,
    rate: Fraction,
    aspect: Fraction | None,
    colours: FilmColours,
    *,
    interlaced: bool = False,
) -> bytes:
    """The line that describes a film: what FFmpeg writes for the same."""
    if pixels.planes == 1:
        space, extra = "mono", ""
    else:
        space = {(2, 2): "420", (2, 1): "422", (1, 1): "444"}[pixels.columns, pixels.rows]
        if pixels.bits > 8:
            space += f"p{pixels.bits}"
        elif space == "420":
            space = _SITED[colours.siting]
        extra = f" XYSCSS={space.upper()}"
    if pixels.planes == 1 and pixels.bits > 8:
        space += str(pixels.bits)
    ratio = Fraction(0) if aspect is None else aspect
    shape = f"A{ratio.numerator}:{ratio.denominator if ratio else 0}"
    fields = "?" if interlaced else "p"
    return (
        f"YUV4MPEG2 W{width} H{height} F{rate.numerator}:{rate.denominator} I{fields} {shape} "
        f"C{space}{extra} XCOLORRANGE={colours.range.upper()}\n"
    ).encode()
