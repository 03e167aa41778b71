"""The planes of decoded frames, and frames of planes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import (
    CHROMAS,
    ChromaSiting,
    CroppedEdges,
    FilmCrop,
    PixelFormat,
)
from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_REPACKED = {
    "nv12": "yuv420p", "nv21": "yuv420p", "p010le": "yuv420p10le", "p012le": "yuv420p12le",
    "p016le": "yuv420p16le", "yuyv422": "yuv422p", "uyvy422": "yuv422p", "yvyu422": "yuv422p",
    "nv16": "yuv422p", "nv20le": "yuv422p10le", "p210le": "yuv422p10le", "p212le": "yuv422p12le",
    "p216le": "yuv422p16le", "y210le": "yuv422p10le", "y212le": "yuv422p12le",
    "y216le": "yuv422p16le", "nv24": "yuv444p", "nv42": "yuv444p", "vyu444": "yuv444p",
    "vuyx": "yuv444p", "p410le": "yuv444p10le", "p412le": "yuv444p12le", "p416le": "yuv444p16le",
    "xv30le": "yuv444p10le", "xv36le": "yuv444p12le", "xv48le": "yuv444p16le",
    "v30xle": "yuv444p10le", "vuya": "yuva444p", "ayuv": "yuva444p", "uyva": "yuva444p",
    "ayuv64le": "yuva444p16le", "yuvj411p": "yuv411p", "yuvj420p": "yuv420p",
    "yuvj422p": "yuv422p", "yuvj440p": "yuv440p", "yuvj444p": "yuv444p",
    "rgb24": "gbrp", "bgr24": "gbrp", "rgb0": "gbrp", "bgr0": "gbrp", "0rgb": "gbrp",
    "0bgr": "gbrp", "pal8": "gbrp", "rgb8": "gbrp", "bgr8": "gbrp", "rgb4_byte": "gbrp",
    "bgr4_byte": "gbrp", "rgb565le": "gbrp", "bgr565le": "gbrp", "rgb555le": "gbrp",
    "bgr555le": "gbrp", "rgb444le": "gbrp", "bgr444le": "gbrp", "rgba": "gbrap", "bgra": "gbrap",
    "argb": "gbrap", "abgr": "gbrap", "x2rgb10le": "gbrp10le", "x2bgr10le": "gbrp10le",
    "rgb48le": "gbrp16le", "bgr48le": "gbrp16le", "rgba64le": "gbrap16le",
    "bgra64le": "gbrap16le", "monow": "gray", "monob": "gray", "ya8": "gbrap",
    "ya16le": "gbrap16le",
}  # fmt: skip
"""Formats whose samples lie otherwise, and the planar format with the same samples. Those of big
endian are the same."""
_UNREAD = ("v30xbe", "x2bgr10be", "x2rgb10be", "xv30be", "y210be", "y212be", "y216be")
"""Formats that FFmpeg does not convert."""
_BITS = {"565": (6, 5, 5), "555": (5, 5, 5), "444": (4, 4, 4)}
"""Bits of green, blue and red, by the end of the names of packed formats with less than 8."""
_DOUBLED = {(4, 1): (2, 1), (4, 4): (2, 2), (1, 2): (1, 1)}
"""Columns and rows of luma for a sample of chroma that nothing else here knows, and those after
chroma was made denser: 4:1:1, 4:1:0 and 4:4:0 lose nothing as 4:2:2, 4:2:0 and 4:4:4."""
_WHOLE = CroppedEdges()
FULL_RANGE = ("yuvj411p", "yuvj420p", "yuvj422p", "yuvj440p", "yuvj444p")
"""Formats whose name alone says that they are full range."""
_GREY = ("gray", "gray9le", "gray10le", "gray12le", "gray14le", "gray16le")


def _planar(name: str) -> str:
    """Returns the planar format of little endian for the samples of another."""
    little = f"{name[:-2]}le" if name.endswith("be") else name
    return _REPACKED.get(little, little)


def _layout(planar: str) -> tuple[int, int]:
    """Returns columns and rows of luma for a sample of chroma."""
    # The sides of chroma tell, where those of the picture are powers of two.
    sized = library().VideoFormat(planar, 64, 64)
    return 64 // sized.chroma_width(64), 64 // sized.chroma_height(64)


@cache
def pixel_format(name: str, film: str) -> PixelFormat:
    """Returns the planes for frames of a format, which lose nothing of it but the transparency of
    palettes: `frame_pixels` knows that. Raises ImageError for an unsupported format."""
    planar = _planar(name)
    found = library().VideoFormat(planar)
    parts = found.components
    bits = parts[0].bits if parts else 0  # those of hardware have none
    is_rgb = found.is_rgb
    planes = len(parts)
    columns, rows = _layout(planar) if planes >= 3 and not is_rgb else (1, 1)
    plain = (found.is_planar or planar in _GREY) and planes in (1, 3, 4)
    if (columns, rows) in _DOUBLED:
        columns, rows = _DOUBLED[columns, rows]
        planar = re.sub("4[14][01]", CHROMAS[columns, rows], planar)
    if (
        not plain
        or found.has_palette
        or found.is_big_endian
        or not 8 <= bits <= 16
        or (columns, rows) not in CHROMAS
        or planar.startswith(("gbrpf", "gbrapf"))
        or "msb" in planar
        or name in _UNREAD
    ):
        raise ImageError(
            f"{film}: its pictures are {name}, which cannot be enlarged",
            "convert them first, for instance by `ffmpeg -i FILM -pix_fmt gbrp16le -c:v ffv1 "
            "OUT.mkv`",
        )
    return PixelFormat(planar, bits, columns, rows, planes, is_rgb)


def frame_pixels(frame: VideoFrame, film: str) -> PixelFormat:
    """Returns the planes for a frame. Those of a palette are transparent where the frame shows a
    transparent entry. Raises ImageError for an unsupported format."""
    name = frame.format.name
    return pixel_format("bgra" if name == "pal8" and _is_transparent(frame) else name, film)


def _is_transparent(frame: VideoFrame) -> bool:
    entries: Any = frame.planes[1]
    opacity = np.frombuffer(entries, np.uint32)[:256] >> 24
    if opacity.min() == 255:
        return False
    return bool(opacity[_rows(frame.planes[0], "uint8")[: frame.height, : frame.width]].min() < 255)


def planes_of(
    frame: VideoFrame,
    pixels: PixelFormat,
    crop: CroppedEdges = _WHOLE,
    siting: ChromaSiting = "left",
) -> list[NDArray[Any]]:
    """Returns the planes of a frame, (rows, columns) each, as views of its memory where it has
    them. `crop` begins with whole samples of chroma; `siting` is where these lie."""
    height = frame.height - crop.top - crop.bottom
    width = frame.width - crop.left - crop.right
    found = []
    for samples, shape, (rows, columns) in zip(
        _whole_planes(frame, pixels, siting), pixels.shapes(height, width), pixels.steps,
        strict=True,
    ):  # fmt: skip
        top, left = crop.top // rows, crop.left // columns
        found.append(samples[top : top + shape[0], left : left + shape[1]])
    return found


def _whole_planes(
    frame: VideoFrame, pixels: PixelFormat, siting: ChromaSiting
) -> list[NDArray[Any]]:
    name = frame.format.name
    if name in ("ya8", "ya16le", "ya16be"):  # FFmpeg loses some of 16 bits
        kind = {"ya8": "u1", "ya16le": "<u2", "ya16be": ">u2"}[name]
        both = _rows(frame.planes[0], kind).astype(pixels.dtype)
        return [both[:, 0::2]] * 3 + [both[:, 1::2]]
    # A palette may be transparent, which its name does not tell.
    planar = pixels.name if name == "pal8" else _planar(name)
    if name != planar and not name.startswith("yuvj"):
        frame = frame.reformat(format=planar)
    planes = [_rows(plane, pixels.dtype) for plane in frame.planes]
    little = name.removesuffix("le").removesuffix("be")
    if pixels.is_rgb and little[3:] in _BITS:
        # FFmpeg leaves the low bits empty, so that white would be grey.
        for plane, bits in zip(planes, _BITS[little[3:]], strict=True):
            plane |= plane >> bits
    elif planar != pixels.name and pixels.planes >= 3 and not pixels.is_rgb:
        columns, rows = _layout(planar)
        for place in (1, 2):
            chroma = planes[place][: -(-frame.height // rows), : -(-frame.width // columns)]
            if columns > pixels.columns:
                chroma = _doubled(chroma, siting == "center")
            if rows > pixels.rows:
                chroma = _doubled(chroma.T, siting != "topleft").T
            planes[place] = chroma
    return planes


def _doubled(samples: NDArray[Any], between: bool) -> NDArray[Any]:
    """Returns rows with twice as many samples, by linear interpolation. With `between`, samples lie
    in the middle of the pixels that they are for, else at the first."""
    wide = samples.astype(np.uint32)
    before, after = (np.roll(wide, step, axis=1) for step in (1, -1))
    before[:, 0], after[:, -1] = wide[:, 0], wide[:, -1]
    made = np.empty((wide.shape[0], 2 * wide.shape[1]), samples.dtype)
    if between:
        made[:, 0::2], made[:, 1::2] = (3 * wide + before + 2) // 4, (3 * wide + after + 2) // 4
    else:
        made[:, 0::2], made[:, 1::2] = wide, (wide + after + 1) // 2
    return made


def cropped(
    planes: Sequence[NDArray[Any]], pixels: PixelFormat, crop: FilmCrop
) -> list[NDArray[Any]]:
    """Returns the part of each plane that a rectangle has, as views. It begins at whole samples of
    chroma."""
    starts = pixels.shapes(crop.top, crop.left)
    sizes = pixels.shapes(*crop.size)
    return [
        plane[top : top + rows, left : left + columns]
        for plane, (top, left), (rows, columns) in zip(planes, starts, sizes, strict=True)
    ]


def frame_of(planes: Sequence[NDArray[Any]], pixels: PixelFormat) -> VideoFrame:
    """Returns a frame of the planes: their memory where FFmpeg can take it, else a copy."""
    height, width = planes[0].shape
    av = library()
    if height % pixels.rows == 0 and width % pixels.columns == 0:
        shown: VideoFrame = av.VideoFrame.from_dlpack(list(planes), pixels.name)
        return shown
    frame: VideoFrame = av.VideoFrame(width, height, pixels.name)
    for plane, samples in zip(frame.planes, planes, strict=True):
        rows = _rows(plane, pixels.dtype)
        rows[: samples.shape[0], : samples.shape[1]] = samples
    return frame


def _rows(plane: Any, dtype: str) -> NDArray[Any]:
    # Whole rows with padding: the bytes after the last one may be less than a row.
    whole = np.frombuffer(plane, dtype)
    return whole[: plane.height * plane.line_size // whole.itemsize].reshape(plane.height, -1)
