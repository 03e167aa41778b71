"""Films that no encoder makes: frames as YUV4MPEG2 (y4m), written here, as PNG and as GIF.

FFmpeg writes y4m above 8 bits only as an unofficial extension. A film is a line that describes it,
then the word FRAME and the planes of each frame, without times.
"""

from __future__ import annotations

from fractions import Fraction

from waifu2x.errors import OutputError
from waifu2x.formats.film.description import ChromaSiting, FilmColours, PixelFormat
from waifu2x.formats.film.writing.codecs import Encoding, Wish

_NAMES = {(2, 2): "420", (2, 1): "422", (1, 1): "444"}
"""Names of chroma's layout, by columns and rows of luma for one sample of it."""
Y4M_FRAME = b"FRAME\n"
"""The word before the planes of each frame."""
_SITED: dict[ChromaSiting, str] = {"left": "420mpeg2", "topleft": "420paldv", "center": "420jpeg"}


def raw_encoding(wish: Wish, source: PixelFormat, container: str) -> Encoding:
    """Returns the encoding of unencoded frames; `container` is one of `targets.RAW`. Raises
    OutputError for options that need an encoder."""
    wanted = {
        "--codec": wish.codec,
        "--crf": wish.crf,
        "--preset": wish.preset,
        "--tune": wish.tune,
        "--codec-option": wish.options or None,
    }
    given = [name for name, value in wanted.items() if value is not None]
    if given:
        raise OutputError(f"{container} has no encoder: leave {' and '.join(given)} out")
    if container == "y4m":
        pixels = _y4m_pixels(wish, source)
    else:
        pixels = _rgb_pixels(wish, source, container)
    return Encoding(container, pixels, ())


def _y4m_pixels(wish: Wish, source: PixelFormat) -> PixelFormat:
    if source.planes == 4:
        raise OutputError("y4m cannot hold transparency: use .mkv")
    bits = wish.depth or (8 if source.bits == 8 else 10)
    if source.planes == 1 and wish.chroma is None:
        return PixelFormat("gray" if bits == 8 else "gray10le", bits, 1, 1, 1)
    columns, rows = source.columns, source.rows
    if wish.chroma is not None:
        columns, rows = 1 if wish.chroma == "444" else 2, 2 if wish.chroma == "420" else 1
    name = _NAMES[columns, rows]
    return PixelFormat(f"yuv{name}p{'' if bits == 8 else '10le'}", bits, columns, rows, 3)


def _rgb_pixels(wish: Wish, source: PixelFormat, container: str) -> PixelFormat:
    if wish.chroma is not None:
        raise OutputError(f"{container.upper()} is RGB: leave --chroma out")
    if container == "gif" and wish.depth not in (None, 8):
        raise OutputError(f"GIF holds 8 bits: leave --depth {wish.depth} out")
    bits = 8 if container == "gif" or (wish.depth or source.bits) == 8 else 16
    if source.planes == 1:
        return PixelFormat("gray" if bits == 8 else "gray16le", bits, 1, 1, 1)
    planes = 4 if source.planes == 4 else 3
    name = f"gbr{'a' * (planes == 4)}p{'' if bits == 8 else '16le'}"
    return PixelFormat(name, bits, 1, 1, planes, is_rgb=True)


def y4m_siting(head: bytes) -> ChromaSiting | None:
    """Returns the siting of chroma that the first bytes of a y4m file name, if any."""
    for word in head.partition(b"\n")[0].split()[1:]:
        if word in (b"C420", b"C420jpeg"):
            return "center"
        if word == b"C420mpeg2":
            return "left"
        if word == b"C420paldv":
            return "topleft"
    return None


def y4m_header(
    pixels: PixelFormat,
    height: int,
    width: int,
    rate: Fraction,
    aspect: Fraction | None,
    colours: FilmColours,
    *,
    interlaced: bool = False,
) -> bytes:
    """Returns the line that describes a film, as FFmpeg writes it."""
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
