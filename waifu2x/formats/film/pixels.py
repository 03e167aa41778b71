"""The planes of decoded frames, and frames of planes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import Crop, PixelFormat
from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_REPACKED = {
    "nv12": "yuv420p", "nv21": "yuv420p", "p010le": "yuv420p10le", "yuyv422": "yuv422p",
    "uyvy422": "yuv422p", "yvyu422": "yuv422p", "nv16": "yuv422p", "nv24": "yuv444p",
    "yuvj420p": "yuv420p", "yuvj422p": "yuv422p", "yuvj444p": "yuv444p",
    "rgb24": "gbrp", "bgr24": "gbrp", "rgb0": "gbrp", "bgr0": "gbrp", "0rgb": "gbrp",
    "0bgr": "gbrp", "pal8": "gbrp", "rgba": "gbrap", "bgra": "gbrap", "argb": "gbrap",
    "abgr": "gbrap", "gray16be": "gray16le", "rgb48be": "gbrp16le", "rgb48le": "gbrp16le",
    "rgba64be": "gbrap16le", "rgba64le": "gbrap16le",
}  # fmt: skip
"""Formats whose samples lie otherwise, and the planar format with the same samples."""
_WHOLE = Crop()
FULL_RANGE = ("yuvj420p", "yuvj422p", "yuvj444p")
"""Formats whose name alone says that they are full range."""


@cache
def pixel_format(name: str, film: str) -> PixelFormat:
    """Returns the planes for frames of a format. Raises ImageError for an unsupported format."""
    planar = _REPACKED.get(name, name)
    found = library().VideoFormat(planar)
    parts = found.components
    bits = parts[0].bits
    is_rgb = found.is_rgb
    planes = len(parts)
    columns = rows = 1
    if planes >= 3 and not is_rgb:
        # A picture whose sides are powers of two tells, by the sides of its chroma.
        sized = library().VideoFormat(planar, 64, 64)
        columns, rows = 64 // sized.chroma_width(64), 64 // sized.chroma_height(64)
    plain = (
        found.is_planar or planar in ("gray", "gray10le", "gray12le", "gray16le")
    ) and planes in (1, 3, 4)
    if (
        not plain
        or found.has_palette
        or found.is_big_endian
        or not 8 <= bits <= 16
        or (columns, rows) not in ((1, 1), (2, 1), (2, 2))
        or planar.startswith(("gbrpf", "gbrapf"))
    ):
        raise ImageError(f"{film}: its pictures are {name}, which cannot be enlarged")
    return PixelFormat(planar, bits, columns, rows, planes, is_rgb)


def planes_of(frame: VideoFrame, pixels: PixelFormat, crop: Crop = _WHOLE) -> list[NDArray[Any]]:
    """Returns the planes of a frame, (rows, columns) each, as views of its memory. `crop` begins
    with whole samples of chroma."""
    name = frame.format.name
    if name != pixels.name and not name.startswith("yuvj"):
        frame = frame.reformat(format=pixels.name)
    height = frame.height - crop.top - crop.bottom
    width = frame.width - crop.left - crop.right
    found = []
    for plane, shape, (rows, columns) in zip(
        frame.planes, pixels.shapes(height, width), pixels.steps, strict=True
    ):
        top, left = crop.top // rows, crop.left // columns
        samples = _rows(plane, pixels.dtype)
        found.append(samples[top : top + shape[0], left : left + shape[1]])
    return found


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
