"""Raw frames as programs send them to each other through pipes: YUV4MPEG2.

FFmpeg writes only 8 bits of it without being talked into more, so it is written here: a line that
describes the film, then the word FRAME and the planes of each frame. There are no times in it.
"""

from __future__ import annotations

from fractions import Fraction

from waifu2x.formats.film.description import ChromaSiting, FilmColours, PixelFormat

FRAME = b"FRAME\n"
"""What stands before the planes of each frame."""
_SITED: dict[ChromaSiting, str] = {"left": "420mpeg2", "topleft": "420paldv", "center": "420jpeg"}


def told_siting(head: bytes) -> ChromaSiting | None:
    """Where chroma sits, by the description in a film's first bytes, if that says so."""
    for word in head.partition(b"\n")[0].split()[1:]:
        if word in (b"C420", b"C420jpeg"):
            return "center"
        if word == b"C420mpeg2":
            return "left"
        if word == b"C420paldv":
            return "topleft"
    return None


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
